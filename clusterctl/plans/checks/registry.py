"""All checks, and their verdict on a situation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks import (
    clock,
    collective,
    disks,
    gpu,
    gpu_health,
    gpu_state,
    locks,
    network,
    nic_choice,
    paths,
    python,
    rdma,
    room,
    setup,
    shell,
    ssh,
    system,
    torch,
    wire,
    wire_carry,
)
from clusterctl.plans.checks.check import REGISTERED, SEVERITIES, Check, Finding, Here, Hit, Situation
from clusterctl.plans.checks.choosing import ALL_CHECKS, Choice
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
    setup,
    torch,
    gpu,
    gpu_state,
    gpu_health,
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
    clock,
    room,
    shell,
)  # importing a family registers its checks
MOST_FIXES = 4
MOST_EVIDENCE = 12
MOST_ALIKE = 3  # lines that differ in numbers alone
NUMBER = re.compile(r"\d+(?:\.\d+)*")


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
    choice: Choice = ALL_CHECKS,
    here: Here | None = None,
) -> tuple[Finding, ...]:
    """Judge the nodes, for a job if there is one; findings come worst first, what is waived last.

    `nodes[0]` is the master.
    """
    networks = {node.name: resolve_network(node, facts.get(node.name)) for node in nodes}
    situation = Situation(
        tuple(nodes), facts, failures, networks, job, wire=wire, deep=deep, here=here or Here()
    )
    places = {node.name: place for place, node in enumerate(nodes)}
    judged = [one for one in REGISTERED.values() if one.code not in choice.left_out]
    told = [_finding(one, hits, places, waived) for one, waived, hits in _all_hits(judged, situation, choice)]
    return in_order([*told, *ssh.failure_findings(situation)])


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, what is waived last."""
    return tuple(
        sorted(findings, key=lambda one: (bool(one.waived), SEVERITIES.index(one.severity), one.code))
    )


def _all_hits(
    judged: Iterable[Check], situation: Situation, choice: Choice
) -> Iterable[tuple[Check, str, list[Hit]]]:
    """Give what each check saw, apart by the waiver that holds for it."""
    for one in judged:
        groups: dict[str, list[Hit]] = {}
        for hit in one.find(situation.knowing(one.needs)):
            groups.setdefault(choice.waiver_for(one.code, hit.nodes), []).append(hit)
        yield from ((one, waived, hits) for waived, hits in groups.items())


def _finding(one: Check, hits: Sequence[Hit], places: Mapping[str, int], waived: str) -> Finding:
    nodes = tuple(sorted({name for hit in hits for name in hit.nodes}, key=places.__getitem__))
    evidence, fix = join_evidence(hits), join_fixes(hits)
    return Finding(one.code, one.severity, nodes, evidence, one.why, fix, one.title, waived)


def join_evidence(hits: Sequence[Hit]) -> str:
    """Tell what was seen, nodes with the same evidence folded into one line."""
    alike: dict[str, list[str]] = {}
    for hit in hits:
        alike.setdefault(hit.evidence, []).extend(() if hit.shared else hit.nodes)
    lines = [f"{fold_names(names)}: {text}" if names else text for text, names in _fold_shapes(alike)]
    more = [f"and {len(lines) - MOST_EVIDENCE} more"] if len(lines) > MOST_EVIDENCE else []
    return "\n".join([*lines[:MOST_EVIDENCE], *more])


def _fold_shapes(alike: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Give texts with their nodes; many that differ in numbers alone become one."""
    shapes: dict[str, list[str]] = {}
    for text, names in alike.items():
        shapes.setdefault(NUMBER.sub("0", text) if names else text, []).append(text)
    for texts in shapes.values():
        if len(texts) <= MOST_ALIKE:
            yield from ((text, alike[text]) for text in texts)
        else:
            first = alike[texts[0]][0]
            yield (
                f"{texts[0]} ({first}; the others are alike)",
                [name for text in texts for name in alike[text]],
            )


def join_fixes(hits: Sequence[Hit]) -> str:
    """Give the first few remedies and say for which nodes the same is to be done."""
    fixes: dict[str, list[str]] = {}
    for hit in hits:
        if hit.fix:
            fixes.setdefault(hit.fix, []).extend(hit.nodes)
    rest = [name for names in list(fixes.values())[MOST_FIXES:] for name in names]
    more = [f"# and likewise on {fold_names(rest)}"] if rest else []
    return "\n".join([*list(fixes)[:MOST_FIXES], *more])
