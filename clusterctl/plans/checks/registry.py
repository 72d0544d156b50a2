"""All checks, --only/--skip, waivers, evaluate()."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.checks import (
    access,
    collective,
    connectivity,
    gpu,
    gpu_health,
    nics,
    python,
    resources,
    routes,
    system,
    torch,
)
from clusterctl.plans.checks.access import MEANINGS
from clusterctl.plans.checks.framework import REGISTERED, SEVERITIES, Check, Finding, Here, Hit, Situation
from clusterctl.plans.diagnose.collective import Deep
from clusterctl.plans.diagnose.mesh import Wire
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.network import resolve_network
from clusterctl.specs.inventory.model import Node, Waiver
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names, select_nodes
from clusterctl.specs.text import nearest

# Beside nodes that gave no answer: with these findings no launch can work, whatever anybody says.
IMPOSSIBLE = frozenset(
    {"CC-TORCH-001", "CC-DISK-002", "CC-DISK-009", "CC-NET-001", "CC-NET-004", "CC-NET-005"}
)


@dataclass(frozen=True)
class Granted:
    """A waiver whose nodes are known."""

    code: str
    nodes: frozenset[str]
    told: str


@dataclass(frozen=True)
class Choice:
    """The codes that are left out, and the waivers; nodes that gave no answer are always told."""

    left_out: frozenset[str] = frozenset()
    waivers: tuple[Granted, ...] = ()

    def waiver_for(self, code: str, nodes: Collection[str]) -> str:
        """Give the reason for which a finding on some nodes does not count; empty if it does."""
        fitting = (one for one in self.waivers if one.code == code and one.nodes.issuperset(nodes))
        return next((one.told for one in fitting), "")


ALL_CHECKS = Choice()


def choose_checks(known: Mapping[str, Check], only: Sequence[str], skip: Sequence[str]) -> frozenset[str]:
    """Give the codes that are not to be judged; words are codes, families or globs, separated by commas.

    An unknown word is a UsageError that names the nearest. What says that a node gave no answer stays.
    """
    wanted = _meant(known, only) if only else frozenset(known)
    return frozenset(known) - (wanted - _meant(known, skip)) - MEANINGS.keys()


def _meant(known: Mapping[str, Check], words: Iterable[str]) -> frozenset[str]:
    parts = [part.strip() for word in words for part in word.split(",") if part.strip()]
    return frozenset(code for part in parts for code in _codes(known, part))


def _codes(known: Mapping[str, Check], word: str) -> list[str]:
    full = word.upper() if word.upper().startswith("CC-") else f"CC-{word.upper()}"
    found = [code for code in known if code == full or code.startswith(f"{full}-") or fnmatchcase(code, full)]
    if found:
        return found
    families = sorted({code.rpartition("-")[0] for code in known})
    guess = nearest(full, [*families, *known])
    meaning = f" ({known[guess].title})" if guess and guess in known else ""
    raise UsageError(
        f"no check is called {word!r}",
        code="CC-USE-050",
        fix=(f"did you mean {guess}{meaning}? " if guess else "")
        + f"Codes such as CC-NET-003, families ({', '.join(one[3:] for one in families)}) and globs can be chosen",
    )


def grant(known: Mapping[str, Check], waivers: Sequence[Waiver], names: Sequence[str]) -> tuple[Granted, ...]:
    """Find the nodes of waivers; `names` are the whole inventory's. UsageError for what cannot be waived."""
    return tuple(_granted(known, one, names) for one in waivers)


def _granted(known: Mapping[str, Check], waiver: Waiver, names: Sequence[str]) -> Granted:
    place = f"{waiver.file}: waive {waiver.code}"
    if waiver.code not in known:
        guess = nearest(waiver.code, known)
        hint = f"did you mean {guess} ({known[guess].title})?" if guess else "`clusterctl explain` lists all"
        raise UsageError(f"{place}: there is no such finding", code="CC-USE-050", fix=hint)
    if waiver.code in MEANINGS or waiver.code in IMPOSSIBLE:
        title = known[waiver.code].title
        raise UsageError(
            f"{place}: {title}: no launch could work, so this cannot be waived",
            code="CC-USE-051",
            fix="leave the node out with --exclude, and drop the waiver",
        )
    try:
        chosen = select_nodes(waiver.nodes, names)
    except UsageError as wrong:
        raise UsageError(f"{place}: {wrong.message}", code=wrong.code, fix=wrong.fix) from wrong
    return Granted(waiver.code, frozenset(names[at] for at in chosen), f"{waiver.reason} ({waiver.file})")


FAMILIES = (
    access,
    python,
    torch,
    gpu,
    gpu_health,
    system,
    nics,
    routes,
    connectivity,
    collective,
    resources,
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
    return in_order([*told, *access.failure_findings(situation)])


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
