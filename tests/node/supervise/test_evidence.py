"""The end of a rank's stderr: the last tracebacks, cut out of it."""

from __future__ import annotations

import pytest

from clusterctl.node.supervise.evidence import Line, tracebacks

TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize("between", range(6))
def test_each_traceback_keeps_its_first_line(between: int) -> None:
    """Also where one follows the other at once: the lines before the second never reach back over the first."""
    texts = ["step 1", f"{TRACEBACK}:", *["  frame"] * between, f"{TRACEBACK}:", "ValueError: x"]
    blocks = tracebacks([Line(place, text) for place, text in enumerate(texts)])

    assert [sum(TRACEBACK in line.text for line in block) for block in blocks] == [1, 1]
    assert [line.text for block in blocks for line in block] == texts
