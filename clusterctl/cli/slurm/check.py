"""`check` on a Slurm cluster: a short job whose nodes report their facts, which are judged here as those over SSH."""

from __future__ import annotations

import secrets as random_source
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.cli.actions.launch import make_run_id
from clusterctl.cli.actions.preflight import PHASE, Preflight
from clusterctl.cli.context.nodes import interpreter, launch_record
from clusterctl.cli.slurm.follow import QUEUE, describe_queue
from clusterctl.client.preflight import read_local_facts
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.slurm import AllocatedNode, LoginNode, QueueState, Submission, gather_facts
from clusterctl.console.progress import Phases
from clusterctl.console.terminal import can_redraw, info
from clusterctl.errors import NodeError, StartError
from clusterctl.plans.checks.framework import Observations
from clusterctl.plans.checks.registry import all_checks, choose_checks, evaluate
from clusterctl.plans.facts.facts import discard_stale_packages
from clusterctl.plans.launch.setup import SetupPlan, setup_probe_request
from clusterctl.plans.slurm.judge import NO_ANSWER, make_nodes, select_in_allocation
from clusterctl.plans.slurm.request import (
    SlurmNodes,
    choose_named_nodes,
    choose_slurm_nodes,
    plan_check_job,
    plan_options,
    refuse_unsupported,
    render_script,
)
from clusterctl.plans.slurm.template import make_template, plan_check
from clusterctl.specs.inventory.model import Inventory, Node, Slurm
from clusterctl.specs.job.model import Job
from clusterctl.translation import trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart
    from clusterctl.protocol.messages.files import LaunchRecord


class SlurmCheck:
    """One check: holds what the steps share; `program` is how a command begins that uses the same inventory."""

    def __init__(
        self, inventory: Inventory, slurm: Slurm, job: Job | None, setup: SetupPlan | None, program: str
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
        self._login = inventory.nodes[0]

    def run(
        self,
        cluster: Cluster,
        choice: tuple[str | None, str | None],
        only: Sequence[str],
        skip: Sequence[str],
    ) -> tuple[tuple[Node, ...], Preflight]:
        """Get nodes from Slurm, have their facts gathered, and judge them; gives the nodes with the result."""
        skipped = choose_checks(all_checks(), only, skip)
        chosen = choose_slurm_nodes(self._job, *choice) if self._job else choose_named_nodes(*choice)
        check = self._plan_check()
        began = time.time()
        members = self._gather(LoginNode(cluster, self._login, interpreter(self._login)), chosen, check)
        nodes = make_nodes(
            self._login,
            [{"node": one.name, "address": one.address, "nics": list(one.nics)} for one in members],
        )
        installs_torch = bool(check["setup"] and check["setup"]["brings_torch"])
        facts = {
            one.name: discard_stale_packages(one.facts, installs_torch=installs_torch)
            for one in members
            if one.facts is not None
        }
        failures = {
            node.name: NodeError(NO_ANSWER, node=node.name) for node in nodes if node.name not in facts
        }
        local_facts = read_local_facts((), self._job)
        observed = Observations(facts, failures, local_facts=local_facts, program=self._program)
        selection = select_in_allocation(check, nodes, skipped)
        findings = evaluate(nodes, observed, self._job, selection)
        return nodes, Preflight(facts, failures, findings, observed, selection=selection, time=began)

    def _plan_check(self) -> CheckPart:
        activate = self._job.activate if self._job else None
        waivers = (*self._inventory.waive, *(self._job.waive if self._job else ()))
        setup = setup_probe_request(self._setup, activate or self._login.activate)
        return {**plan_check(self._job, self._login, waivers, (), self._program, setup), "only": True}

    def _gather(self, login: LoginNode, chosen: SlurmNodes, check: CheckPart) -> list[AllocatedNode]:
        """Wait in the queue and read the nodes' reports; StartError if there are none."""
        job, slurm = plan_check_job(self._job, self._slurm), replace(self._slurm, time=None)
        nodes, run_id = replace(chosen, count=chosen.total, spares=0), make_run_id(job.name)
        record: LaunchRecord = {
            "cluster": self._inventory.cluster,
            **launch_record(),
            "submitted": time.time(),
        }
        template = make_template(job, slurm, self._login, nodes, run_id, record, check)
        submission = Submission(
            {**template, "workers": 1},  # none starts
            plan_options(job, slurm, nodes, run_id),
            render_script(job, self._login),
            {},
            random_source.token_hex(32),
        )
        members: list[AllocatedNode] = []
        last: QueueState | None = None
        phases, shown = Phases([self._login.name]), ""
        phases.start(QUEUE)
        try:
            for report in gather_facts(login, submission, nodes.total):
                if isinstance(report, AllocatedNode):
                    members.append(report)
                    continue
                if (last is None or last.waits) and not report.waits:
                    phases.start(PHASE)
                shown, last = _show_queue(phases, describe_queue(report), shown), report
        finally:
            phases.stop()
        if len(members) < nodes.total:
            raise _explain_failure(last, nodes.total - len(members))
        return members


def _show_queue(phases: Phases, text: str, shown: str) -> str:
    phases.set_activity(text)
    if text != shown and not can_redraw(sys.stderr):
        info(f"  {QUEUE}   {text}")
    return text


def _explain_failure(last: QueueState | None, missing: int) -> StartError:
    """Say why nodes reported nothing: one could not, or the job left the queue."""
    if last is not None and last.failure is not None:
        return StartError("CC-RUN-031", node=last.failure.node, evidence=last.failure.text)
    reason = last.reason if last is not None else ""
    text = trn(
        "no report from {n} node; {reason}", "no report from {n} nodes; {reason}", missing, reason=reason
    )
    return StartError("CC-RUN-031", evidence=text)
