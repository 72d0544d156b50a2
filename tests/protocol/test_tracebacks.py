"""Tracebacks are found in the lines of a rank's stderr."""

from __future__ import annotations

import pytest

from clusterctl.protocol.tracebacks import find_tracebacks

TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize("between", [0, 2, 5])
def test_each_traceback_keeps_its_first_line(between: int) -> None:
    """Also where one follows the other at once: the lines before the second never reach back over the first."""
    lines = ["step 1", f"{TRACEBACK}:", *["  frame"] * between, f"{TRACEBACK}:", "ValueError: x"]
    blocks = [lines[block.begin : block.end] for block in find_tracebacks(lines, 4)]

    assert [sum(TRACEBACK in line for line in block) for block in blocks] == [1, 1]
    assert [line for block in blocks for line in block] == lines
