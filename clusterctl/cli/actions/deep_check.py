"""The deep check: a small test job, launched as any other, whose rank 0 reports the slow or failing node or link."""

from __future__ import annotations

import secrets as random_source
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.actions.launch import STOP_LIMIT, make_run_id, measure
from clusterctl.cli.actions.preflight import Preflight
from clusterctl.cli.context.nodes import interpreter, launch_record, notice
from clusterctl.client.cleanup import remove_run
from clusterctl.client.launch import prepare
from clusterctl.client.rpc.bundle import PACKAGE
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle, stop_everywhere
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.monitor import MonitorOptions, RunMonitor
from clusterctl.codes.lookup import word
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.diagnose.network_tests import (
    LINE_PREFIX,
    MODULES,
    PACKAGE_NAME,
    DeepCheckResult,
    choose_backend,
    parse_deep_result,
    plan_deep_job,
)
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import Member
from clusterctl.plans.launch.plan import LaunchPlan, check_measured, plan_launch
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.run_paths import WorkdirPaths, part_name
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.text import begin_commands
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import LaunchRecord

MAX_LINES = 2000  # of the leader's; a search has some dozens


def run_deep_check(
    cluster: Cluster, nodes: Sequence[Node], job: Job | None, preflight: Preflight, command: str
) -> Preflight:
    """Run the deep check on nodes without errors; adds its findings. Leaves nothing on the nodes.

    `command` is how the commands in its notices begin.
    """
    backend = choose_backend(job, list(preflight.facts.values()))
    deep = DeepCheckResult(backend, tuple(node.name for node in nodes), 0)
    pending = tuple(name for name, facts in preflight.facts.items() if facts.setup.pending)
    if pending:
        problem = tr("the job's `setup` has not created its environment there yet")
        deep = replace(deep, trouble=problem, fix=word("CC-DEEP-006", "setup", {})[1], at=pending)
        return with_deep_result(nodes, job, preflight, deep)
    with pack_modules() as folder:
        deep_job = plan_deep_job(job, backend, str(folder))
        check = DeepCheckRun(cluster, nodes, deep_job, preflight, command)
        try:
            deep = check.run(deep, scan_source(folder))
        except ClusterctlError as error:
            problem = f"{error.code} {error.message}" + (f"\n{error.evidence}" if error.evidence else "")
            nodes_at = (error.node,) if error.node in deep.names else ()
            deep = replace(deep, trouble=problem, fix=error.fix, at=nodes_at)
    return with_deep_result(nodes, job, preflight, deep)


def with_deep_result(
    nodes: Sequence[Node], job: Job | None, preflight: Preflight, deep: DeepCheckResult
) -> Preflight:
    """Add the result of a deep check, and what follows from it."""
    findings = evaluate(nodes, replace(preflight.observed, deep=deep), job, preflight.selection)
    return replace(preflight, findings=findings, deep=deep)


