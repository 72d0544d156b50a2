"""Every test is in one suite by cost, and `./test --quick` reads the folders of the cheapest."""

from __future__ import annotations

import re

from suites import COSTS, TESTS

ROOT = TESTS.parent
SUITES = {"unit", "process", "lab"}


def test_the_quick_run_reads_every_place_of_unit_tests() -> None:
    """`./test --quick` names the places, since collecting all tests takes longer than a minute on a busy machine."""
    script = (ROOT / "test").read_text(encoding="utf-8")
    named = {
        word for line in re.findall(r"""unit=['"](?:\$unit )?([^'"]+)""", script) for word in line.split()
    }

    assert named == {f"tests/{place}" for place, suite in COSTS.items() if suite == "unit"}
    assert all((ROOT / place).exists() for place in named)
    assert set(COSTS.values()) == SUITES
