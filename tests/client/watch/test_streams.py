"""Streams of many nodes: opened in threads, opened again where they broke, and none left open."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from waiting import HANG, wait_until

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.streams import MAX_BARREN, StreamEnd, Streams, UtilizationStreams, can_reconnect
from clusterctl.errors import ConnectionLost
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

NODE = Node(name="gpu01", index=0, host="127.0.0.1")
LOST = ConnectionLost("CC-SSH-015", node="gpu01")


class Session:
    """A session that has some frames, or is cut, and then reports nothing more."""

    def __init__(self, *headers: dict[str, Any] | ConnectionLost) -> None:
        self.near, self.far = socket.socketpair()
        self.headers, self.ended, self.closed = list(headers), False, False
        if headers:
            self.far.send(b".")

    def fileno(self) -> int:
        """Give what to wait on."""
        return self.near.fileno()

    def pump(self) -> Any:
        """Give what came."""
        self.near.recv(64)
        for header in self.headers:
            if isinstance(header, ConnectionLost):
                raise header
            self.ended = self.ended or header.get("end", False)
            yield Untrusted(header), b""

    def send_heartbeat(self) -> None:
        """No one receives it."""

    def check_silence(self, limit: float) -> None:
        """Mind no silence."""

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self.near.close()


def values(_: str, header: Untrusted, __: bytes) -> list[int]:
    """Parse frames of these tests."""
    return [header.count("value")] if "value" in header else []


def read(streams: Any, count: int) -> list[Any]:
    """Read so many updates."""
    found: list[Any] = []
    until = time.monotonic() + HANG
    while len(found) < count and time.monotonic() < until:
        found += streams.updates(0.05)
    return found


def test_a_stream_that_broke_is_opened_again_and_counts_from_there() -> None:
    """Each try in a row waits longer; what the node reports ends the row."""
    sessions, stale = [Session(LOST), Session({"value": 7}, LOST), Session({"value": 8})], list[bool]()

    def open_session(_: Node, is_stale: bool) -> Any:
        stale.append(is_stale)
        return sessions[len(stale) - 1]

    streams = Streams([NODE], open_session, values, pauses=(0.01, 0.02))
    streams.open_all()
    assert read(streams, 1) == [StreamEnd("gpu01", LOST)]
    streams.reopen("gpu01", LOST)
    assert streams.tries == {"gpu01": 1}
    assert read(streams, 2) == [7, StreamEnd("gpu01", LOST)]
    assert streams.tries == {}
    streams.reopen("gpu01", None)
    assert read(streams, 1) == [8]
    streams.close()
    assert stale == [False, True, False]
    assert all(session.closed for session in sessions)


def test_a_node_whose_streams_bring_nothing_new_is_given_up() -> None:
    """What any stream begins with is not new: a node that sends only that and breaks would be opened again for ever."""
    opened: list[Session] = []

    def open_session(_: Node, __: bool) -> Any:
        opened.append(Session({"value": 7}, *([{"value": 8}] if len(opened) == 2 else []), LOST))
        return opened[-1]

    streams = Streams([NODE], open_session, values, pauses=(0.0, 0.0), is_new=lambda value: value != 7)
    streams.open_all()
    ends = list[StreamEnd]()
    while not ends or can_reconnect(ends[-1].error):
        ends += [update for update in streams.updates(0.05) if isinstance(update, StreamEnd)]
        assert len(ends) <= 3 + MAX_BARREN
        if ends and len(ends) == len(opened):
            streams.reopen("gpu01", ends[-1].error)
    streams.close()
    assert len(ends) == 3 + MAX_BARREN - 1 + 1  # the third brought something
    assert ends[-1].error is not None
    assert ends[-1].error.code == "CC-RUN-037"


def test_a_stream_that_opens_when_no_client_reads_any_more_is_closed() -> None:
    """Its process on the node would stay otherwise, for as long as the program does."""
    session, may_open, opening = Session(), threading.Event(), threading.Event()

    def open_session(*_: object) -> Any:
        opening.set()
        may_open.wait(HANG)
        return session

    streams = Streams([NODE], open_session, values, pauses=(1.0, 1.0))
    streams.open_all()
    assert opening.wait(HANG)
    streams.close()
    may_open.set()
    wait_until(lambda: session.closed, "its end")


def test_a_node_that_ends_its_samples_is_reported_and_comes_back() -> None:
    """With `reconnect`; without, the reason is all that there is of it."""
    for reconnect in (False, True):
        top = UtilizationStreams(Cluster(print), [NODE], {}, 1.0, reconnect=reconnect)
        again: list[str] = []
        top.reopen = lambda name, _, again=again: again.append(name)  # type: ignore[method-assign, misc]
        top.add("gpu01", Session({"sample": {"cpu": 1.0}}, {"end": True}))  # type: ignore[arg-type]
        outcomes = read(top, 2)
        top.close()
        assert [outcome.error.code for outcome in outcomes if outcome.error] == ["CC-RUN-003"]
        assert again == (["gpu01"] if reconnect else [])
