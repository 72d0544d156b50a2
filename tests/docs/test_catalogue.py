"""The catalogue of what goes wrong: every row has an answer, and everything that it names exists."""

from __future__ import annotations

import re
from functools import cache

import pytest
from catalogue import HOW, Row, rows
from pages import ROOT

from clusterctl.codes.lookup import entries
from clusterctl.plans.checks.registry import all_checks
from clusterctl.protocol.known_errors import all_symptoms

all_rows = cache(rows)  # every process of a test run imports this file


@pytest.mark.parametrize("how", HOW)
def test_a_row_has_an_answer(how: str) -> None:
    """A check that sees it, a code that sends it, or a sentence why not."""
    assert [row.fails for row in all_rows() if row.how == how and not has_answer(row)] == []


def test_a_row_is_of_a_known_kind() -> None:
    """How it is noticed decides what its answer must be."""
    assert {row.how for row in all_rows()} == set(HOW)


def has_answer(row: Row) -> bool:
    """Return whether a row has what its kind must have."""
    if row.how == "check":
        return bool(set(row.codes) & all_checks().keys())
    if row.how == "run":
        return bool(row.codes or row.answer)
    return row.answer.endswith(".")


def test_a_row_is_tested() -> None:
    """By a case, by a known text, or by a test that provokes it; only what is not seen may lack all three."""
    known = {*all_checks(), *(one.code for one in all_symptoms())}
    untested = [
        row for row in all_rows() if row.how != "unseen" and not set(row.codes) & known and not row.tests
    ]
    assert [row.fails for row in untested if "sudo" not in row.fails] == []


def test_what_a_row_names_exists() -> None:
    """Its codes and its tests."""
    assert {code for row in all_rows() for code in row.codes} <= entries().keys()
    for test in {test for row in all_rows() for test in row.tests}:
        path, _, name = test.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        # a function of the file, or a method of one of its classes
        assert not name or re.search(rf"^(    )?def {name}\(", text, re.MULTILINE), test


def test_every_check_answers_some_row() -> None:
    """Or is about versions and settings, which the catalogue of failures does not hold."""
    beside = re.compile(r"CC-(SSH-0[0-3]|PY-|TORCH-|GPU-|NET-|SYS-01[0-2]|DEEP-|DISK-009)")
    named = {code for row in all_rows() for code in row.codes}
    assert [code for code in all_checks().keys() - named if not beside.match(code)] == []
