"""Every claim of the page on security has its tests, and they exist."""

from __future__ import annotations

import re

import pytest
from pages import ROOT

PAGE = (ROOT / "docs" / "inside" / "security.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (S\d+) \|(.*)\|$", PAGE, re.MULTILINE))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_all_rows_are_there() -> None:
    """S1 to S25, in order."""
    assert list(ROWS) == [f"S{number}" for number in range(1, 26)]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_its_tests(row: str) -> None:
    """What could go wrong, what is done about it, and at least one test."""
    danger, practice, tests = (cell.strip() for cell in ROWS[row].split(" | "))

    assert danger
    assert practice
    assert re.fullmatch(r"(`tests/[\w/]+\.py::test_\w+` ?)+", tests + " ")


def test_a_named_test_exists() -> None:
    """A test that is renamed takes its row with it."""
    assert len(TESTS) > 50
    missing = [
        test for test in TESTS if f"def {test[1]}(" not in (ROOT / test[0]).read_text(encoding="utf-8")
    ]
    assert missing == []


@pytest.mark.parametrize(
    "words",
    [
        "`/proc/PID/cmdline`",
        "that someone else wrote can run code on your machine, as you",
        "may run code in the workers on the other nodes",
    ],
)
def test_the_page_reports_what_is_not_protected(words: str) -> None:
    """What others can see and do although all practices hold."""
    assert words in " ".join(PAGE.split())
