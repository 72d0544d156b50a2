"""Judge nodes by all checks: which of them are left out or waived, what they saw, and the findings that follow."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from clusterctl.errors import UsageError
from clusterctl.plans.checks import (
    access,
    collective,
    connectivity,
    gpu,
    nics,
    python,
    resources,
    routes,
    script,
    staged,
    system,
    torch,
)
from clusterctl.plans.checks.access import UNANSWERED
from clusterctl.plans.checks.framework import (
    REGISTERED,
    SEVERITIES,
    Check,
    CheckContext,
    Finding,
    Hit,
    Observations,
    of_nodes,
    run_on_nodes,
)
from clusterctl.plans.launch.network import resolve_network
from clusterctl.specs.inventory.model import Node, Waiver
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names, group_values, select_nodes
from clusterctl.specs.text import find_nearest
from clusterctl.translation import tr

# Beside nodes that gave no answer: with these findings no launch can work, whatever is skipped.
UNWAIVABLE = frozenset(
    {"CC-TORCH-001", "CC-DISK-002", "CC-DISK-009", "CC-NET-001", "CC-NET-004", "CC-NET-005"}
)
# importing a family registers its checks
FAMILIES = (
    access,
    python,
    torch,
    gpu,
    system,
    nics,
    routes,
    connectivity,
    collective,
    resources,
    script,
    staged,
)
MAX_FIXES = 4
MAX_EVIDENCE = 12
MAX_ALIKE = 3  # lines that differ in numbers alone
NUMBER = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True)
class AppliedWaiver:
    """A waiver whose nodes are known."""

    code: str
    nodes: frozenset[str]
    reason: str


@dataclass(frozen=True)
class CheckSelection:
    """The codes that are left out, and the waivers; nodes that gave no answer are always reported."""

    skipped: frozenset[str] = frozenset()
    waivers: tuple[AppliedWaiver, ...] = ()

    def waiver_for(self, code: str, nodes: Collection[str]) -> str:
        """Return the reason for which a finding on some nodes does not count; empty if it does."""
        matching = (
            waiver for waiver in self.waivers if waiver.code == code and waiver.nodes.issuperset(nodes)
        )
        return next((waiver.reason for waiver in matching), "")


ALL_CHECKS = CheckSelection()


def choose_checks(only: Sequence[str], skip: Sequence[str]) -> frozenset[str]:
    """Return the codes that are not to be judged; words are codes, families or globs, separated by commas.

    An unknown word is a UsageError that names the nearest. A finding that a node gave no answer stays.
    """
    every = frozenset(REGISTERED)
    selected = _expand_patterns(only) if only else every
    return every - (selected - _expand_patterns(skip)) - set(UNANSWERED)


def _expand_patterns(patterns: Iterable[str]) -> frozenset[str]:
    parts = [part.strip() for word in patterns for part in word.split(",") if part.strip()]
    return frozenset(code for part in parts for code in _match_codes(part))


def _match_codes(pattern: str) -> list[str]:
    known = all_checks()
    full = pattern.upper() if pattern.upper().startswith("CC-") else f"CC-{pattern.upper()}"
    matches = [
        code for code in known if code == full or code.startswith(f"{full}-") or fnmatchcase(code, full)
    ]
    if matches:
        return matches
    families = sorted({code.rpartition("-")[0] for code in known})
    guess = find_nearest(full, [*families, *known])
    meaning = f" ({tr(known[guess].entry.title)})" if guess and guess in known else ""
    raise UsageError(
        "CC-USE-050",
        "check-near" if guess else "check",
        pattern=pattern,
        guess=f"{guess}{meaning}",
        families=", ".join(family[3:] for family in families),
    )


def resolve_waivers(waivers: Sequence[Waiver], names: Sequence[str]) -> tuple[AppliedWaiver, ...]:
    """Find the nodes of waivers; `names` are the whole inventory's. UsageError for what cannot be waived."""
    return tuple(_resolve_waiver(waiver, names) for waiver in waivers)


def _resolve_waiver(waiver: Waiver, names: Sequence[str]) -> AppliedWaiver:
    known = all_checks()
    location = f"{waiver.file}: waive {waiver.code}"
    if waiver.code not in known:
        guess = find_nearest(waiver.code, known)
        title = tr(known[guess].entry.title) if guess else ""
        case = "waiver-near" if guess else "waiver"
        raise UsageError("CC-USE-050", case, location=location, guess=guess, title=title)
    if waiver.code in UNANSWERED or waiver.code in UNWAIVABLE:
        title = tr(known[waiver.code].entry.title)
        raise UsageError("CC-USE-051", location=location, title=title)
    try:
        indices = select_nodes(waiver.nodes, names)
    except UsageError as error:
        error.message = f"{location}: {error.message}"
        raise
    return AppliedWaiver(
        waiver.code, frozenset(names[index] for index in indices), f"{waiver.reason} ({waiver.file})"
    )


