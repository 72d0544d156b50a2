"""`check` on a Slurm cluster: a short job whose nodes report their facts, which are judged here as those over SSH.

With `--deep` it is the test job itself, which runs on the nodes of the check, in the same allocation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.actions.deep_check import conclude, follow_rounds, pack_modules, with_deep_result
from clusterctl.cli.actions.find_runs import find_runs
from clusterctl.cli.actions.launch import make_run_id
from clusterctl.cli.actions.preflight import PHASE, Preflight
from clusterctl.cli.context.code import read_job_code
from clusterctl.cli.context.nodes import interpreter, launch_record
from clusterctl.cli.slurm.launch import QUEUE, QueueView, describe_queue
from clusterctl.client.preflight import read_local_facts
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.slurm import AllocatedNode, LoginNode, gather_facts, send_tree, watch_queue
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.client.watch.monitor import MonitorOptions
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError, StartError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.registry import choose_checks
from clusterctl.plans.diagnose.network_tests import DeepCheckResult, plan_deep_job
from clusterctl.plans.launch.setup import SetupPlan, setup_probe_request
from clusterctl.plans.slurm.judge import judge_nodes, make_nodes
from clusterctl.plans.slurm.submission import (
    choose_named_nodes,
    choose_slurm_nodes,
    plan_check,
    plan_check_job,
    plan_submission,
    refuse_unsupported,
)
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Node, Slurm
from clusterctl.specs.job.model import Job
from clusterctl.translation import trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart, QueueFacts
    from clusterctl.protocol.messages.files import LaunchRecord


DEEP = "deep"  # the phase


class SlurmCheck:
    """One check: holds what the steps share; `program` is how a command begins that uses the same inventory."""

    def __init__(
        self,
        inventory: Inventory,
        slurm: Slurm,
        job: Job | None,
        setup: SetupPlan | None,
        program: str,
        scan: ScanResult | None = None,
    ) -> None:
        if job is not None:
            refuse_unsupported(job, slurm)
        self._inventory, self._slurm, self._job, self._setup, self._program = (
            inventory,
            slurm,
            job,
            setup,
            program,
        )
        self._login, self._scan = inventory.nodes[0], scan

    def run(
        self,
        cluster: Cluster,
        choice: tuple[str | None, str | None],
        only: Sequence[str],
        skip: Sequence[str],
        *,
        deep: bool = False,
    ) -> tuple[tuple[Node, ...], Preflight]:
        """Get nodes from Slurm, have their facts gathered, and judge them; gives the nodes with the result."""
        skipped = choose_checks(only, skip)
        chosen = choose_slurm_nodes(self._job, *choice) if self._job else choose_named_nodes(*choice)
        nodes = replace(chosen, count=chosen.total, spares=0)
        login = LoginNode(cluster, self._login, interpreter(self._login))
        backend, began = choose_deep_backend(self._job, self._slurm), time.time()
        with ExitStack() as stack:
            folder = str(stack.enter_context(pack_modules())) if deep else ""
            job = (
                plan_deep_job(self._job, backend, folder) if deep else plan_check_job(self._job, self._slurm)
            )
            run_id = make_run_id(job.name)
            if deep:
                send_tree(login, TreeUpload(scan_source(Path(folder))), run_id)
            check = self._plan_check(only=not deep)
            slurm = replace(self._slurm, time=None)
            record: LaunchRecord = {
                "cluster": self._inventory.cluster,
                **launch_record(),
                "submitted": time.time(),
            }
            submission = plan_submission(job, slurm, self._login, nodes, run_id, record, check)
            reports = stack.enter_context(closing(gather_facts(login, submission, nodes.total)))
            members = self._gather(reports, nodes.total, deep=deep)
            checked, result = self._judge(members, check, skipped, began)
            if deep and result.exit_code == 0:
                result = run_deep_check(login, run_id, backend, (checked, self._job, result), self._program)
        return checked, result

    def _judge(
        self, members: Sequence[AllocatedNode], check: CheckPart, skipped: frozenset[str], began: float
    ) -> tuple[tuple[Node, ...], Preflight]:
        nodes = make_nodes(self._login, [member for member, _ in members])
        code = read_job_code(self._job, len(nodes), self._scan) if self._job and self._scan else None
        answers = {member["node"]: facts for member, facts in members}
        local_facts = read_local_facts((), self._job, code)
        observed, selection, findings = judge_nodes(check, nodes, answers, self._job, local_facts, skipped)
        preflight = Preflight(
            observed.facts, observed.failures, findings, observed, selection=selection, time=began
        )
        return nodes, preflight

    def _plan_check(self, *, only: bool) -> CheckPart:
        activate = self._job.activate if self._job else None
        waivers = (*self._inventory.waive, *(self._job.waive if self._job else ()))
        setup = setup_probe_request(self._setup, activate or self._login.activate)
        return {**plan_check(self._job, self._login, waivers, (), self._program, setup), "only": only}

    def _gather(
        self, reports: Iterable[QueueFacts | AllocatedNode], total: int, *, deep: bool
    ) -> list[AllocatedNode]:
        """Wait in the queue and read the nodes' reports; StartError if there are none."""
        members: list[AllocatedNode] = []
        last: QueueFacts | None = None
        view = QueueView(self._login.name)
        try:
            for report in reports:
                if not isinstance(report, tuple):
                    if not report["waits"]:
                        view.enter(PHASE)
                    view.show_activity(describe_queue(report), QUEUE)
                    last = report
                    continue
                members.append(report)
                if deep and len(members) == total:
                    break  # what follows on the nodes is followed elsewhere
        finally:
            view.stop()
        if len(members) < total:
            raise _explain_failure(last, total - len(members))
        return members


