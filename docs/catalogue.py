"""The catalogue of what goes wrong (`catalogue.yaml`): as values, as tables of the manual, as `explain` tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from clusterctl.plans.checks.registry import all_checks

FILE = Path(__file__).parent / "catalogue.yaml"
FINDINGS = Path(__file__).parent / "en" / "findings.md"
HOW = {
    "check": "seen before a launch",
    "run": "reported when it happens",
    "design": "cannot happen, or does no harm",
    "unseen": "not seen cheaply",
}


@dataclass(frozen=True)
class Row:
    """One way to fail; `tests` are files or functions below tests/ in which it is provoked for real."""

    number: int
    part: str
    fails: str
    how: str
    codes: tuple[str, ...]
    tests: tuple[str, ...]
    answer: str = ""


def rows() -> list[Row]:
    """Read the catalogue."""
    parts = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))
    listed = [(part["part"], row) for part in parts for row in part["rows"]]
    return [
        Row(
            number,
            part,
            row["fails"],
            row["how"],
            tuple(row["codes"]),
            tuple(row["tests"]),
            row.get("answer", ""),
        )
        for number, (part, row) in enumerate(listed, 1)
    ]


def happens() -> dict[str, list[str]]:
    """Give for every code the ways to fail that it stands for."""
    found: dict[str, list[str]] = {}
    for row in rows():
        for code in row.codes:
            found.setdefault(code, []).append(row.fails)
    return dict(sorted(found.items()))


def share() -> str:
    """Say how much of the catalogue is covered."""
    count = Counter(row.how for row in rows())
    total = sum(count.values())
    counts = "; ".join(f"{count[how]} {meaning}" for how, meaning in HOW.items())
    return f"Of {total} ways to fail: {counts}."


def cells(part: str) -> Iterator[tuple[str, ...]]:
    """Give the rows of one part of the table."""
    for row in rows():
        if row.part == part:
            codes = ", ".join(f"[`{code}`](findings.md{anchor(code)})" for code in row.codes)
            answer = " ".join(text for text in (f"{HOW[row.how]}.".capitalize(), row.answer) if text)
            yield str(row.number), row.fails, answer, codes, tested(row)


def anchor(code: str) -> str:
    """Give the anchor of a code on the page of findings; errors of a family stand in one table there."""
    own = f"\n### {code}\n" in FINDINGS.read_text(encoding="utf-8")
    return f"#{code.lower()}" if own else ""


def tested(row: Row) -> str:
    """Say how a row is tested: by cases of plain values, by known texts, and for real."""
    known = all_checks()
    kinds = [
        "cases" if any(code in known for code in row.codes) else "",
        "texts" if any(code.startswith("CC-JOB-") for code in row.codes) else "",
        *(f"`{test.rpartition('::')[2] or test}`" for test in row.tests),
    ]
    return ", ".join(kind for kind in kinds if kind)
