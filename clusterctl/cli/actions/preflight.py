"""Ask all nodes for their facts and judge them; shared by `check` and `launch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.cli.context.nodes import interpreter
from clusterctl.client.preflight import Taker, look_here, prove_wire
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Session
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost
from clusterctl.plans.checks.framework import Finding, Here
from clusterctl.plans.checks.registry import ALL_CHECKS, Choice, checks, choose_checks, evaluate, grant
from clusterctl.plans.diagnose.collective import Deep
from clusterctl.plans.diagnose.mesh import Wire, choose_takers, plan_rails
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.setup import SetupPlan, setup_question
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job

PHASE = "check"


@dataclass(frozen=True)
class Proof:
    """What the nodes said, what could not be asked, and what follows."""

    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    findings: tuple[Finding, ...]
    wire: Wire | None = None
    deep: Deep | None = None
    choice: Choice = ALL_CHECKS
    here: Here | None = None

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
        counted = (finding for finding in self.findings if not finding.waived)
        return 3 if any(finding.severity == "error" for finding in counted) else 0


def choose(
    inventory: Inventory, job: Job | None, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> Choice:
    """Settle which checks are judged and which findings are waived, by the inventory or the job.

    Raises UsageError for words and codes that mean nothing, before any node is asked.
    """
    known, names = checks(), [node.name for node in inventory.nodes]
    waivers = (*inventory.waive, *(job.waive if job else ()))
    return Choice(choose_checks(known, only, skip), grant(known, waivers, names))


def prove(
    cluster: Cluster,
    nodes: Sequence[Node],
    job: Job | None,
    choice: Choice,
    phases: Phases,
    setup: SetupPlan | None = None,
) -> Proof:
    """Probe every node once, all at the same time, let them call each other, and evaluate the checks.

    The phase is PHASE, which the caller has begun. `setup` is what the job makes an environment of.
    """
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    open_probes: dict[str, Session] = {}
    judged = (one for code, one in checks().items() if code not in choice.left_out)
    wanted = len(nodes) > 1 and any("wire" in one.needs for one in judged)

    def ask(c: Any, node: Node) -> tuple[Facts, Session]:
        used = interpreter(node, job)
        question = setup_question(setup, used.activate)
        found: tuple[Facts, Session] = tasks.probe_and_stay(c, node, used, nodes, stay=wanted, setup=question)
        return found

    try:
        for outcome in cluster.each(nodes, ask, step="telling its facts"):
            name = outcome.node.name
            if outcome.value is not None:
                facts[name], open_probes[name] = outcome.value
                phases.arrive(PHASE, name)
            elif outcome.error is not None:
                failures[name] = outcome.error
                phases.fail(name)
        phases.turn("the nodes call each other")
        wire = _prove_wire(nodes, facts, open_probes) if wanted else None
    finally:
        for session in open_probes.values():
            session.close()
    here = look_here(nodes, job)
    findings = evaluate(nodes, facts, failures, job, wire, choice=choice, here=here)
    return Proof(facts, failures, findings, wire, choice=choice, here=here)


def _prove_wire(
    nodes: Sequence[Node], facts: Mapping[str, Facts], open_probes: Mapping[str, Session]
) -> Wire | None:
    """Let the nodes whose training addresses are known call each other; None where there are no two."""
    networks = {node.name: resolve_network(node, facts.get(node.name)) for node in nodes}
    chosen = choose_takers(nodes, facts, networks)
    rails = plan_rails(chosen, facts, networks)
    takers = {node.name: Taker(open_probes[node.name], rails[node.name], node.ports) for node in chosen}
    return prove_wire(takers) if takers else None
