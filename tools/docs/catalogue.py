"""The catalogue of known failures (`catalogue.yaml`): as values, as tables, and as `explain` shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from tables import table

from clusterctl.plans.checks.registry import all_checks

FILE = Path(__file__).parent / "catalogue.yaml"
HOW = {
    "check": "found before a launch",
    "run": "reported when it happens",
    "design": "cannot happen, or does no harm",
    "unseen": "not detected",
}
HEADINGS = ("what goes wrong", "what is done about it", "codes", "tested by")


@dataclass(frozen=True)
class Row:
    """One known failure; `tests` are files or functions below tests/ in which it is provoked for real."""

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
            part,
            row["fails"],
            row["how"],
            tuple(row["codes"]),
            tuple(row["tests"]),
            row.get("answer", ""),
        )
        for part, row in listed
    ]


def happens() -> dict[str, list[str]]:
    """Return for every code the known failures that it stands for."""
    found: dict[str, list[str]] = {}
    for row in rows():
        for code in row.codes:
            found.setdefault(code, []).append(row.fails)
    return dict(sorted(found.items()))


def failing(part: str) -> str:
    """Write one part of the catalogue; without a part, how much of it is covered."""
    return table(HEADINGS, cells(part)) if part else share() + "\n"


def share() -> str:
    """Give the number of known failures of each kind."""
    count = Counter(row.how for row in rows())
    total = sum(count.values())
    return f"Of {total} known failures: {'; '.join(f'{count[how]} {HOW[how]}' for how in HOW)}."


def cells(part: str) -> Iterator[tuple[str, ...]]:
    """Give the rows of one part of the table."""
    for row in rows():
        if row.part == part:
            codes = ", ".join(f"[`{code}`](../en/reference/codes.md#{code.lower()})" for code in row.codes)
            how = HOW[row.how]
            answer = f"{how[0].upper()}{how[1:]}.{' ' if row.answer else ''}{row.answer}"
            yield row.fails, answer, codes, tested(row)


def tested(row: Row) -> str:
    """Name how a row is tested: by cases of plain values, by known texts, and for real."""
    known = all_checks()
    kinds = [
        "cases" if any(code in known for code in row.codes) else "",
        "texts" if any(code.startswith("CC-JOB-") for code in row.codes) else "",
        *(f"`{test.rpartition('::')[2] or test}`" for test in row.tests),
    ]
    return ", ".join(kind for kind in kinds if kind)
