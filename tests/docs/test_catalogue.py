"""The catalogue of what goes wrong: every row has an answer, and everything that it names exists."""

from __future__ import annotations

import re
import sys

import pytest
from pages import ROOT

from clusterctl.codes.lookup import entries
from clusterctl.plans.checks.registry import all_checks
from clusterctl.protocol.known_errors import all_symptoms

sys.path.insert(0, str(ROOT / "docs"))

from catalogue import HOW, Row, rows

ROWS = rows()
ids = pytest.mark.parametrize("row", ROWS, ids=[f"{row.number}" for row in ROWS])


@ids
def test_a_row_has_an_answer(row: Row) -> None:
    """A check that sees it, a code that sends it, or a sentence why not."""
    assert row.how in HOW
    if row.how == "check":
        assert set(row.codes) & all_checks().keys()
    elif row.how == "run":
        assert row.codes or row.answer
    else:
        assert row.answer.en.endswith(".") and row.answer.zh.endswith("\u3002")


@ids
def test_both_languages_quote_the_same(row: Row) -> None:
    """Errors and commands in backquotes, and an answer in both or in none."""
    for text in (row.fails, row.answer):
        assert bool(text.en) == bool(text.zh)
        assert sorted(re.findall(r"`[^`]*`", text.en)) == sorted(re.findall(r"`[^`]*`", text.zh))


@ids
def test_a_row_is_tested(row: Row) -> None:
    """By a case, by a known text, or by a test that provokes it; only what is not seen may lack all three."""
    told = {*all_checks(), *(one.code for one in all_symptoms())}
    assert row.how == "unseen" or set(row.codes) & told or row.tests or "sudo" in row.fails.en


@ids
def test_what_a_row_names_exists(row: Row) -> None:
    """Its codes and its tests."""
    assert set(row.codes) <= entries().keys()
    for test in row.tests:
        path, _, name = test.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), test


def test_every_check_answers_some_row() -> None:
    """Or is about versions and settings, which the catalogue of failures does not hold."""
    beside = re.compile(r"CC-(SSH-0[0-3]|PY-|TORCH-|GPU-|NET-|SYS-01[0-2]|DEEP-|DISK-009)")
    named = {code for row in ROWS for code in row.codes}
    assert [code for code in all_checks().keys() - named if not beside.match(code)] == []