def _explain_failure(last: QueueFacts | None, missing: int) -> StartError:
    """Return why nodes reported nothing: one could not, or the job left the queue."""
    if last is not None and last["failure"] is not None:
        return StartError("CC-RUN-031", node=last["failure"]["node"], evidence=last["failure"]["text"])
    reason = last["reason"] if last is not None else ""
    text = trn(
        "no report from {n} node; {reason}", "no report from {n} nodes; {reason}", missing, reason=reason
    )
    return StartError("CC-RUN-031", evidence=text)


def choose_deep_backend(job: Job | None, slurm: Slurm) -> str:
    """Take the job's backend; without a job NCCL where the inventory asks for GPUs: the nodes are not known yet."""
    if job is not None:
        return job.backend
    return "nccl" if slurm.gpus_per_node else "gloo"


def run_deep_check(
    login: LoginNode,
    run_id: RunId,
    backend: str,
    checked: tuple[Sequence[Node], Job | None, Preflight],
    command: str,
) -> Preflight:
    """Follow the test job, which starts when the nodes have passed the check; adds what it finds.

    `command` is how the commands in its notices begin.
    """
    nodes, job, preflight = checked
    deep = DeepCheckResult(backend, tuple(node.name for node in nodes), 0)
    phases, began = Phases([login.node.name]), time.monotonic()
    phases.start(DEEP)
    try:
        problem = _wait_for_start(login, run_id, len(nodes))
        if not problem:
            deep = _follow(login, run_id, deep, command, (phases, began))
    except ClusterctlError as error:
        problem = f"{error.code} {error.message}" + (f"\n{error.evidence}" if error.evidence else "")
    finally:
        phases.stop()
    return with_deep_result(nodes, job, preflight, replace(deep, trouble=problem) if problem else deep)


def _wait_for_start(login: LoginNode, run_id: RunId, count: int) -> str:
    """Wait until all nodes have begun; gives why they do not."""
    for state in watch_queue(login, run_id, count):
        if state["begun"]:
            return ""
        if state["over"]:
            return translate_node_text(state["failure"]["text"] if state["failure"] else state["reason"])
    return ""


def _follow(
    login: LoginNode, run_id: RunId, deep: DeepCheckResult, command: str, progress: tuple[Phases, float]
) -> DeepCheckResult:
    phases, began = progress
    found = find_runs(login.cluster, [login.node], run_id, only_one=True)
    parts = found.runs.get(run_id, {})
    options = MonitorOptions(run_id, found.nodes_of(run_id), found.pythons, found.offsets)
    lines, problem = follow_rounds(login.cluster, options, command)
    phases.mark_done(DEEP, login.node.name)
    ranks = max((part.world_size or 0 for part in parts.values() if part), default=0)
    return conclude(phases, began, replace(deep, ranks=ranks), lines, problem)