@contextmanager
def pack_modules() -> Iterator[Path]:
    """Put what is sent into a folder of its own: a package of the modules that torchrun is to run."""
    folder = Path(tempfile.mkdtemp(prefix="clusterctl-deep-"))
    try:
        for name in MODULES:
            target = folder / PACKAGE_NAME / f"{name}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PACKAGE / f"{name}.py", target)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class DeepCheckRun:
    """One deep check: holds what its steps share."""

    def __init__(
        self, cluster: Cluster, nodes: Sequence[Node], job: Job, preflight: Preflight, command: str
    ) -> None:
        self._cluster, self._nodes, self._job, self._preflight = cluster, nodes, job, preflight
        self._command = command
        self._interpreters = {node.name: interpreter(node, job) for node in nodes}
        self._phases = Phases([node.name for node in nodes])
        self._phases.set_steps(cluster.steps)

    def run(self, deep: DeepCheckResult, scan: ScanResult) -> DeepCheckResult:
        """Start the job, read what rank 0 reports, and remove all files."""
        members = [Member(node, Slot(number)) for number, node in enumerate(self._nodes)]
        measured = {
            node.name: measure(self._job, node, self._preflight.facts[node.name]) for node in self._nodes
        }
        plan = plan_launch(self._job, members, measured, run_id=make_run_id(self._job.name))
        check_measured(plan)
        started_at = time.monotonic()
        leave = partial(announce_interrupted, tr("interrupted; stopping the test job"))
        INTERRUPTS.set_leaving(leave, STOP_LIMIT)
        try:
            self._start(plan, scan)
            options = MonitorOptions(plan.run_id, self._nodes, self._interpreters, self._preflight.offsets)
            lines, problem = follow_rounds(self._cluster, options, self._command, self._phases)
        except BaseException:
            self._stop(plan.run_id)
            raise
        finally:
            self._phases.stop()
            remove_run(self._handle(plan.run_id))
        INTERRUPTS.set_leaving(announce_interrupted)
        for node in self._nodes:
            self._phases.mark_done("deep", node.name)
        return conclude(self._phases, started_at, replace(deep, ranks=plan.world_size or 0), lines, problem)

    def _start(self, plan: LaunchPlan, scan: ScanResult) -> None:
        record: LaunchRecord = {**launch_record(), "submitted": time.time()}
        specs = {node.name: render_spec(plan, node, record) for node in plan.nodes}
        for node in plan.nodes:
            specs[node.name]["output_dir"] = _output_dir(plan.run_id, node.member)
            prefix = self._preflight.facts[node.name].setup.prefix
            if prefix:  # of the environment that the job's `setup` has made
                specs[node.name]["python"] = f"{prefix}/bin/python"
        self._phases.start("deep")
        inputs = prepare.LaunchInputs(specs, scan, {}, random_source.token_hex(32))
        ready = prepare.prepare_all(self._cluster, plan, self._interpreters, inputs, self._phases)
        prepare.start_workers(self._cluster, plan, self._interpreters, ready)
        prepare.close_sessions(ready.values())

    def _stop(self, run_id: str) -> None:
        """Stop the job on all nodes, also on those that were still preparing."""
        stop_everywhere(self._handle(run_id), "the deep check was left")

    def _handle(self, run_id: str) -> RunHandle:
        return RunHandle(self._cluster, run_id, self._nodes, self._interpreters)


def follow_rounds(
    cluster: Cluster, options: MonitorOptions, command: str, phases: Phases | None = None
) -> tuple[list[str], str]:
    """Listen until the job has ended; gives the leader's lines, and what went wrong."""
    lines: list[str] = []

    def keep(entry: LogLines) -> None:
        if entry.stream == "stdout":
            marked = [line for line in entry.lines if line.startswith(LINE_PREFIX)]
            lines.extend(marked[: MAX_LINES - len(lines)])
            if phases is not None:
                phases.set_activity(trn("{n} round measured", "{n} rounds measured", len(lines)))

    monitor = RunMonitor(
        cluster, options, show=keep, notice=lambda line: notice(begin_commands(line, command))
    )
    verdict = monitor.watch()
    cause = verdict.cause
    if cause is None:
        ended = tr("the test job ended as {state}", state=verdict.state)
        return lines, "" if verdict.exit_code == 0 else ended
    last = cause.failure.tail[-1] if cause.failure.tail else ""
    reason = cause.failure.exception or last
    return lines, tr("the test job failed on {node}: {reason}", node=cause.failure.node, reason=reason)


def conclude(
    phases: Phases, started_at: float, deep: DeepCheckResult, lines: Sequence[str], problem: str
) -> DeepCheckResult:
    """Read the leader's lines and show how long the rounds took."""
    result = parse_deep_result(lines, deep)
    phases.finish(
        "deep",
        trn(
            "{n} round in {seconds:.1f} s",
            "{n} rounds in {seconds:.1f} s",
            len(result.rounds),
            seconds=time.monotonic() - started_at,
        ),
    )
    if result.diagnosis:
        return result
    return replace(result, trouble=problem or tr("rank 0 reported no result"))


def _output_dir(run_id: str, member: Member) -> str:
    """Return an output directory that goes with the run."""
    part = part_name(member.slot, member.name)
    return WorkdirPaths(member.node.workdir).run(run_id, part, "outputs")
