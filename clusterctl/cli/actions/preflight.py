"""Ask all nodes for their facts and judge them; shared by `check` and `launch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.cli.context.nodes import interpreter
from clusterctl.client.preflight import MeshMember, read_local_facts, run_mesh_test
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Session
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost
from clusterctl.plans.checks.framework import Finding, Observations
from clusterctl.plans.checks.registry import (
    ALL_CHECKS,
    CheckSelection,
    all_checks,
    choose_checks,
    evaluate,
    resolve_waivers,
)
from clusterctl.plans.diagnose.collective import DeepCheckResult
from clusterctl.plans.diagnose.mesh import MeshResult, choose_mesh_members, plan_rails
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.setup import SetupPlan, setup_probe_request
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.translation import tr

PHASE = "check"


@dataclass(frozen=True)
class Preflight:
    """The facts of the nodes, the errors of those without an answer, and the findings."""

    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    findings: tuple[Finding, ...]
    observed: Observations
    mesh: MeshResult | None = None
    deep: DeepCheckResult | None = None
    selection: CheckSelection = ALL_CHECKS

    @property
    def offsets(self) -> dict[str, float]:
        """Give each node's clock minus ours, in seconds."""
        clocks = {name: facts.clock for name, facts in self.facts.items()}
        return {name: clock.offset for name, clock in clocks.items() if clock and clock.offset is not None}

    @property
    def exit_code(self) -> int:
        """Give 4 when a node could not be reached, 3 when a finding is an error, else 0."""
        if any(isinstance(error, (ConnectError, ConnectionLost)) for error in self.failures.values()):
            return 4
        unwaived = (finding for finding in self.findings if not finding.waived)
        return 3 if any(finding.severity == "error" for finding in unwaived) else 0


def select_checks(
    inventory: Inventory, job: Job | None, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> CheckSelection:
    """Settle which checks are judged and which findings are waived, by the inventory or the job.

    Raises UsageError for words and codes that mean nothing, before any node is asked.
    """
    registry, names = all_checks(), [node.name for node in inventory.nodes]
    waivers = (*inventory.waive, *(job.waive if job else ()))
    return CheckSelection(choose_checks(registry, only, skip), resolve_waivers(registry, waivers, names))


def run_preflight(
    cluster: Cluster,
    nodes: Sequence[Node],
    job: Job | None,
    selection: CheckSelection,
    phases: Phases,
    setup: SetupPlan | None = None,
    program: str = "clusterctl",
) -> Preflight:
    """Probe every node once, all at the same time, let them connect to each other, and evaluate the checks.

    The phase is PHASE, which the caller has begun. `setup` is what the job makes an environment of, `program` how a
    command begins that uses the same inventory.
    """
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    open_probes: dict[str, Session] = {}
    selected = (check for code, check in all_checks().items() if code not in selection.skipped)
    test_mesh = len(nodes) > 1 and any("wire" in check.needs for check in selected)

    def request_facts(c: Any, node: Node) -> tuple[Facts, Session]:
        python = interpreter(node, job)
        question = setup_probe_request(setup, python.activate)
        answer: tuple[Facts, Session] = tasks.probe_and_stay(
            c, node, python, nodes, stay=test_mesh, setup=question
        )
        return answer

    try:
        for outcome in cluster.each(nodes, request_facts, step=tr("reading facts")):
            name = outcome.node.name
            if outcome.value is not None:
                facts[name], open_probes[name] = outcome.value
                phases.mark_done(PHASE, name)
            elif outcome.error is not None:
                failures[name] = outcome.error
                phases.mark_failed(name)
        phases.set_activity(tr("testing connections between nodes"))
        mesh = _run_mesh_test(nodes, facts, open_probes) if test_mesh else None
    finally:
        for session in open_probes.values():
            session.close()
    local_facts = read_local_facts(nodes, job)
    observed = Observations(facts, failures, mesh, local_facts=local_facts, program=program)
    findings = evaluate(nodes, observed, job, selection)
    return Preflight(facts, failures, findings, observed, mesh, selection=selection)


def _run_mesh_test(
    nodes: Sequence[Node], facts: Mapping[str, Facts], open_probes: Mapping[str, Session]
) -> MeshResult | None:
    """Test connections between nodes with known training addresses; None with fewer than two of them."""
    networks = {node.name: resolve_network(node, facts.get(node.name)) for node in nodes}
    participants = choose_mesh_members(nodes, facts, networks)
    rails = plan_rails(participants, facts, networks)
    members = {
        node.name: MeshMember(open_probes[node.name], rails[node.name], node.ports) for node in participants
    }
    return run_mesh_test(members) if members else None
