"""Which findings follow from another one, so that they are shown in one line below their cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusterctl.plans.checks.framework import SEVERITIES, Finding

_CONNECTIONS = tuple(f"CC-NET-{number:03}" for number in (6, 7, 9, 30, 31, 32, 33, 34, 35, 36))
_WRONG_ENVIRONMENT = (
    *("CC-PY-010", "CC-PY-012", "CC-PY-013", "CC-PY-014", "CC-PY-015"),
    *(f"CC-TORCH-{number:03}" for number in range(1, 11)),
)
CONSEQUENCES: Mapping[str, tuple[str, ...]] = {
    "CC-NET-001": _CONNECTIONS,
    "CC-NET-002": ("CC-NET-004", "CC-NET-016", *_CONNECTIONS),
    "CC-NET-003": _CONNECTIONS,
    "CC-NET-004": _CONNECTIONS,
    "CC-NET-005": _CONNECTIONS,
    "CC-NET-009": ("CC-NET-031", "CC-NET-034"),
    "CC-NET-016": ("CC-NET-004", *_CONNECTIONS),
    "CC-SYS-001": ("CC-NET-008",),
    "CC-SYS-002": ("CC-NET-008",),
    "CC-PY-011": _WRONG_ENVIRONMENT,
    "CC-TORCH-001": ("CC-PY-015",),
    "CC-GPU-004": ("CC-GPU-001", "CC-GPU-003", "CC-GPU-008", "CC-GPU-009", "CC-GPU-016"),
    "CC-GPU-016": ("CC-GPU-003", "CC-GPU-008"),
    "CC-DISK-009": ("CC-DISK-008", "CC-SYS-011"),
}


def fold_consequences(findings: Sequence[Finding]) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """Give each finding with those that follow from it; these do not stand in the list by themselves.

    A finding follows from one that is as severe, about at least the same nodes, and has no cause itself.
    """
    causes = {id(finding): _find_cause(finding, findings) for finding in findings}
    return [
        (finding, tuple(other for other in findings if causes[id(other)] is finding))
        for finding in findings
        if causes[id(finding)] is None
    ]


def _find_cause(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    found = (cause for cause in findings if _is_caused_by(finding, cause))
    return next(
        (cause for cause in found if not any(_is_caused_by(cause, other) for other in findings)), None
    )


def _is_caused_by(finding: Finding, cause: Finding) -> bool:
    return (
        finding.code in CONSEQUENCES.get(cause.code, ())
        and not finding.waived
        and not cause.waived
        and SEVERITIES.index(cause.severity) <= SEVERITIES.index(finding.severity)
        and set(finding.nodes) <= set(cause.nodes)
    )
