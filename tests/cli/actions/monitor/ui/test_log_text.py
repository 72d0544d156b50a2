"""Lines of logs: those of a traceback stay together in the order of time, and a file of all hides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from clusterctl.cli.actions.monitor.ui import log_text
from clusterctl.cli.actions.monitor.ui.feed import Cursor, View
from clusterctl.cli.actions.monitor.ui.log_text import IncompleteError, LogText, hold_together, read_whole_log
from clusterctl.cli.actions.monitor.ui.source import ClusterSource, RunFollower
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.errors import ConnectionLost
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId

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


def piece(text: str, **more: Any) -> LogLines:
    """Make a line of a rank."""
    entry = LogLines("gpu01", Rank(0), "stdout", "a", 0, None, (text,), (1,), times=(0.0,))
    return replace(entry, **more)


def render(*entries: LogLines) -> list[str]:
    """Write entries, and leave out their times."""
    text = LogText()
    return [
        line.partition(" ")[2]
        for line in ("".join(map(text.render, entries)) + text.finish_line()).splitlines()
    ]


def test_a_long_line_is_one_line() -> None:
    """Where the lines of another file come in between, its rest is marked."""
    rest, other = piece("bc", continues=True), piece("other", file="b")
    assert render(piece("a"), rest, piece("d")) == ["gpu01 r0 | abc", "gpu01 r0 | d"]
    assert render(piece("a"), other, rest) == ["gpu01 r0 | a", "gpu01 r0 | other", "gpu01 r0 + bc"]


def test_what_was_dropped_is_named_at_its_place() -> None:
    """Before the lines that come after it, in the file and on the page."""
    dropped = piece("a", gone=(0, 2048))
    first, second = render(piece("z"), dropped)[1:]
    assert first.startswith("gpu01 r0 ~ 2.0 kB of this log are missing here") and second == "gpu01 r0 | a"
    view = View("digits-20261123T070708-923c")
    RunFollower(ClusterSource.__new__(ClusterSource), view)._add_lines(dropped)
    found = view.read(Cursor(), 0)
    assert found is not None and [line.text[:3] for line in found[1]] == ["~ 2", "a"]


def test_a_clock_that_is_far_off_ends_no_file() -> None:
    """Its number stands in place of the time."""
    text = LogText()
    assert text.render(piece("a", times=(-1e11,))) == "-100000000000 gpu01 r0 | a"


def test_a_file_has_all_attempts_and_names_who_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end once more: what is missing may be anywhere; a node that was lost meanwhile makes it a failure."""
    asked: list[Any] = []

    class Reader:
        """Gives a line of one node, nothing for a while, and the failure of another."""

        def __init__(self, _: RunHandle, request: Any, **__: Any) -> None:
            asked.append(request["logs"])

        def read_by_time(self) -> Iterator[list[LogLines] | StreamEnd]:
            """Return them."""
            yield [piece("a")]
            yield []
            yield StreamEnd("gpu02", ConnectionLost("CC-SSH-015", node="gpu02"))

    monkeypatch.setattr(log_text, "LogReader", Reader)
    read, pieces = read_whole_log(RunHandle(Cluster(print), RunId("r"), [], {}), {}, ["gpu03"]), list[str]()
    with pytest.raises(IncompleteError, match=r"^not all was read from gpu\[02-03\]$"):
        pieces.extend(read)
    assert [logs["since"] for logs in asked] == [1] and "attempt" not in asked[0]
    assert pieces[1] == "" and "".join(pieces).splitlines()[1].startswith("gpu02: CC-SSH-015")


def test_a_file_without_the_lines_of_a_silent_node_says_so_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no failure, which would leave no file; neither is a log that something else has replaced."""

    class Reader:
        """Gives a line, and what is in place of a log."""

        def __init__(self, *_: object, **__: Any) -> None:
            pass

        def read_by_time(self) -> Iterator[list[LogLines] | ReplacedLog]:
            """Return them."""
            yield [piece("a")]
            yield ReplacedLog("gpu02", "rank1.out", "link")

    monkeypatch.setattr(log_text, "LogReader", Reader)
    text = "".join(read_whole_log(RunHandle(Cluster(print), RunId("r"), [], {}), {}, ["gpu03"]))
    assert text.endswith("\nthis log is not complete: not all was read from gpu[02-03]\n")
