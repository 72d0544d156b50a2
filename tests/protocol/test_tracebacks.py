"""Tracebacks are found in the lines of a rank's stderr."""

from __future__ import annotations

import pytest

from clusterctl.protocol.tracebacks import StderrParser, find_tracebacks

TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize("between", [0, 2, 5])
def test_each_traceback_keeps_its_first_line(between: int) -> None:
    """Also where one follows the other at once: the lines before the second never reach back over the first."""
    lines = ["step 1", f"{TRACEBACK}:", *["  frame"] * between, f"{TRACEBACK}:", "ValueError: x"]
    blocks = [lines[block.begin : block.end] for block in find_tracebacks(lines, 4)]

    assert [sum(TRACEBACK in line for line in block) for block in blocks] == [1, 1]
    assert [line for block in blocks for line in block] == lines


def test_what_a_launcher_raises_does_not_replace_the_exception_of_its_rank() -> None:
    """Where both write into one log, as below accelerate; alone it counts, so that there is a cause at all."""
    launcher = [
        f"{TRACEBACK}:",
        '  File "/env/bin/accelerate", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ]
    rank = [
        f"{TRACEBACK}:",
        '  File "/run/code/train.py", line 7, in main',
        "    step()",
        "ValueError: bad batch",
    ]
    found = []
    for lines in ([*rank, *launcher], launcher):
        parser = StderrParser()
        for line in lines:
            parser.feed(line, 1.0)
        found.append((parser.exception, parser.own_frame))

    assert found == [
        ("ValueError: bad batch", ("/run/code/train.py", "7", "step()")),
        (launcher[-1].strip(), ("/env/bin/accelerate", "8")),
    ]
