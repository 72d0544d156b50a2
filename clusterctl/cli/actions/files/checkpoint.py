"""Download one checkpoint whole: its files are on several nodes, in place or as copies that nodes keep for others."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterctl.cli.actions.sync import transfer_exit_code
from clusterctl.cli.context.nodes import report_failures, with_any_python
from clusterctl.client.files.node_files import (
    NodeFiles,
    NodeListing,
    list_request,
    open_node_files,
    protocol_error,
)
from clusterctl.client.files.receiver import DownloadReport, Downloads
from clusterctl.client.rpc.cluster import Cluster, Steps, collect, fan_out
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.results import pull_to_json, report_pull
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError, LocalSystemError, NodeError, UsageError
from clusterctl.plans.runs.checkpoints import Checkpoint
from clusterctl.plans.sync.checkpoint_files import CheckpointFiles, assign_files, merge_parts
from clusterctl.plans.sync.listed_files import (
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_NAMES,
    FileSource,
    ListedEntry,
    RefusedEntry,
)
from clusterctl.protocol.run_id import RunId, job_name_of
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

NEWEST = ""  # of the names that may be asked for
KIND = "checkpoint"
NO_LIMIT = 1 << 62
MAX_DISPUTING = 8  # nodes that are named
MAX_FAULTS = 8  # files of a node that are named


def choose_checkpoint(known: tuple[Checkpoint, ...], run_id: RunId, name: str, command: str) -> Checkpoint:
    """Choose the newest that is safe, else the newest that is complete; UsageError if there is none of that name."""
    named = [one for one in known if name in (NEWEST, one.name) and one.state in ("copying", "safe", "lost")]
    if not named and name != NEWEST:
        names = ", ".join(one.name for one in known[-8:])
        raise UsageError("CC-PULL-009", "unknown", name=name, run=run_id, names=names or "-")
    usable = [one for one in named if one.state != "lost"]
    if not usable:
        status = command_line("status", run_id, command=command)
        raise UsageError("CC-PULL-009", "lost" if named else "none", run=run_id, command=status)
    safe = [one for one in usable if one.state == "safe"]
    return (safe or usable)[-1]


@dataclass(frozen=True)
class CheckpointOptions:
    """How it is downloaded; `folder` is the directory here."""

    folder: Path
    overwrite: bool
    no_limit: bool
    as_json: bool


@dataclass
class Holder:
    """A node that has some of it."""

    node: Node
    files: NodeFiles
    listing: NodeListing
    report: DownloadReport = field(default_factory=DownloadReport)


class CheckpointPull:
    """One download of a checkpoint."""

    def __init__(
        self,
        run_id: RunId,
        checkpoint: Checkpoint,
        options: CheckpointOptions,
        errors: Mapping[str, ClusterctlError],
    ) -> None:
        """`errors` are of nodes that are away; others may have copies of their files."""
        self._run_id, self._checkpoint, self._options = run_id, checkpoint, options
        self._holders: dict[str, Holder] = {}
        self._errors = dict(errors)
        self._done: set[str] = set()  # paths that are here, or that nothing can be written to
        self._refused: set[tuple[str, str]] = set()  # node and path: what it did not send as it had listed it
        self._phases = Phases([])

    def run(self, cluster: Cluster, nodes: list[Node]) -> int:
        """Go through the steps; gives the exit code."""
        info(tr("checkpoint {name} of attempt {n}", name=self._checkpoint.name, n=self._checkpoint.attempt))
        try:
            for outcome in cluster.each(nodes, self._open):
                if outcome.value is not None:  # noted at once: all that were opened are closed in the end
                    self._holders[outcome.node.name] = outcome.value
                elif outcome.error is not None:
                    self._errors[outcome.node.name] = outcome.error
            files = self._merge()
            self._fetch_all(files)
        finally:
            for holder in self._holders.values():
                holder.files.close()
        return self._show([node.name for node in nodes], files)

    def _open(self, c: Any, node: Node) -> Holder:
        most, most_name_bytes = (NO_LIMIT, NO_LIMIT) if self._options.no_limit else (MAX_ENTRIES, MAX_NAMES)
        sources = [FileSource(KIND, posixpath.join(str(self._checkpoint.attempt), self._checkpoint.name), "")]
        request = list_request(node, sources, most, run_id=self._run_id, hashed=True)
        return with_any_python(
            node, lambda python: Holder(node, *open_node_files(c, python, request, sources, most_name_bytes))
        )[0]

    def _merge(self) -> CheckpointFiles:
        """Put together what the nodes have; raises if that is not the whole checkpoint.

        A node that lists what no part can hold, or more than all parts have, is left out: others have copies.
        """
        wanted = self._checkpoint
        listings: dict[str, tuple[ListedEntry, ...]] = {}
        for name, holder in self._holders.items():
            try:
                own = merge_parts(wanted.name, {name: holder.listing.entries})
                if not wanted.shared and (own.files > wanted.files or own.bytes > wanted.bytes):
                    raise ValueError(f"{own.files} files, {own.bytes} bytes; {wanted.name} has less")
            except ValueError as error:
                self._errors[name] = protocol_error(name, str(error))
            else:
                listings[name] = holder.listing.entries
        files = merge_parts(wanted.name, listings)
        if files.differing:
            report_failures(self._errors.values())
            nodes = ", ".join(sorted(files.disputing)[:MAX_DISPUTING])
            raise UsageError("CC-PULL-009", "differs", name=wanted.name, path=files.differing, nodes=nodes)
        is_whole = (files.files, files.bytes) == (wanted.files, wanted.bytes)
        if not (files.files if wanted.shared else is_whole):  # those that all nodes see are not counted
            report_failures(self._errors.values())
            found, count = str(files.files), str(wanted.files)
            raise UsageError("CC-PULL-009", "not-whole", name=wanted.name, found=found, files=count)
        return files

    def _fetch_all(self, files: CheckpointFiles) -> None:
        """Fetch from all nodes at once; what one of them could not send comes from another that has it."""
        self._phases = Phases(list(self._holders))
        downloads = Downloads(self._options.folder, self._phases, overwrite=self._options.overwrite)
        with downloading(self._phases, downloads):
            while chosen := assign_files(files, self._done, self._errors, self._refused):
                nodes = [self._holders[name].node for name in chosen]
                outcomes = fan_out(nodes, lambda node, now=chosen: self._fetch(now, node.name, downloads))  # type: ignore[misc]  # now is bound
                self._errors.update(collect(nodes, self._phases.follow("pull", outcomes)).errors)
                for name in chosen:
                    refused = {one.path for one in self._holders[name].report.refused if one.by_node}
                    self._refused.update((name, path) for path in refused)
                    sent = () if name in self._errors else chosen[name]
                    self._done.update(entry.path for entry in sent if entry.path not in refused)
                if any(isinstance(error, LocalSystemError) for error in self._errors.values()):
                    return

    def _fetch(self, chosen: Mapping[str, list[ListedEntry]], name: str, downloads: Downloads) -> None:
        """Fetch what one node sends."""
        holder, most = self._holders[name], None if self._options.no_limit else MAX_BYTES
        with downloads.opened("", key=f"checkpoint-{name}") as directory:
            try:
                downloads.fetch(holder.files, chosen[name], directory, holder.report, most)
            except LocalSystemError as refusal:
                downloads.close(refusal)
                raise

    def _show(self, names: list[str], files: CheckpointFiles) -> int:
        reports = {name: self._holders[name].report for name in names if name in self._holders}
        missing = len(files.holders) - len(self._done)
        for name, report in reports.items():
            if name not in self._errors and (faults := [one for one in report.refused if one.by_node]):
                self._errors[name] = _describe_faults(name, faults)
            report.refused = [one for one in report.refused if not (one.by_node and one.path in self._done)]
        if self._options.as_json:
            job, folder = job_name_of(self._run_id), self._options.folder
            document = pull_to_json(self._run_id, job, folder, reports, self._errors, names, {})
            write_document({**document, "checkpoint": self._checkpoint.name})
        else:
            for name, report in reports.items():
                if not report.is_empty:
                    report_pull(name, report, self._options.folder, complete=name not in self._errors)
        refusals = [error for error in self._errors.values() if isinstance(error, LocalSystemError)]
        for refusal in refusals:
            refusal.node = ""  # it is this machine's, and shown once
        report_failures(self._errors.values())
        incomplete = missing > 0 or any(report.refused or report.kept for report in reports.values())
        if refusals or incomplete:
            return (
                1
                if refusals
                else transfer_exit_code(self._errors.values(), done=bool(self._done), incomplete=True)
            )
        return 0


def _describe_faults(node: str, faults: Sequence[RefusedEntry]) -> NodeError:
    """Name the node, and its first files that other nodes were asked for."""
    lines = [tr("{subject}: {text}", subject=repr(one.path), text=one.reason) for one in faults[:MAX_FAULTS]]
    more = [tr("{n} more", n=len(faults) - MAX_FAULTS)] if len(faults) > MAX_FAULTS else []
    return NodeError("CC-PULL-003", "files", node=node, evidence="\n".join([*lines, *more]))


@contextmanager
def downloading(phases: Phases, downloads: Downloads) -> Iterator[None]:
    """Show how far a download is; one that is interrupted is closed, and continued by the next pull."""
    phases.set_steps(Steps())
    phases.start("pull")
    try:
        yield
    except BaseException:
        downloads.close()
        phases.stop()
        info("\n" + tr("downloaded files are kept; the next pull resumes"))
        raise
    finally:
        phases.stop()
