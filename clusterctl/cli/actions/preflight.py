"""Ask all nodes for their facts and judge them; shared by `check` and `launch`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.cli.context.nodes import interpreter
from clusterctl.client.cleanup import query_staged
from clusterctl.client.preflight import (
    REUSED,
    MeshMember,
    RecentCheck,
    load_check,
    merge_facts,
    name_check,
    read_local_facts,
    remove_check,
    run_mesh_test,
    save_check,
)
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
    evaluate,
)
from clusterctl.plans.diagnose.network_tests import choose_mesh_members, plan_rails
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.setup import SetupPlan, setup_probe_request
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.rpc.session import Interpreter
    from clusterctl.plans.diagnose.network_tests import DeepCheckResult
    from clusterctl.plans.launch.script import JobCode
    from clusterctl.plans.sync.staged import StagedContent
    from clusterctl.protocol.messages.checks import MeshResult

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
    time: float = 0.0  # when it began, or the one it is taken from, by our clock
    rails: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    age: float | None = (
        None  # of the check, in seconds, from which the test of the network and GPU health are
    )

    @property
    def offsets(self) -> dict[str, float]:
        """Return each node's clock minus ours, in seconds."""
        clocks = {name: facts.clock for name, facts in self.facts.items()}
        return {name: clock.offset for name, clock in clocks.items() if clock and clock.offset is not None}

    @property
    def exit_code(self) -> int:
        """Return 4 when a node could not be reached, 3 when a finding is an error, else 0."""
        if any(isinstance(error, (ConnectError, ConnectionLost)) for error in self.failures.values()):
            return 4
        unwaived = (finding for finding in self.findings if not finding.waived)
        return 3 if any(finding.severity == "error" for finding in unwaived) else 0


@dataclass(frozen=True)
class Questions:
    """What a check is about: the nodes, the job, its code, and options; `setup` is what makes its environment.

    `program` is how a command begins that uses the same inventory. With `recheck` nothing of an earlier check is used.
    `launches`: a launch follows, after which all is tested again.
    """

    nodes: Sequence[Node]
    job: Job | None
    selection: CheckSelection
    setup: SetupPlan | None = None
    program: str = "clusterctl"
    recheck: bool = False
    launches: bool = False
    code: JobCode | None = None
    staged: Mapping[str, tuple[StagedContent, ...]] = field(default_factory=dict)

    @property
    def interpreters(self) -> dict[str, Interpreter]:
        """Return the Python of each node."""
        return {node.name: interpreter(node, self.job) for node in self.nodes}

    @property
    def name(self) -> str:
        """Name the file in which such a check is kept."""
        return name_check(self.nodes, self.interpreters, test_mesh=self.tests_mesh)

    @property
    def may_reuse(self) -> bool:
        """Return whether an earlier check counts: which environment a job's nodes have may change at any time."""
        return self.setup is None

    @property
    def tests_mesh(self) -> bool:
        """Return whether the nodes connect to each other."""
        selected = (check for code, check in all_checks().items() if code not in self.selection.skipped)
        return len(self.nodes) > 1 and any("wire" in check.needs for check in selected)


def run_preflight(cluster: Cluster, questions: Questions, phases: Phases, folder: Path) -> Preflight:
    """Probe every node once, all at the same time, let them connect to each other, and evaluate the checks.

    The phase is PHASE, which the caller has begun. What is expensive is taken from a check that passed a moment ago,
    which `folder` keeps, as long as all answers that are repeated are the same.
    """
    questions = replace(questions, staged=query_staged_content(cluster, questions))
    recent = None
    if questions.may_reuse and not questions.recheck:
        recent = load_check(folder, questions.name, time.time())
    if questions.launches:
        remove_check(folder, questions.name)
    if recent is not None:
        result = _confirm(cluster, questions, phases, recent)
        if result is not None:
            return result
    result = _check_all(cluster, questions, phases)
    if not questions.launches:
        keep_check(questions, result, folder)
    return result


def keep_check(questions: Questions, result: Preflight, folder: Path) -> None:
    """Keep a sound check for the launches of the next moments: that of a launch only once its run has succeeded."""
    if questions.may_reuse and is_sound(result):
        recent = RecentCheck(time=result.time, facts=result.facts, rails=result.rails, mesh=result.mesh)
        save_check(folder, questions.name, recent)


