"""Lines of many nodes in the order of time: nothing too early, nothing lost, every file's own order kept."""

from __future__ import annotations

import random
import socket
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.watch.follower import FollowParser, LogLines, NodeStreams
from clusterctl.client.watch.logs import LINE_OVERHEAD, LogReader, ReorderWindow, TimeMerger
from clusterctl.client.watch.streams import StreamEnd, Streams
from clusterctl.errors import ConnectionLost
from clusterctl.protocol.untrusted import Untrusted

LOST = ConnectionLost("CC-SSH-015", node="b")


def entry(node: str, file: str, offset: int, times: list[float], *, began: float | None = None) -> LogLines:
    """Lines of ten bytes each, which say of which file and the how manieth they are."""
    lines = tuple(f"{file}{offset // 10 + number:<4}" for number in range(len(times)))
    first = times[0] if began is None else began
    return LogLines(
        node, 0, "stdout", file, offset, None, lines, (10,) * len(times), times=tuple(times), began=first
    )


def test_a_line_waits_until_no_node_can_have_an_older_one() -> None:
    """Of whom is waited for, it is known by name."""
    order = TimeMerger(["a", "b"])
    order.add(entry("a", "x", 0, [1.0, 5.0]))
    assert list(order.pop_ready()) == []
    assert order.next_node == "b"
    order.add(entry("b", "y", 0, [3.0, 4.0]))
    assert [line for one in order.pop_ready() for line in one.lines] == ["x0   "]
    assert order.next_node == "a"
    order.finish("a")
    order.finish("b")
    assert order.next_node is None
    assert [line for one in order.pop_ready() for line in one.lines] == ["y0   ", "y1   ", "x1   "]


def test_a_clock_that_may_be_anything_holds_up_no_more_than_the_limit() -> None:
    """Lines of a node that might always send older ones are given out as they are, and none is lost."""
    limit = 50 * (LINE_OVERHEAD + 10)
    order, out = TimeMerger(["a", "b"], limit), list[str]()
    for number in range(100):
        order.add(entry("a", "x", number * 100, [1e11] * 10, began=0.0))
        out += reported(order.pop_ready())
        assert order._lines.held_bytes <= limit
    assert len(out) == 950 and order.next_node == "b"
    order.finish("a")
    order.finish("b")
    out += reported(order.pop_ready())
    assert out == [f"x{number}" for number in range(1000)]


def test_many_files_of_many_nodes() -> None:
    """Parcels come in the order of their first lines, as nodes send them; the lines come out in order of time."""
    generator, order = random.Random(4), TimeMerger([f"n{number}" for number in range(4)])
    shown: list[LogLines] = []
    queues = {}
    for node in range(4):
        parcels = []
        for file in range(3):
            times = sorted(map(float, generator.choices(range(200), k=120)))
            for place in range(0, 120, 15):
                parcels.append(entry(f"n{node}", f"{node}{file}-", place * 10, times[place : place + 15]))
        queues[f"n{node}"] = sorted(parcels, key=lambda parcel: parcel.began)
    while (name := order.next_node) is not None:
        if queues[name]:
            order.add(queues[name].pop(0))
        else:
            order.finish(name)
        shown += order.pop_ready()

    times = [moment for one in shown for moment in one.times]
    assert times == sorted(times) and len(times) == 4 * 3 * 120
    for file in {one.file for one in shown}:
        assert [int(line[3:]) for one in shown if one.file == file for line in one.lines] == list(range(120))
        assert [place for one in shown if one.file == file for place in one.offsets] == list(
            range(0, 1200, 10)
        )


def test_what_was_dropped_is_reported_before_the_lines_after_it() -> None:
    """Once, also where nothing follows."""
    order = TimeMerger(["a"])
    first, second = entry("a", "x", 0, [1.0]), entry("a", "x", 500, [7.0, 8.0], began=2.0)
    alone = LogLines("a", 1, "stdout", "y", 900, None, (), (), began=9.0, gone=(100, 900))
    for one in (first, LogLines(**{**vars(second), "gone": (10, 500)}), alone):
        order.add(one)
    order.finish("a")
    shown = [(one.file, len(one.lines), one.gone) for one in order.pop_ready()]
    assert shown == [("x", 1, None), ("x", 2, (10, 500)), ("y", 0, (100, 900))]


def test_what_an_attempt_wrote_while_we_were_away_is_asked_for() -> None:
    """After a cut, of every attempt from the first of which anything came; a node that knows its clock adds it."""
    wish = {"events": None, "logs": {"moment": 100.0}, "follow": True, "clock": True}
    streams = NodeStreams(
        RunHandle(Cluster(print), "r", [], {}), wish, notice=print, longest_pause=1.0, clocks={"a": 7.0}
    )
    first = streams._build_request("a")
    assert (first["logs"]["moment"], first["clock"], "since" in first["logs"]) == (100.0, True, False)
    streams._parser.offsets["a"] = {"attempt-2/x": 10, "attempt-3/x": 20}
    streams._measured.add("a")
    again = streams._build_request("a")
    assert (again["logs"]["since"], again["logs"]["moment"], "clock" in again) == (2, 107.0, False)
    streams.close()


