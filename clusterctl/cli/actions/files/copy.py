"""Copy files between this machine and nodes, and between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_queued
from clusterctl.cli.actions.sync import find_addresses
from clusterctl.cli.context.load import expand
from clusterctl.cli.context.nodes import notice, open_cluster, report_failures, with_any_python
from clusterctl.client.results.copying import (
    CopyOrder,
    FilesToSend,
    GivingNode,
    open_copy,
    relayed,
    scan_files,
)
from clusterctl.client.results.disk_budget import DiskBudget
from clusterctl.client.results.file_receiver import PullReport, protocol_error
from clusterctl.client.results.pull import (
    choose_requests,
    fetch_files,
    list_results,
    make_folders_and_links,
)
from clusterctl.client.results.target_dir import (
    TargetDirectory,
    UsersDirectory,
    prepare_meta,
    remove_meta,
    write_refused,
)
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.sync.distribute import Distribution
from clusterctl.client.sync.upload import SentFiles, TreeUpload, send_files
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.results import (
    MOST_PATHS,
    copies_to_json,
    report_conflicts,
    report_pull,
    report_sent,
)
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.selection import choose_run
from clusterctl.plans.sync.copy import (
    CopyPath,
    parse_copy_path,
    parse_copy_paths,
    plan_gather,
    rename_entries,
)
from clusterctl.plans.sync.manifest import MOST_FILES, Manifest
from clusterctl.plans.sync.received_names import DownloadPlan, OutputEntry, check_names, plan_download
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.translation import tr

T = TypeVar("T")


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

    received: dict[str, tuple[PullReport, Path]] = field(default_factory=dict)
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
        """Give 0, 5 where something is missing, 4 or 1 where nothing was copied."""
        incomplete = any(report.refused or report.kept for report, _ in self.received.values())
        incomplete = (
            incomplete
            or self.left_out
            or bool(self.conflicts)
            or any(files.kept_count for files in self.sent.values())
        )
        if not self.errors:
            return 5 if incomplete else 0
        if self.received or self.sent:
            return 5
        return 4 if any(error.exit_code == 4 for error in self.errors) else 1


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
                for copy_path in copy_paths:
                    self._relay(cluster, copy_path, to, folder=several or to.is_folder)
        return self._show()

    def gather(self, texts: Sequence[str]) -> int:
        """Let every node have the files that any of them has below a directory."""
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

    def _with_session(self, c: Any, node: Node, order: CopyOrder, action: Callable[[Session], T]) -> T:
        """Open a conversation for an action, which leaves it open; it is closed if that fails."""
        order = replace(order, run_id=self._run_id, overwrite=self._options.overwrite)

        def run(python: Interpreter) -> T:
            session = open_copy(c, node, python, order)
            try:
                return action(session)
            except BaseException:
                session.close()
                raise

        return with_any_python(node, run)[0]

    def _download_all(self, cluster: Cluster, copy_paths: Sequence[CopyPath], to: CopyPath) -> None:
        by_node: dict[str, tuple[Node, list[CopyPath]]] = {}
        for copy_path in copy_paths:
            for node in self._nodes(copy_path):
                by_node.setdefault(node.name, (node, []))[1].append(copy_path)
        single = len(copy_paths) == 1 and len(by_node) == 1
        folder, new_name = choose_target(to.path, copy_paths[0].name, single=single)
        is_new = not folder.exists()
        ignores_case = _prepare(folder)
        budget = DiskBudget(folder)
        nodes = [node for node, _ in by_node.values()]
        is_home = folder.resolve() == Path.home().resolve()

        def fetch(c: Any, node: Node) -> tuple[PullReport, Path]:
            sources = by_node[node.name][1]
            session, entries = self._list_files(c, node, sources)
            if new_name:
                entries = list(rename_entries(entries, sources[0].name, new_name))
            plan = plan_download(entries, ignores_case=ignores_case)
            key = f"cp-{node.name}"
            requested = {new_name or source.name for source in sources}
            users = UsersDirectory(requested, is_new, is_home)
            with session:
                directory = (
                    TargetDirectory(folder, "", key, users)
                    if len(nodes) == 1
                    else TargetDirectory(folder, node.name, key)
                )
                try:
                    report = self._download(session, node.name, plan, directory, budget)
                finally:
                    directory.close()
            return report, directory.path / new_name

        try:
            self._on_all(cluster, nodes, fetch, "pull", self._results.received.__setitem__)
        except BaseException:
            budget.close()
            raise
        finally:
            remove_meta(folder, [f"cp-{node.name}" for node in nodes])

    def _list_files(
        self, c: Any, node: Node, sources: Sequence[CopyPath]
    ) -> tuple[Session, Sequence[OutputEntry]]:
        """Let a node list what is asked for; what has another name is refused."""
        order = CopyOrder("send", [(copy_path.path, copy_path.name) for copy_path in sources])

        def list_files(session: Session) -> tuple[Session, Sequence[OutputEntry]]:
            entries = list_results(session, MOST_FILES, None, node.name).entries
            try:
                check_names((entry.path for entry in entries), [copy_path.name for copy_path in sources])
            except ValueError as error:
                raise protocol_error(node.name, str(error)) from error
            return session, entries

        return self._with_session(c, node, order, list_files)

    def _download(
        self, session: Session, node: str, plan: DownloadPlan, directory: TargetDirectory, budget: DiskBudget
    ) -> PullReport:
        report = PullReport()
        requests = list(choose_requests(plan, directory, report, overwrite=self._options.overwrite))
        size = sum(request.entry.size - request.offset for request in requests)
        self._phases.add_expected(size)

        def on_wait() -> None:
            self._phases.set_step(node, tr("waiting for disk space on this machine"))

        with budget.writing(), budget.expecting(size, on_wait) as expect:

            def on_bytes(count: int) -> None:
                expect(count)
                self._phases.add_bytes(node, count)

            fetch_files(session, requests, directory, report, node=node, on_bytes=on_bytes)
            make_folders_and_links(plan, directory, report)
            directory.remove_partials()
        return report

    def _upload(self, cluster: Cluster, copy_path: CopyPath, to: CopyPath, *, folder: bool) -> None:
        files = scan_files(copy_path.path, copy_path.name)
        for warning in files.scan.warnings:
            notice(warning)
        self._results.left_out = self._results.left_out or bool(files.scan.warnings)
        nodes = self._nodes(to)
        size = files.scan.manifest.size
        distribution = find_addresses(cluster, "auto", nodes, size) if len(nodes) > 1 else None
        self._send(cluster, files, nodes, (to.path, copy_path.name, folder), distribution)

    def _relay(self, cluster: Cluster, copy_path: CopyPath, to: CopyPath, *, folder: bool) -> None:
        """Copy what nodes have to others; of several each goes to a directory of its name."""
        sources, targets = self._nodes(copy_path), self._nodes(to)
        for source in sources:
            path = to.path if len(sources) == 1 else to.below(source.name)
            others = [node for node in targets if node != source or path != copy_path.path]
            into = (path, copy_path.name, folder or len(sources) > 1)
            try:
                self._relay_from(cluster, source, copy_path, others, into)
            except ClusterctlError as error:
                if len(sources) == 1:
                    raise
                self._results.errors.append(error)  # what the others have is copied all the same

    def _relay_from(
        self,
        cluster: Cluster,
        source: Node,
        copy_path: CopyPath,
        targets: Sequence[Node],
        into: tuple[str, str, bool],
    ) -> None:
        order = CopyOrder("give", [(copy_path.path, copy_path.name)])

        def start_giving(session: Session) -> GivingNode:
            return GivingNode(session, source.name, [copy_path.name])

        giving = self._with_session(cluster.connection(source), source, order, start_giving)
        with giving.session:
            self._report_left_out(giving.node, giving.tree.left_out)
            self._pass_on(cluster, (source, giving), giving.manifest, targets, into)

    def _gather(self, cluster: Cluster, copy_path: CopyPath) -> None:
        """Let all nodes list what they have, then give each what it lacks, from the first that has it."""
        nodes = self._nodes(copy_path)
        if len(nodes) < 2:
            raise UsageError("CC-COPY-001", "gather", name=nodes[0].name)
        giving: dict[str, GivingNode] = {}
        missing: list[ClusterctlError] = []
        order = CopyOrder("give", [(copy_path.path, "")])

        def start_giving(c: Any, node: Node) -> GivingNode:
            return self._with_session(c, node, order, lambda session: GivingNode(session, node.name, [""]))

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
            for one in giving.values():
                self._report_left_out(one.node, one.tree.left_out)
            manifests = {
                node.name: giving[node.name].manifest if node.name in giving else Manifest(())
                for node in nodes
            }
            plan = plan_gather(manifests)
            self._results.conflicts += plan.conflicts
            for name, paths in plan.left_out.items():
                self._report_left_out(name, paths)
            for name, receivers, manifest in plan.parts:
                source = next(node for node in nodes if node.name == name)
                targets = [node for node in nodes if node.name in receivers]
                into = (copy_path.path, "", True)
                self._pass_on(cluster, (source, giving[name]), manifest, targets, into)
            self._results.gathered = not plan.parts and not self._results.left_out
        finally:
            for one in giving.values():
                one.session.close()

    def _report_left_out(self, node: str, paths: Sequence[str]) -> None:
        for path in paths[:MOST_PATHS]:
            notice(tr("{node}: NOT copied: {file}", node=node, file=path))
        if len(paths) > MOST_PATHS:
            notice(tr("{node}: {n} more", node=node, n=len(paths) - MOST_PATHS))
        self._results.left_out = self._results.left_out or bool(paths)

    def _pass_on(
        self,
        cluster: Cluster,
        origin: tuple[Node, GivingNode],
        manifest: Manifest,
        targets: Sequence[Node],
        into: tuple[str, str, bool],
    ) -> None:
        """Let nodes take what one gives, from it where they reach it, else from here."""
        source, giving = origin
        nodes = [source, *(node for node in targets if node != source)]
        on_slurm = self._inventory.slurm is not None  # then both are the login node
        distribution = None if on_slurm else find_addresses(cluster, "tree", nodes, manifest.size)
        offer = distribution.offer(source.name, manifest.size) if distribution else None
        port = giving.provide(offer) if offer else None
        if distribution is None or port is None:
            self._send(cluster, relayed(giving, manifest), targets, into, None)
            return
        distribution.add_provider(source.name, port)
        self._send(cluster, relayed(giving, manifest), targets, into, distribution)

    def _send(
        self,
        cluster: Cluster,
        files: FilesToSend,
        nodes: Sequence[Node],
        into: tuple[str, str, bool],
        distribution: Distribution | None,
    ) -> None:
        path, name, folder = into
        upload = TreeUpload(  # the phases begin later
            files.scan,
            None,
            distribution,
            self._add_expected,
            self._add_taken,
        )

        def send(c: Any, node: Node) -> SentFiles:
            offer = distribution.offer(node.name, files.scan.manifest.size) if distribution else None
            order = CopyOrder("take", [(path, name)], folder=folder, private=files.private, provide=offer)

            def send_to_node(session: Session) -> SentFiles:
                count = partial(self._phases.add_bytes, node.name)
                sent = send_files(session, upload, node=node.name, progress=count)
                if distribution is not None and offer is not None:
                    distribution.keep_open(session)
                else:
                    session.close()
                return sent

            return self._with_session(c, node, order, send_to_node)

        try:
            self._on_all(cluster, nodes, send, "copy", partial(self._results.add_sent, path))
        finally:
            if distribution is not None:
                distribution.close()

    def _on_all(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        work: Callable[[Any, Node], Any],
        phase: str,
        on_value: Callable[[str, Any], None],
    ) -> None:
        self._phases = Phases([node.name for node in nodes])
        cluster.open_early(nodes)  # questions come before the live progress
        self._phases.set_steps(cluster.steps)
        self._phases.start(phase)
        try:
            for outcome in cluster.each(nodes, work, step=tr("copying")):
                if outcome.error is not None:
                    self._results.errors.append(outcome.error)
                    self._phases.mark_failed(outcome.node.name)
                else:
                    on_value(outcome.node.name, outcome.value)
                    self._phases.mark_done(phase, outcome.node.name)
        finally:
            self._phases.stop()

    def _add_expected(self, size: int) -> None:
        self._phases.add_expected(size)

    def _add_taken(self, size: int) -> None:
        self._phases.add_taken(size)

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


def _prepare(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return prepare_meta(folder)
    except OSError as error:
        raise write_refused(error, folder) from error
