"""The table of findings names tests that exist; `hostile/test_attacks.py` looks at the rows of attacks in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS / "hostile" / "FINDINGS.md").read_text(encoding="utf-8")
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


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