def all_checks() -> Mapping[str, Check]:
    """Return every check by its code."""
    return dict(sorted(REGISTERED.items()))


def evaluate(
    nodes: Sequence[Node],
    observed: Observations,
    job: Job | None = None,
    selection: CheckSelection = ALL_CHECKS,
) -> tuple[Finding, ...]:
    """Judge the nodes, for a job if there is one; findings come worst first, what is waived last.

    `nodes[0]` is the master.
    """
    networks = {node.name: resolve_network(node, observed.facts.get(node.name)) for node in nodes}
    context = CheckContext(**vars(observed), nodes=tuple(nodes), networks=networks, job=job)
    selected_checks = [check for check in REGISTERED.values() if check.code not in selection.skipped]
    findings = [
        _make_finding(check, hits, waived, context)
        for check, waived, hits in _all_hits(selected_checks, context, selection)
    ]
    return sort_findings([*findings, *access.failure_findings(context)])


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, what is waived last."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (bool(finding.waived), SEVERITIES.index(finding.severity), finding.code),
        )
    )


def _all_hits(
    selected: Iterable[Check], context: CheckContext, selection: CheckSelection
) -> Iterable[tuple[Check, str, list[Hit]]]:
    """Yield what each check saw, apart by severity and by the waiver that holds for it."""
    for check in selected:
        narrowed = context.with_answers(check.needs)
        hits = (hit.with_fix(check.code, narrowed) for hit in check.find(narrowed))
        groups = group_values(
            ((selection.waiver_for(check.code, hit.nodes), hit.severity or check.entry.severity), hit)
            for hit in hits
        )
        yield from ((check, waived, same) for (waived, _), same in groups.items())


def _make_finding(check: Check, hits: Sequence[Hit], waived: str, context: CheckContext) -> Finding:
    names = {name for hit in hits for name in hit.nodes}
    nodes = tuple(node.name for node in context.nodes if node.name in names)
    evidence, fix = join_evidence(hits), join_fixes(hits, context.program)
    severity = hits[0].severity or check.entry.severity
    why, title = tr(check.entry.why), tr(check.entry.title)
    return Finding(check.code, severity, nodes, evidence, why=why, fix=fix, title=title, waived=waived)


def join_evidence(hits: Sequence[Hit]) -> str:
    """Write what was seen, nodes with the same evidence folded into one line."""
    names_by_text: dict[str, list[str]] = {}
    for hit in hits:
        names_by_text.setdefault(hit.evidence, []).extend(() if hit.shared else hit.nodes)
    lines = [of_nodes(names, text) if names else text for text, names in _fold_similar(names_by_text)]
    more = [tr("and {count} more", count=len(lines) - MAX_EVIDENCE)] if len(lines) > MAX_EVIDENCE else []
    return "\n".join([*lines[:MAX_EVIDENCE], *more])


def _fold_similar(names_by_text: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield texts with their nodes; many that differ in numbers alone become one."""
    texts_by_shape = group_values(
        (NUMBER.sub("0", text) if names else text, text) for text, names in names_by_text.items()
    )
    for texts in texts_by_shape.values():
        if len(texts) <= MAX_ALIKE:
            yield from ((text, names_by_text[text]) for text in texts)
        else:
            first = names_by_text[texts[0]][0]
            yield (
                tr("{text} ({node}; similar on the others)", text=texts[0], node=first),
                [name for text in texts for name in names_by_text[text]],
            )


def join_fixes(hits: Sequence[Hit], program: str = "clusterctl") -> str:
    """Return the first few fixes, nodes with the same command folded into one, and name the nodes of the others."""
    names_by_fix: dict[tuple[str, str], list[str]] = {}
    for hit in hits:
        if hit.command or hit.fix:
            names = hit.command_nodes if hit.command else hit.nodes
            names_by_fix.setdefault((hit.command, hit.fix), []).extend(names)
    lines = [
        "  # ".join(filter(None, (run_on_nodes(program, dict.fromkeys(names), command), fix)))
        if command
        else fix
        for (command, fix), names in list(names_by_fix.items())[:MAX_FIXES]
    ]
    other_names = [name for names in list(names_by_fix.values())[MAX_FIXES:] for name in names]
    more = [tr("# the same on {nodes}", nodes=fold_names(other_names))] if other_names else []
    return "\n".join([*lines, *more])
