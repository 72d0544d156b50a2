"""Sources of `stage` that one node downloads, from a hub or a web server, while the others take them from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from clusterctl.cli.actions.files.transfer import StagedFrom, Target, Transfer, report_holder
from clusterctl.cli.context.nodes import notice, with_any_python
from clusterctl.client.files.downloads import (
    HUB_ADDRESSES,
    TOKEN_VARIABLES,
    Download,
    DownloadObserver,
    Found,
    RemoteSource,
    choose_downloader,
    inspect_source,
    open_download,
)
from clusterctl.client.rpc.cluster import Outcome
from clusterctl.client.sync.distribution import Distribution
from clusterctl.client.sync.upload import SentFiles
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.stage import Stage
from clusterctl.translation import tr


@dataclass(frozen=True)
class RemoteTransfer:
    """A source that a node downloads to itself and that others take from it; nothing is written before `send`."""

    transfer: Transfer
    download: Download
    node: Node
    nodes: Sequence[Node]
    target: Target
    distribution: Distribution | None

    def send(self) -> Iterator[Outcome[SentFiles]]:
        """Yield an outcome for each node, as they come; a download that fails is the last one."""
        began = time.monotonic()
        self.transfer.phases.add_expected(self.download.missing)
        nodes = [self.node, *(node for node in self.nodes if node != self.node)]
        done_here = {self.node.name: self._follow}
        outcomes = self.transfer.send_on(self.download.tree, nodes, self.target, self.distribution, done_here)
        with closing(outcomes):
            for outcome in outcomes:
                if self.download.failure is not None:  # nothing more can come to the others
                    yield Outcome(self.node, None, self.download.failure, time.monotonic() - began)
                    return
                yield outcome

    def _follow(self) -> SentFiles:
        """Wait until the node has all; raise what went wrong there."""
        self.download.follow()
        if self.download.failure is not None:
            raise self.download.failure
        report = self.download.report
        return SentFiles(
            files=report.count("files"),
            bytes=report.count("bytes"),
            unchanged=report.count("unchanged"),
            replaced=report.count("replaced"),
            kept=(),
            kept_count=0,
            sent=0,
            taken=0,
        )


def find_source(job: Job, stage: Stage, by: str) -> RemoteSource:
    """Return what a node is to download: hubs and tokens are named by the job's variables, or by ours."""
    origin = stage.origin
    ours = {name: os.environ[name] for name in HUB_ADDRESSES if name in os.environ}
    variables = {**ours, **{name: str(value) for name, value in job.env.items()}}
    token_name = TOKEN_VARIABLES.get(origin.kind, "")
    token = variables.get(token_name) or os.environ.get(token_name, "")
    folder, name = stage.folder_and_name
    if origin.kind == "url":
        to, layout = folder, "directory"
    else:
        layout = stage.layout
        to = (stage.to or "") if stage.in_cache else f"{folder.rstrip('/')}/{name}"
    return RemoteSource(
        kind="hf" if origin.kind == "hf" else "ms" if origin.kind == "ms" else "url",
        path=origin.path,
        revision=origin.revision,
        to=to,
        name=name,
        layout="cache" if layout == "cache" else "directory",
        sha256=stage.sha256 or "",
        variables=variables,
        token=token,
        staged={"source": stage.label, "revision": "", "tree": "", "by": by},
    )


@contextmanager
def opened_remote(
    transfer: Transfer, source: RemoteSource, nodes: Sequence[Node], *, dry_run: bool
) -> Iterator[RemoteTransfer]:
    """Have one node begin to download; with `dry_run` it only reports what would come."""
    found = _inspect(transfer, source, nodes)
    name = choose_downloader(source, found)
    node = next(node for node in nodes if node.name == name)
    several = len(nodes) > 1 and not dry_run
    distribution = transfer.find_addresses("tree", [node, *nodes], 0) if several else None
    offer = distribution.offer(node.name, 0) if distribution else None
    phases = transfer.phases
    observer = DownloadObserver(
        partial(phases.add_bytes, node.name),
        lambda text: notice(tr("{subject}: {text}", subject=node.name, text=text)),
        partial(report_holder, node.name),
    )
    connection: Any = transfer.cluster.connection(node)
    download = with_any_python(
        node,
        lambda python: open_download(connection, node, python, source, offer, observer, only_list=dry_run),
    )[0]
    with closing(download):
        if distribution is not None and download.port is not None:
            distribution.notice = lambda text: None if download.has_failed() else notice(text)
            distribution.add_source(node.name, download.port)
        else:
            distribution = None
        path, name, folder = download.into
        staged = source.staged or {"source": source.text, "by": ""}
        target = Target(
            path, name, folder=folder, staged=StagedFrom(staged["source"], download.revision, staged["by"])
        )
        yield RemoteTransfer(transfer, download, node, nodes, target, distribution)


def _inspect(transfer: Transfer, source: RemoteSource, nodes: Sequence[Node]) -> dict[str, Found]:
    """Ask all nodes what they have, and whether they reach the server; a node that fails is left out here."""

    def inspect(c: Any, node: Node) -> Found:
        return with_any_python(node, lambda python: inspect_source(c, node, python, source))[0]

    outcomes = list(transfer.cluster.each(nodes, inspect, step=tr("reading its files")))
    found = {outcome.node.name: outcome.value for outcome in outcomes if outcome.value is not None}
    if not found:
        raise next(outcome.error for outcome in outcomes if outcome.error is not None)
    return {node.name: found[node.name] for node in nodes if node.name in found}