def is_sound(result: Preflight) -> bool:
    """Return whether a check found no error, waived or not, and no answer is missing."""
    complete = not result.failures and not any(facts.problems for facts in result.facts.values())
    closed = result.mesh is not None and (
        result.mesh.absent or result.mesh.ports_taken or not all(path.open for path in result.mesh.paths)
    )
    return complete and not closed and not any(finding.severity == "error" for finding in result.findings)


def query_staged_content(cluster: Cluster, questions: Questions) -> dict[str, tuple[StagedContent, ...]]:
    """Ask the nodes what was staged there, unless the job stages nothing, or does it next; who fails is left out."""
    if questions.launches or questions.job is None or not questions.job.stage:
        return {}
    pythons = questions.interpreters
    outcomes = cluster.each(
        questions.nodes,
        lambda c, node: query_staged(c, node, pythons[node.name]),
        step=tr("reading what was staged"),
    )
    return {outcome.node.name: outcome.value for outcome in outcomes if outcome.value is not None}


def _confirm(cluster: Cluster, questions: Questions, phases: Phases, recent: RecentCheck) -> Preflight | None:
    """Ask what is cheap again and judge all; None if that does not pass, or a node is not as it was."""
    with _Probes(cluster, questions, phases, skip=REUSED, stay=False) as probes:
        facts = None if probes.failures else merge_facts(recent, probes.facts)
        if facts is None or (recent.mesh is not None and probes.rails() != recent.rails):
            return None
        result = _judge(questions, facts, {}, recent.mesh, recent)
        return replace(result, time=recent.time, rails=recent.rails) if is_sound(result) else None


def _check_all(cluster: Cluster, questions: Questions, phases: Phases) -> Preflight:
    began, test_mesh = time.time(), questions.tests_mesh
    with _Probes(cluster, questions, phases, stay=test_mesh) as probes:
        phases.set_activity(tr("testing connections between nodes"))
        rails = probes.rails()
        members = {
            node.name: MeshMember(probes.open[node.name], rails[node.name], node.ports)
            for node in questions.nodes
            if node.name in rails
        }
        mesh = run_mesh_test(members) if test_mesh and members else None
    return replace(_judge(questions, probes.facts, probes.failures, mesh), time=began, rails=rails)


def _judge(
    questions: Questions,
    facts: Mapping[str, Facts],
    failures: Mapping[str, ClusterctlError],
    mesh: MeshResult | None,
    reused: RecentCheck | None = None,
) -> Preflight:
    local_facts = read_local_facts(questions.nodes, questions.job, questions.code)
    observed = Observations(
        facts,
        failures,
        mesh,
        local_facts=local_facts,
        staged=questions.staged,
        program=questions.program,
    )
    findings = evaluate(questions.nodes, observed, questions.job, questions.selection)
    age = time.time() - reused.time if reused else None
    return Preflight(facts, failures, findings, observed, mesh, selection=questions.selection, age=age)


class _Probes:
    """The answers of all nodes, and the sessions that are still open."""

    def __init__(
        self,
        cluster: Cluster,
        questions: Questions,
        phases: Phases,
        *,
        stay: bool,
        skip: Sequence[str] = (),
    ) -> None:
        self.facts: dict[str, Facts] = {}
        self.failures: dict[str, ClusterctlError] = {}
        self.open: dict[str, Session] = {}
        self._questions = questions
        interpreters = questions.interpreters

        def request_facts(c: Any, node: Node) -> tuple[Facts, Session]:
            python = interpreters[node.name]
            options = tasks.ProbeOptions(
                stay,
                setup_probe_request(questions.setup, python.activate),
                skip,
                questions.job.name if questions.job else "",
            )
            answer: tuple[Facts, Session] = tasks.probe_and_stay(c, node, python, questions.nodes, options)
            return answer

        outcomes = cluster.each(questions.nodes, request_facts, step=tr("reading facts"))
        for outcome in phases.follow(PHASE, outcomes):
            if outcome.value is not None:
                self.facts[outcome.node.name], self.open[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                self.failures[outcome.node.name] = outcome.error

    def __enter__(self) -> _Probes:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.open.values():
            session.close()

    def rails(self) -> dict[str, dict[str, str]]:
        """Return the training addresses of the nodes that can connect to each other, by rail."""
        nodes, facts = self._questions.nodes, self.facts
        networks = {node.name: resolve_network(node, facts.get(node.name)) for node in nodes}
        return plan_rails(choose_mesh_members(nodes, facts, networks), facts, networks)
