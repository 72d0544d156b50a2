"""Download results: list what all nodes have, then fetch what is missing here, from all at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clusterctl.cli.actions.files.checkpoint import (
    NEWEST,
    CheckpointOptions,
    CheckpointPull,
    choose_checkpoint,
    downloading,
)
from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_queued
from clusterctl.cli.actions.sync import transfer_exit_code
from clusterctl.cli.context.load import expand
from clusterctl.cli.context.nodes import notice, open_cluster, report_failures, with_any_python
from clusterctl.client.files.node_files import NodeFiles, NodeListing, list_request, open_node_files
from clusterctl.client.files.receiver import DownloadReport, Downloads
from clusterctl.client.files.target_dir import (
    choose_fetching_node,
    group_by_workdir,
    name_shared_homes,
)
from clusterctl.client.rpc.cluster import Cluster, collect, fan_out
from clusterctl.client.rpc.session import Interpreter
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.results import pull_to_json, report_outside, report_pull
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError, LocalSystemError, UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.checkpoints import Checkpoint
from clusterctl.plans.runs.selection import Runs, choose_run
from clusterctl.plans.runs.state import find_checkpoints
from clusterctl.plans.sync.listed_files import (
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_NAMES,
    FileSource,
    ListedEntry,
    with_outside_files,
)
from clusterctl.protocol.run_id import RunId, job_name_of, parse_job_name
from clusterctl.protocol.run_paths import is_meant
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

NO_LIMIT = 1 << 62
OUTPUTS = 0  # the source among those that are wanted of a node


@dataclass(frozen=True)
class PullOptions:
    """What is to be downloaded, where to, and how."""

    run_prefix: str | None
    job: str | None
    folder: str | None
    logs: bool
    everything: bool
    overwrite: bool
    no_limit: bool
    as_json: bool
    checkpoint: str | None = None  # only this checkpoint of the run; empty is the newest
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given


@dataclass
class NodePull:
    """One node's part: the open conversation, what it has, and the name here of its outputs if it sends them."""

    node: Node
    files: NodeFiles
    listing: NodeListing
    output_name: str | None = None
    report: DownloadReport = field(default_factory=DownloadReport)
    finished: set[str] = field(default_factory=set)  # sources here that are done

    def entries(self, folder_name: str) -> list[ListedEntry]:
        """Choose what goes to `DIR/<source>/`: the outputs to their home, the rest to the node's own name."""
        belongs = {True: folder_name == self.output_name, False: folder_name == self.node.name}
        return [entry for entry in self.listing.entries if belongs[entry.source == OUTPUTS]]


