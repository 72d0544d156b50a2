"""The suites of tests by cost: unit, process, lab."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

# What a test costs, by its place; the longest path that fits counts, and a mark on the test or its file overrides it.
COSTS = {
    "": "process",
    "codes": "unit",
    "specs": "unit",
    "plans": "unit",
    "console": "unit",
    "protocol": "unit",
    "test_layers.py": "unit",
    "test_hazards.py": "unit",
    "test_suites.py": "unit",
    "test_words.py": "unit",
    "test_table_of_findings.py": "unit",
    "hostile": "lab",
    "lab": "lab",
}
TESTS = Path(__file__).parents[1]


def cost_of(item: pytest.Item) -> str:
    """Give the suite of a test: unit, process or lab; nothing where its marks contradict each other."""
    marked = {mark.name for mark in item.iter_markers() if mark.name in COSTS.values()}
    if marked:
        return marked.pop() if len(marked) == 1 else ""
    return cost_of_place(item.path)


@cache
def cost_of_place(path: Path) -> str:
    """Give the suite of a file's tests: thousands of them ask, in each process that collects."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    places = ("/".join(parts[:size]) for size in range(len(parts), -1, -1))
    return next(COSTS[place] for place in places if place in COSTS)
