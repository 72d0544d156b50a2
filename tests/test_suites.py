"""Every test is in one suite by cost, and `./test --quick` reads the folders of the cheapest."""

from __future__ import annotations

import re

import pytest
from suites import COSTS, TESTS, cost_of

ROOT = TESTS.parent
SUITES = {"unit", "process", "lab"}


class Item(pytest.Item):
    """A test at some place, with some marks."""

    def runtest(self) -> None:
        """Do nothing."""


def item(request: pytest.FixtureRequest, place: str, *marks: str) -> Item:
    """Make a test at a place below tests/."""
    made: Item = Item.from_parent(request.session, name="test_it")
    made.path = TESTS / place
    for mark in marks:
        made.add_marker(mark)
    return made


@pytest.mark.parametrize(
    ("place", "marks", "suite"),
    [
        ("specs/job/test_parse_job.py", (), "unit"),
        ("specs/job/test_parse_job.py", ("process",), "process"),
        ("specs/job/test_parse_job.py", ("variant",), "unit"),
        ("node/gang/test_gang.py", (), "process"),
        ("node/gang/test_gang.py", ("unit",), "unit"),
        ("test_layers.py", (), "unit"),
        ("test_packaging.py", (), "process"),
        ("hostile/test_attacks.py", (), "lab"),
        ("new/test_new.py", (), "process"),
        ("specs/test_a.py", ("unit", "lab"), ""),
    ],
)
def test_a_test_is_in_one_suite(
    request: pytest.FixtureRequest, place: str, marks: tuple[str, ...], suite: str
) -> None:
    """By its folder, unless it is marked."""
    assert cost_of(item(request, place, *marks)) == suite


def test_this_test_has_its_mark(request: pytest.FixtureRequest) -> None:
    """Each test is given the mark of its suite, so that `-m unit` finds it."""
    assert [mark.name for mark in request.node.iter_markers() if mark.name in SUITES] == ["unit"]


def test_the_quick_run_reads_every_place_of_unit_tests() -> None:
    """`./test --quick` names the places, since collecting all tests takes longer than a minute on a busy machine."""
    script = (ROOT / "test").read_text(encoding="utf-8")
    named = {
        word for line in re.findall(r"""unit=['"](?:\$unit )?([^'"]+)""", script) for word in line.split()
    }

    assert named == {f"tests/{place}" for place, suite in COSTS.items() if suite == "unit"}
    assert all((ROOT / place).exists() for place in named)
    assert set(COSTS.values()) == SUITES
