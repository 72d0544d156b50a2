"""Files to many nodes, from this machine or from a node that has them: the part that `cp` and `stage` share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clusterctl.cli.actions.sync import find_addresses
from clusterctl.cli.context.nodes import notice, with_any_python
from clusterctl.client.files.node_files import (
    NodeFiles,
    NodeListing,
    list_request,
    open_node_files,
    open_taking,
    protocol_error,
    relayed,
)
from clusterctl.client.rpc.cluster import Cluster, Outcome
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.sync.distribution import Distribution, TransferAddress, Via
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import SentFiles, TreeUpload, send_files
from clusterctl.console.progress import Phases
from clusterctl.plans.sync.listed_files import MAX_NAMES, FileSource, RelayPlan, plan_relay
from clusterctl.plans.sync.manifest import MAX_NAMED_FILES, Manifest
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.stage import STAGE_DIR
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.stored import StagedSource
    from clusterctl.protocol.messages.verbs import TakeRequest

Giving = tuple[NodeFiles, RelayPlan]  # an open conversation with a node, and what it gives


@dataclass(frozen=True)
class StagedFrom:
    """The source of what is staged, as the user wrote it, its revision, and who stages it."""

    source: str
    revision: str
    by: str


@dataclass(frozen=True)
class Target:
    """Where files go on each node: into a directory of that path if `folder` or without a name, else to a new name."""

    path: str
    name: str
    folder: bool
    overwrite: bool = False
    staged: StagedFrom | None = None

    def path_on(self, node: Node) -> str:
        """Return the path on a node."""
        rest = self.path.removeprefix(STAGE_DIR)
        return self.path if rest == self.path else f"{node.workdir}/stage{rest}"

    def describe_staged(self, manifest: Manifest) -> StagedSource | None:
        """Return what the nodes record of files that are staged."""
        if self.staged is None:
            return None
        staged = self.staged
        return {
            "source": staged.source,
            "revision": staged.revision,
            "tree": manifest.hash,
            "by": staged.by,
        }


@dataclass(frozen=True)
class Transfer:
    """How files travel: relative paths begin in the working directory of a run, if one is given.

    `addresses` are the training addresses of the nodes where they are known. `is_shared`: all nodes share directories.
    """

    cluster: Cluster
    phases: Phases
    run_id: str = ""
    is_shared: bool = False
    addresses: Mapping[str, TransferAddress] | None = None

    def list_files(
        self, c: Any, node: Node, selected: Sequence[FileSource], *, hashed: bool = False
    ) -> tuple[NodeFiles, NodeListing]:
        """Have a node list what is asked for; the conversation stays open."""
        request = list_request(node, selected, MAX_NAMED_FILES, run_id=self.run_id, hashed=hashed)
        most_name_bytes = 4 * MAX_NAMES if hashed else MAX_NAMES

        def list_files(python: Interpreter) -> tuple[NodeFiles, NodeListing]:
            return open_node_files(c, python, request, selected, most_name_bytes)

        return with_any_python(node, list_files)[0]

    def list_to_give(self, c: Any, node: Node, source: FileSource) -> Giving:
        """Have a node list with hashes what others get from it."""
        files, listing = self.list_files(c, node, [source], hashed=True)
        try:
            return files, plan_relay(listing.entries)
        except ValueError as error:
            files.close()
            raise protocol_error(node.name, str(error)) from error

    def send(self, files: ScanResult, nodes: Sequence[Node], target: Target) -> Iterator[Outcome[SentFiles]]:
        """Send nodes files of this machine, which they pass on to each other where that saves much sending."""
        size = files.manifest.size
        distribution = self.find_addresses("auto", nodes, size) if len(nodes) > 1 else None
        return self.send_on(files, nodes, target, distribution)

    def pass_on(
        self, source: Node, giving: Giving, manifest: Manifest, nodes: Sequence[Node], target: Target
    ) -> Iterator[Outcome[SentFiles]]:
        """Send nodes what one of them has, from it where they reach it, else through this machine."""
        files, relay = giving
        among = [source, *(node for node in nodes if node != source)]
        # on a Slurm cluster both are the login node
        distribution = None if self.is_shared else self.find_addresses("tree", among, manifest.size)
        offer = distribution.offer(source.name, manifest.size) if distribution else None
        port = files.provide(offer) if offer else None
        if distribution is not None and port is not None:
            distribution.add_source(source.name, port)
        else:
            distribution = None
        return self.send_on(relayed(files, relay, manifest), nodes, target, distribution)

    def find_addresses(self, via: Via, nodes: Sequence[Node], size: int) -> Distribution | None:
        """Return how nodes can pass files on to each other, if that may be worth it."""
        if self.addresses is None:
            return find_addresses(self.cluster, via, nodes, size)
        known = {node.name: self.addresses[node.name] for node in nodes if node.name in self.addresses}
        return Distribution(via, known, notice)

    def send_on(
        self,
        files: ScanResult,
        nodes: Sequence[Node],
        target: Target,
        distribution: Distribution | None,
        done_here: Mapping[str, Callable[[], SentFiles]] | None = None,
    ) -> Generator[Outcome[SentFiles], None, None]:
        """Send nodes files that some may have from each other; `done_here` is called for those that it names."""
        phases = self.phases
        upload = TreeUpload(files, None, distribution, phases.add_expected, phases.add_taken, report_holder)

        def send(c: Any, node: Node) -> SentFiles:
            if done_here and node.name in done_here:
                return done_here[node.name]()
            offer = distribution.offer(node.name, files.manifest.size) if distribution else None
            request: TakeRequest = {
                "workdir": node.workdir,
                "node": node.name,
                "run": self.run_id,
                "path": target.path_on(node),
                "name": target.name,
                "folder": target.folder,
                "overwrite": target.overwrite,
                "private": files.private,
                "provide": offer,
                "staged": target.describe_staged(files.manifest),
            }

            def send_to_node(python: Interpreter) -> SentFiles:
                session = open_taking(c, python, request, files.manifest)
                try:
                    count = partial(phases.add_bytes, node.name)
                    sent = send_files(session, upload, node=node.name, progress=count)
                except BaseException:
                    session.close()
                    raise
                if distribution is not None and offer is not None:
                    distribution.keep_open(session)
                else:
                    session.close()
                return sent

            return with_any_python(node, send_to_node)[0]

        try:
            yield from self.cluster.each(nodes, send, step=tr("copying"))
        finally:
            if distribution is not None:
                distribution.close()


def report_holder(node: str, holder: str) -> None:
    """Show who stages to the same place, while a node waits."""
    notice(tr("{node}: {holder} is staging to the same directory; waiting", node=node, holder=holder))