class Pipe:
    """A node's stream, as a follower reads it."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.ended = False
        self.cut = False
        self.said: list[tuple[dict[str, Any], bytes]] = []

    def fileno(self) -> int:
        """Give what to wait on."""
        return self.near.fileno()

    def pump(self) -> list[tuple[Untrusted, bytes]]:
        """Give what was reported."""
        self.near.recv(64)
        return [(Untrusted(header), body) for header, body in self.said]

    def send_heartbeat(self) -> None:
        """Fail, if the way is cut."""
        if self.cut:
            raise LOST

    def check_silence(self, limit: float) -> None:
        """Mind no silence."""

    def close(self) -> None:
        """Hang up."""
        self.near.close()


def open_nothing(*_: object) -> NoReturn:
    """Stand for the way to nodes that no test opens."""
    raise AssertionError


def test_a_stream_that_is_cut_while_another_is_read_gives_way_to_the_next() -> None:
    """At its turn the node may not be back yet; what it reports when it is back is read."""
    first, second, again = Pipe(), Pipe(), Pipe()
    streams = Streams([], open_nothing, FollowParser().parse, pauses=(1.0, 1.0))
    streams.add("a", first)  # type: ignore[arg-type]  # all that is wanted of a session
    streams.add("b", second)  # type: ignore[arg-type]  # the same
    assert list(streams.updates(0, only="a")) == []
    second.cut, streams._last_beat = True, 0.0
    assert list(streams.updates(0, only="a")) == [StreamEnd("b", LOST)]
    assert list(streams.updates(0, only="b")) == []
    streams.add("b", again)  # type: ignore[arg-type]  # the same
    again.said.append(({"log": "x", "offset": 0, "rank": 1, "stream": "stdout"}, b"here\n"))
    again.far.send(b".")
    (lines,) = streams.updates(1.0, only="b")
    assert isinstance(lines, LogLines)
    assert lines.lines == ("here",)
    streams.close()


def test_a_node_that_hung_up_while_others_were_read_is_asked_again_at_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often that was: its tries are for the time when someone reads."""
    reading = LogReader(RunHandle(Cluster(print), "r", [], {}), {"follow": False}, clocks={})
    opened: list[str] = []
    monkeypatch.setattr(reading._streams, "reopen", lambda name, _: opened.append(name))
    monkeypatch.setattr(reading._streams, "updates", lambda _, **__: iter(()))
    for _ in range(9):
        assert list(reading._retry_cut(StreamEnd("b", LOST), "a")) == []
    assert opened == []
    assert list(reading._read("a")) == [] and opened == []
    assert list(reading._read("b")) == [] and opened == ["b"]
    assert list(reading._retry_cut(StreamEnd("b", LOST), "b")) == []
    assert opened == ["b", "b"]
    reading._streams.close()


def reported(entries: Any) -> list[str]:
    """Give the lines that came out."""
    return [line.strip() for one in entries for line in one.lines]


def test_lines_that_are_followed_wait_a_moment_for_older_ones() -> None:
    """What comes within the moment is put in order, across nodes; nothing waits longer."""
    window = ReorderWindow(hold=1.0)
    window.add(entry("a", "x", 0, [10.0, 10.4]), 100.0, 10.5)
    window.add(entry("b", "y", 0, [10.2, 10.6]), 100.5, 10.7)
    assert reported(window.pop_ready(100.9)) == []
    assert reported(window.pop_ready(101.0)) == ["x0", "y0", "x1"]
    assert reported(window.pop_ready(101.5)) == ["y1"]


def test_a_clock_that_is_ahead_moves_no_line() -> None:
    """A time in the future counts as the moment of arrival, and so does what is no time at all."""
    window = ReorderWindow(hold=1.0)
    window.add(entry("liar", "z", 0, [float("inf"), float("nan"), 4e9]), 100.0, 10.0)
    window.add(entry("a", "x", 0, [9.9, 10.8]), 100.9, 10.9)
    assert reported(window.pop_ready(101.0)) == ["x0", "z0", "z1", "z2"]
    assert reported(window.pop_ready(101.9)) == ["x1"]


def test_a_node_that_is_late_delays_no_other() -> None:
    """Its lines go when they come; a clock that is behind does no more, and its own order stays."""
    window = ReorderWindow(hold=1.0)
    for number in range(5):
        window.add(entry("a", "x", number * 10, [10.0 + number]), 100.0 + number, 10.0 + number)
    assert reported(window.pop_ready(104.0)) == ["x0", "x1", "x2", "x3"]
    window.add(entry("late", "y", 0, [3.0, 2.0, 3.5]), 104.0, 14.0)
    assert reported(window.pop_ready(104.1)) == ["y0", "y1", "y2"]
    assert reported(window.pop_all()) == ["x4"]


def test_a_flood_does_not_wait() -> None:
    """However much comes in a moment, no more than the limit is kept: the oldest go first, and none is lost."""
    window, out = ReorderWindow(hold=1.0, max_bytes=50 * (LINE_OVERHEAD + 10)), []
    for number in range(100):
        moments = [float(number)] * 10
        window.add(entry("a", "x", number * 100, moments), 0.0, 1000.0)
        out += reported(window.pop_ready(0.0))
        assert window._lines.held_bytes <= 50 * (LINE_OVERHEAD + 10)
    assert len(out) == 950
    out += reported(window.pop_all())
    assert out == [f"x{number}" for number in range(1000)]


def test_what_was_dropped_from_a_log_stands_before_its_lines() -> None:
    """Also where only that is reported."""
    window = ReorderWindow(hold=1.0)
    gone = replace(entry("a", "x", 50, [10.0]), gone=(0, 50))
    window.add(gone, 100.0, 10.0)
    window.add(replace(gone, lines=(), sizes=(), times=(), gone=(60, 70)), 100.0, 10.0)
    assert [(one.gone, reported([one])) for one in window.pop_ready(102.0)] == [
        ((0, 50), ["x5"]),
        ((60, 70), []),
    ]
