"""Stage models and data: every entry of a job's `stage` to all its nodes, alone or as a part of a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clusterctl.cli.actions.files.remote import find_source, opened_remote
from clusterctl.cli.actions.files.transfer import StagedFrom, Target, Transfer
from clusterctl.cli.actions.sync import transfer_exit_code
from clusterctl.cli.context.load import expand, state_dir
from clusterctl.cli.context.nodes import launch_record, notice, open_cluster, report_failures
from clusterctl.client.rpc.cluster import Cluster, Outcome
from clusterctl.client.sync.distribution import TransferAddress
from clusterctl.client.sync.scan import ScanResult, scan_files
from clusterctl.client.sync.upload import SentFiles
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import HashProgress, Phases
from clusterctl.console.staging import Staged, report_staged, staged_to_json
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.documents import StagePreview
from clusterctl.plans.sync.listed_files import FileSource
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.plans.sync.staging import StagedItem, describe_items, plan_lacking, plan_staging
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.stage import Stage
from clusterctl.translation import tr

REMOTE = ("hf", "ms", "url")  # kinds of sources that a node downloads
Outcomes = Iterator[Outcome[SentFiles]]


@dataclass(frozen=True)
class StageOptions:
    """What was asked for; with `dry_run` nothing is written."""

    dry_run: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class OpenedSource:
    """A source whose content is known: its manifest, and how it is sent to the nodes."""

    manifest: Manifest
    target: Target
    send: Callable[[], Outcomes]
    revision: str = ""


class Staging:
    """The entries of one job, on its nodes; what is on this machine is hashed before any connection."""

    def __init__(self, job: Job, inventory: Inventory, nodes: Sequence[Node]) -> None:
        self._job, self._inventory = job, inventory
        # the nodes of a Slurm cluster share the directories, which are written on the login node
        self._is_shared = inventory.slurm is not None
        self.nodes = tuple(nodes[:1] if self._is_shared else nodes)
        self._scans = {
            index: self._scan(index, stage)
            for index, stage in enumerate(job.stage)
            if stage.origin.kind == "here"
        }
        self._providers = {
            index: self._find_provider(index, stage)
            for index, stage in enumerate(job.stage)
            if stage.origin.kind == "node"
        }
        self._by = launch_record()["launched_by"]
        self.staged: list[Staged] = []
        self.errors: list[ClusterctlError] = []

    def _scan(self, index: int, stage: Stage) -> ScanResult:
        path = Path(self._job.file).parent / expand(stage.origin.path)
        _, name = stage.folder_and_name
        with _named(index, "from"), HashProgress(tr("reading {path}", path=stage.source)).shown() as progress:
            scan = INTERRUPTS.call(lambda: scan_files(str(path), name, state_dir() / "trees", progress))
        for warning in scan.warnings:
            notice(warning)
        return scan

    def _find_provider(self, index: int, stage: Stage) -> Node:
        with _named(index, "from"):
            return choose_nodes(self._inventory, stage.origin.node, None)[0]

    @property
    def preview(self) -> list[StagePreview]:
        """Return what would be staged, as far as this machine has it."""
        manifests = {index: scan.manifest for index, scan in self._scans.items()}
        return plan_staging(self._job, [node.name for node in self.nodes], manifests)

    @property
    def description(self) -> str:
        """Return what was staged, for the run's record."""
        return describe_items([staged.item for staged in self.staged])

    def run(
        self,
        cluster: Cluster,
        phases: Phases,
        *,
        addresses: Mapping[str, TransferAddress] | None = None,
        dry_run: bool = False,
        to_the_end: bool = False,
    ) -> None:
        """Stage all entries, one after the other; raises the first error, unless it goes on `to_the_end`."""
        transfer = Transfer(cluster, phases, is_shared=self._is_shared, addresses=addresses)
        for index, stage in enumerate(self._job.stage):
            try:
                with _named(index), self._opened(transfer, index, stage, dry_run=dry_run) as source:
                    outcomes = self._compare(transfer, source) if dry_run else source.send()
                    self._follow(outcomes, self._add(stage, source), phases, to_the_end=to_the_end)
            except ClusterctlError as error:
                if not to_the_end:
                    raise
                self.errors.append(error)
        failed = {error.node for error in self.errors}
        for node in self.nodes:
            if node.name not in failed:
                phases.mark_done("stage", node.name)

    @contextmanager
    def _opened(
        self, transfer: Transfer, index: int, stage: Stage, *, dry_run: bool
    ) -> Iterator[OpenedSource]:
        """Find out what a source holds; the conversation with a node that has it lasts as long as the block."""
        if stage.origin.kind in REMOTE:
            source = find_source(self._job, stage, self._by)
            with opened_remote(transfer, source, self.nodes, dry_run=dry_run) as remote:
                download = remote.download
                yield OpenedSource(download.manifest, remote.target, remote.send, download.revision)
            return
        folder, name = stage.folder_and_name
        target = Target(folder, name, folder=True, staged=StagedFrom(stage.label, "", self._by))
        if index in self._scans:
            scan = self._scans[index]
            yield OpenedSource(scan.manifest, target, partial(transfer.send, scan, self.nodes, target))
            return
        provider = self._providers[index]
        selected = FileSource("path", stage.origin.path, name, modes=True)
        giving = transfer.list_to_give(transfer.cluster.connection(provider), provider, selected)
        with giving[0]:
            manifest = giving[1].manifest
            for path in giving[1].left_out:
                notice(tr("{node}: NOT copied: {file}", node=provider.name, file=path))
            yield OpenedSource(
                manifest, target, partial(transfer.pass_on, provider, giving, manifest, self.nodes, target)
            )

    def _add(self, stage: Stage, source: OpenedSource) -> Staged:
        manifest, target = source.manifest, source.target
        to = "/".join(filter(None, (target.path, target.name))).replace("//", "/")
        item = StagedItem(stage.label, to, source.revision, manifest.hash, manifest.files, manifest.size)
        self.staged.append(Staged(item))
        return self.staged[-1]

    def _follow(self, outcomes: Outcomes, staged: Staged, phases: Phases, *, to_the_end: bool) -> None:
        for outcome in outcomes:
            if outcome.value is not None:
                staged.nodes[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                phases.mark_failed(outcome.node.name)
                if not to_the_end:
                    raise outcome.error
                self.errors.append(outcome.error)

    def _compare(self, transfer: Transfer, source: OpenedSource) -> Outcomes:
        """Look what each node has already; nothing is written."""
        target, manifest = source.target, source.manifest

        def compare(c: Any, node: Node) -> SentFiles:
            path, name = target.path_on(node), target.name
            inside = FileSource("inside", path, "", modes=True)
            selected = FileSource("path", f"{path.rstrip('/')}/{name}", name, modes=True) if name else inside
            try:
                files, listing = transfer.list_files(c, node, [selected], hashed=True)
            except ClusterctlError as error:
                if error.code != "CC-COPY-002":
                    raise
                lacking = plan_lacking(manifest, ())  # it is not there yet
            else:
                files.close()
                lacking = plan_lacking(manifest, listing.entries)
            return SentFiles(
                files=lacking.files,
                bytes=lacking.bytes,
                unchanged=lacking.unchanged,
                kept=(),
                kept_count=0,
                sent=0,
                taken=0,
                replaced=lacking.replaced,
            )

        return transfer.cluster.each(self.nodes, compare, step=tr("reading its files"))


@contextmanager
def _named(index: int, key: str = "") -> Iterator[None]:
    """Name the entry of the job in the message of an error."""
    try:
        yield
    except ClusterctlError as error:
        subject = f"stage[{index}].{key}" if key else f"stage[{index}]"
        if error.code == "CC-SYNC-005":
            error.fix = tr("make it readable; `stage` copies everything in a directory")
        if not error.message.startswith("stage["):
            error.message = tr("{subject}: {text}", subject=subject, text=error.message)
        raise


def describe_interrupt() -> str:
    """Return what is left of a transfer that was interrupted."""
    return tr("interrupted; what has arrived is kept: the same command continues")


def stage_job(job: Job, inventory: Inventory, nodes: Sequence[Node], options: StageOptions) -> int:
    """Stage what a job names, without starting it; gives the exit code of the verb."""
    staging = Staging(job, inventory, nodes)
    phases = Phases([node.name for node in staging.nodes])
    with open_cluster() as cluster:
        cluster.open_early(staging.nodes)  # questions come before the live progress
        leave = partial(announce_interrupted, "" if options.dry_run else describe_interrupt())
        with INTERRUPTS.leaving(leave), phases.display_phase("stage", cluster.steps):
            staging.run(cluster, phases, dry_run=options.dry_run, to_the_end=True)
    if options.as_json:
        write_document(staged_to_json(staging.staged, staging.errors, dry_run=options.dry_run))
    else:
        report_staged(staging.staged, dry_run=options.dry_run)
    report_failures(staging.errors)
    return transfer_exit_code(staging.errors, done=any(staged.nodes for staged in staging.staged))
