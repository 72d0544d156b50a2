"""Copy files between this machine and nodes, and between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.cli.actions.files.transfer import Target, Transfer
from clusterctl.cli.actions.sync import transfer_exit_code
from clusterctl.cli.context.load import expand
from clusterctl.cli.context.nodes import interpreter, notice, open_cluster, report_failures
from clusterctl.client.files.receiver import (
    DownloadReport,
    Downloads,
)
from clusterctl.client.files.target_dir import (
    UsersDirectory,
    remove_meta,
)
from clusterctl.client.rpc.cluster import Cluster, Outcome
from clusterctl.client.rpc.tasks import start_ahead
from clusterctl.client.sync.scan import scan_files
from clusterctl.client.sync.upload import SentFiles
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.results import (
    MAX_PATHS,
    copies_to_json,
    report_conflicts,
    report_pull,
    report_sent,
)
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.sync.listed_files import (
    CopyPath,
    FileSource,
    parse_copy_path,
    parse_copy_paths,
    plan_gather,
)
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.cli.actions.files.transfer import Giving


@dataclass(frozen=True)
class CopyOptions:
    """What was asked for; relative paths on nodes begin in the working directory of `run`, if one is given.

    `command` is how commands begin that use the same inventory.
    """

    run: str | None = None
    overwrite: bool = False
    as_json: bool = False
    command: str = "clusterctl"


@dataclass
class Results:
    """What has arrived, by node: here, or there; and what went wrong."""

    received: dict[str, tuple[DownloadReport, Path]] = field(default_factory=dict)
    sent: dict[tuple[str, str], SentFiles] = field(default_factory=dict)  # by node and path there
    errors: list[ClusterctlError] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)  # paths with other content on another node
    gathered: bool = False  # every node had everything already
    left_out: bool = False  # something that was named cannot be copied

    def add_sent(self, path: str, node: str, files: SentFiles) -> None:
        """Count what a node has taken into a path."""
        earlier = self.sent.get((node, path))
        self.sent[node, path] = files if earlier is None else earlier + files

    @property
    def exit_code(self) -> int:
        """Return the exit code of all."""
        incomplete = any(report.refused or report.kept for report, _ in self.received.values())
        incomplete = incomplete or any(files.kept_count for files in self.sent.values())
        incomplete = incomplete or self.left_out or bool(self.conflicts)
        return transfer_exit_code(self.errors, done=bool(self.received or self.sent), incomplete=incomplete)


class Copy:
    """One call of `cp`."""

    def __init__(self, inventory: Inventory, options: CopyOptions) -> None:
        self._inventory, self._options = inventory, options
        self._results = Results()
        self._run_id = ""
        self._phases = Phases([])

    def copy(self, sources: Sequence[str], target: str) -> int:
        """Copy all sources; gives the exit code."""
        copy_paths, to = parse_copy_paths(sources, target)
        with self._connected() as cluster:
            several = len(copy_paths) > 1
            if copy_paths[0].pattern is None:
                for copy_path in copy_paths:
                    self._upload(cluster, copy_path, to, folder=several or to.is_folder)
            elif to.pattern is None:
                self._download_all(cluster, copy_paths, to)
            else:
                # they start Python while a source hashes its files
                cluster.open_early(
                    self._nodes(to), then=lambda c, node: start_ahead(c, node, interpreter(node), 1)
                )
                for copy_path in copy_paths:
                    self._relay(cluster, copy_path, to, folder=several or to.is_folder)
        return self._show()

    def gather(self, texts: Sequence[str]) -> int:
        """Copy to every node the files that any of them has below a directory."""
        copy_paths = [parse_copy_path(text) for text in texts]
        if any(copy_path.pattern is None for copy_path in copy_paths):
            raise UsageError("CC-COPY-001", "gather-here")
        with self._connected() as cluster:
            for copy_path in copy_paths:
                self._gather(cluster, copy_path)
        return self._show()

    @contextmanager
    def _connected(self) -> Iterator[Cluster]:
        """Open the connections, and find the run if one was named: only its nodes take part then."""
        with open_cluster() as cluster:
            if self._options.run is not None:
                # half as much as all else that is imported here
                from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_queued
                from clusterctl.plans.runs.selection import choose_run

                found = find_runs(cluster, self._inventory.nodes, self._options.run, only_one=True)
                report_failures(found.errors)
                run_id = choose_found_run(choose_run, found.runs, self._options.run, "--run")
                refuse_queued(run_id, found.runs[run_id], "cp", self._options.command)
                self._run_id = run_id
                self._inventory = replace(self._inventory, nodes=tuple(found.nodes_of(run_id)))
            try:
                yield cluster
            finally:
                self._phases.stop()

    def _nodes(self, copy_path: CopyPath) -> tuple[Node, ...]:
        nodes = choose_nodes(self._inventory, copy_path.pattern, None)
        # those of a Slurm cluster share the directories, which are read and written on the login node
        return nodes if self._inventory.slurm is None else nodes[:1]

    def _transfer(self, cluster: Cluster) -> Transfer:
        is_shared = self._inventory.slurm is not None
        return Transfer(cluster, self._phases, self._run_id, is_shared=is_shared)

    def _download_all(self, cluster: Cluster, copy_paths: Sequence[CopyPath], to: CopyPath) -> None:
        by_node: dict[str, tuple[Node, list[CopyPath]]] = {}
        for copy_path in copy_paths:
            for node in self._nodes(copy_path):
                by_node.setdefault(node.name, (node, []))[1].append(copy_path)
        single = len(copy_paths) == 1 and len(by_node) == 1
        folder, new_name = choose_target(to.path, copy_paths[0].name, single=single)
        is_new = not folder.exists()
        nodes = [node for node, _ in by_node.values()]
        self._phases = Phases([node.name for node in nodes])
        transfer = self._transfer(cluster)
        downloads = Downloads(folder, self._phases, overwrite=self._options.overwrite, hidden=False)
        is_home = folder.resolve() == Path.home().resolve()

        def fetch(c: Any, node: Node) -> tuple[DownloadReport, Path]:
            selected = [source_of(source, new_name or source.name) for source in by_node[node.name][1]]
            files, listing = transfer.list_files(c, node, selected)
            report, inner, users = DownloadReport(), node.name, None
            if len(nodes) == 1:  # into a directory that may hold other files of the user
                inner, users = "", UsersDirectory({one.name for one in selected}, is_new, is_home)
            with files, downloads.opened(inner, f"cp-{node.name}", users) as directory:
                downloads.fetch(files, listing.entries, directory, report)
            return report, directory.path / new_name

        try:
            outcomes = partial(cluster.each, nodes, fetch, step=tr("copying"))
            self._on_all(cluster, nodes, outcomes, "pull", self._results.received.__setitem__)
        except BaseException:
            downloads.close()
            raise
        finally:
            remove_meta(folder, [f"cp-{node.name}" for node in nodes])

    def _upload(self, cluster: Cluster, copy_path: CopyPath, to: CopyPath, *, folder: bool) -> None:
        files = scan_files(copy_path.path, copy_path.name)
        for warning in files.warnings:
            notice(warning)
        self._results.left_out = self._results.left_out or bool(files.warnings)
        nodes, target = self._nodes(to), self._target(to.path, copy_path.name, folder=folder)
        self._send(cluster, nodes, target, lambda transfer: transfer.send(files, nodes, target))

    def _target(self, path: str, name: str, *, folder: bool) -> Target:
        return Target(path, name, folder, self._options.overwrite)

    def _relay(self, cluster: Cluster, copy_path: CopyPath, to: CopyPath, *, folder: bool) -> None:
        """Copy what nodes have to others; of several each goes to a directory of its name."""
        sources, targets = self._nodes(copy_path), self._nodes(to)
        for source in sources:
            path = to.path if len(sources) == 1 else to.below(source.name)
            others = [node for node in targets if node != source or path != copy_path.path]
            target = self._target(path, copy_path.name, folder=folder or len(sources) > 1)
            try:
                self._relay_from(cluster, source, copy_path, others, target)
            except ClusterctlError as error:
                if len(sources) == 1:
                    raise
                self._results.errors.append(error)  # what the others have is copied all the same

    def _relay_from(
        self, cluster: Cluster, source: Node, copy_path: CopyPath, nodes: Sequence[Node], target: Target
    ) -> None:
        selected = source_of(copy_path, copy_path.name)
        giving = self._transfer(cluster).list_to_give(cluster.connection(source), source, selected)
        with giving[0]:
            self._report_left_out(source.name, giving[1].left_out)
            self._pass_on(cluster, source, giving, giving[1].manifest, nodes, target)

    def _gather(self, cluster: Cluster, copy_path: CopyPath) -> None:
        """List what all nodes have, then send each what it lacks, from the first that has it."""
        nodes = self._nodes(copy_path)
        if len(nodes) < 2:
            raise UsageError("CC-COPY-001", "gather", name=nodes[0].name)
        giving: dict[str, Giving] = {}
        transfer, selected = self._transfer(cluster), source_of(copy_path, "")
        missing: list[ClusterctlError] = []

        def start_giving(c: Any, node: Node) -> Giving:
            return transfer.list_to_give(c, node, selected)

        try:
            for outcome in cluster.each(nodes, start_giving, step=tr("reading its files")):
                if outcome.value is not None:
                    giving[outcome.node.name] = outcome.value
                elif outcome.error is not None and outcome.error.code == "CC-COPY-002":
                    missing.append(outcome.error)  # it has nothing there yet
                elif outcome.error is not None:
                    raise outcome.error
            if not giving:
                raise missing[0]
            for name, (_, relay) in giving.items():
                self._report_left_out(name, relay.left_out)
            manifests = {
                node.name: giving[node.name][1].manifest if node.name in giving else Manifest(())
                for node in nodes
            }
            plan = plan_gather(manifests)
            self._results.conflicts += plan.conflicts
            for name, paths in plan.left_out.items():
                self._report_left_out(name, paths)
            for name, receivers, manifest in plan.parts:
                source = next(node for node in nodes if node.name == name)
                targets = [node for node in nodes if node.name in receivers]
                target = self._target(copy_path.path, "", folder=True)
                self._pass_on(cluster, source, giving[name], manifest, targets, target)
            self._results.gathered = not plan.parts and not self._results.left_out
        finally:
            for files, _ in giving.values():
                files.close()

    def _report_left_out(self, node: str, paths: Sequence[str]) -> None:
        for path in paths[:MAX_PATHS]:
            notice(tr("{node}: NOT copied: {file}", node=node, file=path))
        if len(paths) > MAX_PATHS:
            notice(tr("{node}: {n} more", node=node, n=len(paths) - MAX_PATHS))
        self._results.left_out = self._results.left_out or bool(paths)

    def _pass_on(
        self,
        cluster: Cluster,
        source: Node,
        giving: Giving,
        manifest: Manifest,
        nodes: Sequence[Node],
        target: Target,
    ) -> None:
        """Send nodes what one of them has."""
        self._send(
            cluster, nodes, target, lambda transfer: transfer.pass_on(source, giving, manifest, nodes, target)
        )

    def _send(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        target: Target,
        send: Callable[[Transfer], Iterator[Outcome[SentFiles]]],
    ) -> None:
        self._phases = Phases([node.name for node in nodes])
        outcomes = partial(send, self._transfer(cluster))
        self._on_all(cluster, nodes, outcomes, "copy", partial(self._results.add_sent, target.path))

    def _on_all(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        outcomes: Callable[[], Iterator[Outcome[Any]]],
        phase: str,
        on_value: Callable[[str, Any], None],
    ) -> None:
        cluster.open_early(nodes)  # questions come before the live progress
        self._phases.set_steps(cluster.steps)
        self._phases.start(phase)
        try:
            for outcome in self._phases.follow(phase, outcomes()):
                if outcome.error is not None:
                    self._results.errors.append(outcome.error)
                else:
                    on_value(outcome.node.name, outcome.value)
        finally:
            self._phases.stop()

    def _show(self) -> int:
        results = self._results
        if self._options.as_json:
            document = copies_to_json(results.received, results.sent, results.errors, results.conflicts)
            write_document(document)
        else:
            for name, (report, path) in sorted(results.received.items()):
                report_pull(name, report, path, complete=True)
            report_sent(results.sent)
            report_conflicts(results.conflicts, gathered=results.gathered)
        report_failures(results.errors)
        return results.exit_code


def choose_target(path: str, name: str, *, single: bool) -> tuple[Path, str]:
    """Return the directory here that copies go into, and the new name of a single one that gets one."""
    target = expand(path or ".")
    if target.is_dir():
        return target, ""
    if target.exists():
        if not single or path.endswith("/") or not name:
            raise UsageError("CC-COPY-003", "here", path=path)
        return target.parent, target.name
    if not single or path.endswith("/") or not name:
        return target, ""
    if not target.parent.is_dir():
        raise UsageError("CC-COPY-003", "parent", path=target.parent)
    return target.parent, target.name


def source_of(copy_path: CopyPath, name: str) -> FileSource:
    """Return what a node is to list for a path; without a name of its own that is what is in the directory."""
    return FileSource("path" if name else "inside", copy_path.path, name, modes=True)