class Pull:
    """One pull: holds what the steps share."""

    def __init__(self, inventory: Inventory, options: PullOptions) -> None:
        self._inventory, self._options = inventory, options
        self._errors: dict[str, ClusterctlError] = {}
        self._pulls: dict[str, NodePull] = {}
        self._groups: list[list[str]] = []
        self._marks: dict[str, str] = {}
        self._phases = Phases([])
        self._run_id: RunId | None = None
        self._checkpoints: tuple[Checkpoint, ...] = ()
        self._job = options.job or ""

    def run(self, pattern: str | None, exclude: str | None) -> int:
        """Go through the steps; gives the exit code."""
        on_slurm = self._inventory.slurm is not None
        nodes = self._inventory.nodes if on_slurm else choose_nodes(self._inventory, pattern, exclude)
        with open_cluster() as cluster:
            if self._options.job is None:
                nodes = self._choose_nodes(cluster, nodes)
                if on_slurm:
                    nodes = choose_nodes(replace(self._inventory, nodes=nodes), pattern, exclude)
            elif not parse_job_name(self._job):
                raise UsageError("CC-PULL-005", job=self._job)
            if not nodes:
                return 4
            target = self._target()
            if self._options.checkpoint is not None:
                return self._pull_checkpoint(cluster, nodes, target)
            try:
                self._list_results(cluster, nodes)
                self._check_job()
                self._phases = Phases(list(self._pulls))
                downloads = Downloads(target, self._phases, overwrite=self._options.overwrite)
                self._name_outputs(nodes, target)
                self._fetch_all(downloads)
            finally:
                for pull in self._pulls.values():
                    pull.files.close()
        return self._show_report(nodes, target)

    def _choose_nodes(self, cluster: Cluster, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Find the run, and the nodes that had a part in it."""
        found_runs = find_runs(cluster, nodes, self._options.run_prefix)
        if not found_runs.answered:
            report_failures(found_runs.errors)
            return ()
        self._run_id = self._choose_run(found_runs.runs)
        self._job = job_name_of(self._run_id)
        info(tr("run {run}", run=self._run_id))
        parts = found_runs.runs[self._run_id]
        self._errors = {error.node: error for error in found_runs.errors if error.node in parts}
        self._checkpoints = find_checkpoints(parts)
        refuse_queued(self._run_id, parts, "pull", self._options.command)
        return tuple(found_runs.nodes_of(self._run_id))

    def _pull_checkpoint(self, cluster: Cluster, nodes: Sequence[Node], target: Path) -> int:
        options, run_id = self._options, self._run_id or RunId("")
        chosen = choose_checkpoint(self._checkpoints, run_id, options.checkpoint or NEWEST, options.command)
        folder = target if options.folder else target / "checkpoints"
        how = CheckpointOptions(folder, options.overwrite, options.no_limit, options.as_json)
        answering = [node for node in nodes if node.name not in self._errors]
        return CheckpointPull(run_id, chosen, how, self._errors).run(cluster, answering)

    def _choose_run(self, runs: Runs) -> RunId:
        """Find the run; a name without a slash that is none may have been meant as the directory."""
        run_prefix = self._options.run_prefix
        try:
            return choose_found_run(choose_run, runs, run_prefix)
        except UsageError as error:
            if (
                run_prefix
                and not self._options.folder
                and not any(is_meant(run_id, run_prefix) for run_id in runs)
            ):
                pull = command_line("clusterctl", "pull", f"./{run_prefix}")
                raise UsageError(
                    "CC-USE-023", "folder", prefix=run_prefix, way_out=error.fix, command=pull
                ) from error
            raise

    def _target(self) -> Path:
        folder = self._options.folder
        return expand(folder) if folder else Path("outputs") / self._job

    def _list_results(self, cluster: Cluster, nodes: Sequence[Node]) -> None:
        """Ask every node what it has; the conversations stay open."""
        shared_home_probe = secrets.token_hex(16)
        self._marks = {node.name: secrets.token_hex(16) for node in nodes}
        targets = [node for node in nodes if node.name not in self._errors]
        for outcome in cluster.each(targets, lambda c, node: self._open_pull(c, node, shared_home_probe)):
            if outcome.value is not None:  # noted at once: all that were opened are closed in the end
                self._pulls[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error

    def _check_job(self) -> None:
        """Refuse a job that has put out nothing anywhere: its name is likely misspelled."""
        any_outputs = any(pull.listing.entries for pull in self._pulls.values())
        if self._options.job is not None and self._pulls and not any_outputs and not self._errors:
            raise UsageError("CC-PULL-008", job=self._job)

    def _name_outputs(self, nodes: Sequence[Node], target: Path) -> None:
        """Decide under which name each node's outputs are kept; of nodes with one work directory one sends them."""
        listings = {node.name: self._pulls[node.name].listing for node in nodes if node.name in self._pulls}
        self._groups = group_by_workdir(listings, self._marks)
        names = name_shared_homes(self._groups, listings, target)
        for group in self._groups:
            output_name = names[group[0]]
            self._pulls[choose_fetching_node(group, output_name)].output_name = output_name
            if len(group) > 1:
                notice(
                    tr(
                        "{nodes} share one work directory; its outputs are downloaded once, to {name}",
                        nodes=fold_names(group),
                        name=output_name,
                    )
                )

    def _open_pull(self, c: Any, node: Node, shared_home_probe: str) -> NodePull:
        unlimited, run_id = self._options.no_limit, self._run_id or ""
        max_files, max_name_bytes = (NO_LIMIT, NO_LIMIT) if unlimited else (MAX_ENTRIES, MAX_NAMES)
        sources = [FileSource("outputs", self._job, "")]
        if self._options.logs or self._options.everything:
            sources.append(FileSource("logs", "", f"logs-{run_id}"))
        if self._options.everything:
            sources.append(FileSource("code", "", f"code-{run_id}"))
        shared_home = (shared_home_probe, self._marks[node.name])
        request = list_request(node, sources, max_files, run_id=run_id, shared_home=shared_home)

        def list_files(python: Interpreter) -> NodePull:
            return NodePull(node, *open_node_files(c, python, request, sources, max_name_bytes))

        return with_any_python(node, list_files)[0]

    def _fetch_all(self, downloads: Downloads) -> None:
        """Fetch from all nodes at once; where one fails, the next that shares its work directory takes over."""
        nodes = [pull.node for pull in self._pulls.values()]
        with downloading(self._phases, downloads):
            while nodes:
                outcomes = fan_out(nodes, lambda node: self._fetch(self._pulls[node.name], downloads))
                self._errors.update(collect(nodes, self._phases.follow("pull", outcomes)).errors)
                nodes = self._substitutes()

    def _substitutes(self) -> list[Node]:
        """Pass the outputs that a node could not send to one that has them too."""
        substitutes = []
        for group in self._groups:
            holder = next((self._pulls[name] for name in group if self._pulls[name].output_name), None)
            error = self._errors.get(holder.node.name) if holder else None
            if holder is None or error is None or isinstance(error, LocalSystemError):
                continue
            substitute = next((self._pulls[name] for name in group if name not in self._errors), None)
            if substitute is not None:
                substitute.output_name, holder.output_name = holder.output_name, None
                substitutes.append(substitute.node)
        return substitutes

    def _fetch(self, pull: NodePull, downloads: Downloads) -> None:
        """Fetch what one node sends: its outputs, its logs, into one source or two."""
        most = None if self._options.no_limit else MAX_BYTES
        for folder_name in dict.fromkeys((pull.output_name, pull.node.name)):
            entries = pull.entries(folder_name) if folder_name and folder_name not in pull.finished else []
            if folder_name and entries:
                with downloads.opened(folder_name) as directory:
                    try:
                        downloads.fetch(pull.files, entries, directory, pull.report, most)
                    except LocalSystemError as refusal:
                        downloads.close(refusal)
                        raise
                pull.finished.add(folder_name)

    def _show_report(self, nodes: Sequence[Node], target: Path) -> int:
        names = [node.name for node in nodes]
        reports = {name: self._pulls[name].report for name in names if name in self._pulls}
        complete = {name: report for name, report in reports.items() if name not in self._errors}
        outside = with_outside_files({name: pull.listing.outside for name, pull in self._pulls.items()})
        if self._options.as_json:
            document = pull_to_json(self._run_id, self._job, target, reports, self._errors, names, outside)
            write_document(document)
        else:
            for name, report in reports.items():
                pull = self._pulls[name]
                if pull.output_name or self._options.logs or self._options.everything:
                    report_pull(name, report, target / (pull.output_name or name), complete=name in complete)
            if outside and not self._options.everything:
                report_outside(outside, self._run_id or "", self._options.command)
        refusals = [error for error in self._errors.values() if isinstance(error, LocalSystemError)]
        for refusal in refusals:
            refusal.node = ""  # it is this machine's, and shown once
        report_failures(self._errors[name] for name in names if name in self._errors)
        stranded = bool(outside) and all(report.is_empty for report in reports.values())
        missing = stranded or any(report.refused or report.kept for report in complete.values())
        errors = self._errors.values()
        return 1 if refusals else transfer_exit_code(errors, done=bool(complete), incomplete=missing)
