"""All checks, and their verdict on a situation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks import (
    collective,
    disks,
    gpu,
    gpu_state,
    locks,
    network,
    nic_choice,
    paths,
    python,
    rdma,
    ssh,
    system,
    torch,
    wire,
    wire_carry,
)
from clusterctl.plans.checks.check import REGISTERED, SEVERITIES, Check, Finding, Hit, Situation
from clusterctl.plans.deep import Deep
from clusterctl.plans.facts import Facts
from clusterctl.plans.network import resolve_network
from clusterctl.plans.wire import Wire
from clusterctl.specs.inventory import Node
from clusterctl.specs.job import Job
from clusterctl.specs.nodeset import fold_names

FAMILIES = (
    ssh,
    python,
    torch,
    gpu,
    gpu_state,
    locks,
    network,
    paths,
    nic_choice,
    rdma,
    wire,
    wire_carry,
    collective,
    disks,
    system,
)  # importing a family registers its checks
MOST_FIXES = 4
MOST_EVIDENCE = 12


def checks() -> Mapping[str, Check]:
    """Give every check by its code."""
    return dict(sorted(REGISTERED.items()))


def evaluate(
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    failures: Mapping[str, ClusterctlError],
    job: Job | None = None,
    wire: Wire | None = None,
    deep: Deep | None = None,
) -> tuple[Finding, ...]:
    """Judge the nodes, for a job if there is one; findings come worst first. `nodes[0]` is the master."""
    networks = {node.name: resolve_network(node, facts.get(node.name)) for node in nodes}
    situation = Situation(tuple(nodes), facts, failures, networks, job, wire=wire, deep=deep)
    places = {node.name: place for place, node in enumerate(nodes)}
    findings = [_finding(one, hits, places) for one, hits in _all_hits(situation)]
    findings += ssh.failure_findings(situation)
    return tuple(sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), one.code)))


def _all_hits(situation: Situation) -> Iterable[tuple[Check, list[Hit]]]:
    for one in REGISTERED.values():
        hits = list(one.find(situation.knowing(one.needs)))
        if hits:
            yield one, hits


def _finding(one: Check, hits: Sequence[Hit], places: Mapping[str, int]) -> Finding:
    nodes = sorted({name for hit in hits for name in hit.nodes}, key=places.__getitem__)
    return Finding(
        one.code, one.severity, tuple(nodes), join_evidence(hits), one.why, join_fixes(hits), one.title
    )


def join_evidence(hits: Sequence[Hit]) -> str:
    """Tell what was seen, nodes with the same evidence folded into one line."""
    alike: dict[str, list[str]] = {}
    for hit in hits:
        alike.setdefault(hit.evidence, []).extend(() if hit.shared else hit.nodes)
    lines = [f"{fold_names(names)}: {text}" if names else text for text, names in alike.items()]
    more = [f"and {len(lines) - MOST_EVIDENCE} more"] if len(lines) > MOST_EVIDENCE else []
    return "\n".join([*lines[:MOST_EVIDENCE], *more])


def join_fixes(hits: Sequence[Hit]) -> str:
    """Give the first few remedies and say for which nodes the same is to be done."""
    fixes: dict[str, list[str]] = {}
    for hit in hits:
        if hit.fix:
            fixes.setdefault(hit.fix, []).extend(hit.nodes)
    rest = [name for names in list(fixes.values())[MOST_FIXES:] for name in names]
    more = [f"# and likewise on {fold_names(rest)}"] if rest else []
    return "\n".join([*list(fixes)[:MOST_FIXES], *more])
