"""Lines of logs: those of a traceback stay together where lines are put in the order of time."""

from __future__ import annotations

from clusterctl.cli.actions.monitor.ui.log_text import hold_together
from clusterctl.client.watch.follower import LogLines
from clusterctl.protocol.ranks import Rank

LINES = ("loading", "Traceback (most recent call last):", '  File "a.py", line 3', "ValueError: x", "bye")


def test_a_traceback_has_one_time() -> None:
    """That of its last line; other lines keep theirs, and stdout is left alone."""
    times = (1.0, 2.0, 3.0, 4.0, 5.0)
    entry = LogLines("gpu01", Rank(0), "stderr", "a", 0, None, LINES, (1,) * 5, times=times)
    assert hold_together(entry).times == (1.0, 4.0, 4.0, 4.0, 5.0)
    marked = tuple(f"[rank0]: {line}" for line in LINES)
    again = LogLines("gpu01", Rank(0), "stderr", "a", 0, None, marked, (1,) * 5, times=times)
    assert hold_together(again).times == (1.0, 4.0, 4.0, 4.0, 5.0)
    plain = LogLines("gpu01", Rank(0), "stdout", "a", 0, None, LINES, (1,) * 5, times=times)
    assert hold_together(plain).times == times
