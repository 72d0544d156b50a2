"""The table of findings names tests that exist, and rows of the table of attacks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = (TESTS / "hostile" / "FINDINGS.md").read_text(encoding="utf-8")
# `verb: payload.case`, as the rows of the attacks name themselves
ROW = re.compile(r"`([a-z][a-z ,-]*: [a-z]+\.[\w-]+)`")
# `folder/test_x.py::test_y[case]`, or `::test_z` for a further one of the file that stands before it
NAMED = re.compile(r"`([\w/]*\.py)?::(test_\w+)")


def test_every_test_that_is_named_exists() -> None:
    """A test that is renamed or removed takes its line of the table along."""
    missing, file = [], ""
    for found in NAMED.finditer(TABLE):
        file = found[1] or file
        path = TESTS / file
        if not path.is_file() or found[2] not in _tests_of(path):
            missing.append(f"{file}::{found[2]}")
    assert len(NAMED.findall(TABLE)) > 100
    assert missing == []


def test_every_row_that_is_named_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the attacks that is taken out is no longer reported to hold a finding; `(all)` and `(bench)` count."""
    monkeypatch.syspath_prepend(TESTS / "hostile")
    from test_attacks import rows

    named = ROW.findall(TABLE)
    assert len(named) > 30
    assert set(named) - {str(row) for row in rows(everything=True)} == set()


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
