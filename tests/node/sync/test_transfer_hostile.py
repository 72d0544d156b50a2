"""Nodes that pass code on, one of which is hostile: it is bounded in bytes and time, and nothing of it stays."""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hostile.giver import Deed, Giver, knock, send
from waiting import wait_until

from clusterctl.node.runtime.stream import Stream
from clusterctl.node.sync import transfer
from clusterctl.node.sync.peers import MAX_BODY
from clusterctl.node.sync.store import Store
from clusterctl.protocol.frames import encode_frame

TOKEN = "ab" * 32
DATA = b"print(1)\n" * 500
SHA = hashlib.sha256(DATA).hexdigest()
OTHER = hashlib.sha256(b"another run's").hexdigest()
SLOW = 60.0  # seconds; only that nothing goes on for ever


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close all in the end."""
    with ExitStack() as stack:
        yield stack


def endless(header: Any, body: bytes) -> Deed:
    """Send one frame again and again, until the taker has had enough."""

    def deed(taker: socket.socket) -> None:
        while True:
            send(taker, header, body)

    return deed


def frames(*sent: tuple[Any, bytes]) -> Deed:
    """Send some frames."""

    def deed(taker: socket.socket) -> None:
        for header, body in sent:
            send(taker, header, body)
        taker.recv(1)  # until it hangs up

    return deed


def drip(taker: socket.socket) -> None:
    """Give one byte at a time, in frames that are whole."""
    for place in range(len(DATA)):
        send(taker, {"blob": SHA, "last": False}, DATA[place : place + 1])
        time.sleep(0.05)


def drip_bytes(taker: socket.socket) -> None:
    """Give one frame, a byte at a time."""
    for byte in encode_frame({"blobs": [[SHA, len(DATA)]]}, DATA):
        taker.sendall(bytes([byte]))
        time.sleep(0.05)


def begin_again(taker: socket.socket) -> None:
    """Send a part and discard it, again and again."""
    while True:
        send(taker, {"blob": SHA, "last": False}, DATA[:1])
        send(taker, {"again": SHA}, b"")
        time.sleep(0.05)


def raw(content: bytes) -> Deed:
    """Send bytes that are no frame."""
    return lambda taker: taker.sendall(content)


# What it does, and what is reported of it.
GIVERS: dict[str, tuple[Deed, str]] = {
    "more than its size": (
        endless({"blob": SHA, "last": False}, bytes(1 << 16)),
        "more than its 4500 bytes",
    ),
    "pieces of nothing": (endless({"blob": SHA, "last": False}, b""), "empty piece"),
    "frames of nothing": (endless({"blobs": []}, b""), "an empty frame"),
    "frames of another kind": (endless({"beat": 1}, b""), "an empty frame"),
    "not asked for": (frames(({"blob": OTHER, "last": True}, b"another run's")), "not requested"),
    "something else": (frames(({"blob": SHA, "last": True}, DATA[::-1])), "changed in transfer"),
    "a huge body": (raw(b"40 %d\n" % (MAX_BODY + 1)), "too large"),
    "sizes that cannot be": (
        frames(({"blobs": [[SHA, -1], [SHA, 10**30]]}, DATA)),
        "number that is too large",
    ),
    "sizes below nothing": (frames(({"blobs": [[SHA, -1]]}, DATA)), "cannot be read"),
    "names of no type": (frames(({"blobs": [[["x"], 1], 5]}, DATA)), "not requested"),
    "done at once": (frames(({"done": True}, b"")), "does not have all contents"),
    "a header that is a list": (frames(([1], b"")), "without a header"),
    "a huge header": (raw(b"60000000 0\n" + b"{"), "too large"),
    "a deep header": (raw(b"30000 0\n" + b"[" * 30_000), "nested too deeply"),
    "no frame": (raw(b"x" * 200), "not a frame"),
    "hangs up": (lambda _taker: None, "closed the connection"),
    "a byte now and then": (drip, "too slow"),
    "a frame a byte at a time": (drip_bytes, "too slow"),
    "waits without end": (frames(*[({"wait": True}, b"")] * 1000), "too slow"),
    "begins without end": (begin_again, "too slow"),
}

WRONG_CONTENT = ("more than its size", "pieces of nothing", "something else", "done at once")


@pytest.mark.parametrize("name", GIVERS)
def test_a_hostile_giver_is_left(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is reported what is wrong with it; nothing that it sent stays, and all is still known to be missing."""
    monkeypatch.setattr(transfer, "GRACE", 1.0 if "slow" in GIVERS[name][1] else 30.0)
    deed, why = GIVERS[name]
    giver = Giver(TOKEN, deed)
    stack.callback(giver.close)
    (tmp_path / "work").mkdir(mode=0o700)
    missing, began = {SHA}, time.monotonic()
    with Store(str(tmp_path / "work")) as store:
        problem = transfer.receive(
            store, {SHA: len(DATA)}, missing, giver.where, lambda _size, _waited: False
        )
        stored = store.has(SHA, len(DATA))
    left = [path for path in (tmp_path / "work" / "store").rglob("*") if path.is_file()]

    assert why in str(problem)
    assert (getattr(problem, "code", "") == "CC-SYNC-009") == (name in WRONG_CONTENT)
    assert time.monotonic() - began < SLOW
    assert not stored
    assert left == []
    assert missing == {SHA}


@pytest.mark.parametrize("length", [len(DATA), 1])
def test_what_a_hostile_giver_has_begun_does_not_stop_the_next(
    tmp_path: Path, stack: ExitStack, length: int
) -> None:
    """It gave a part, or all but the end, and hung up: the next one gives the whole, and is not blamed."""
    first = Giver(TOKEN, frames(({"blob": SHA, "last": False}, b"x" * length), ({"blob": ""}, b"")))
    second = Giver(TOKEN, frames(({"blobs": [[SHA, len(DATA)]]}, DATA), ({"done": True}, b"")))
    stack.callback(first.close)
    stack.callback(second.close)
    (tmp_path / "work").mkdir(mode=0o700)
    missing = {SHA}
    with Store(str(tmp_path / "work")) as store:
        first_problem = transfer.receive(
            store, {SHA: len(DATA)}, missing, first.where, lambda _size, _waited: False
        )
        second_problem = transfer.receive(
            store, {SHA: len(DATA)}, missing, second.where, lambda _size, _waited: False
        )
        assert store.has(SHA, len(DATA))
    assert first_problem
    assert second_problem is None
    assert missing == set()


class Giving:
    """A real giver, with one content of its tree and one of another."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir(mode=0o700)
        self.store = stack.enter_context(Store(str(folder)))
        self.store.add(SHA, DATA, len(DATA))
        self.store.add(OTHER, b"another run's", 100)
        offer = {"address": "127.0.0.1", "ports": None, "token": TOKEN}
        self.giver = transfer.Provider(self.store, {SHA: len(DATA)}, offer)
        stack.callback(self.giver.close)
        self.where = {"address": "127.0.0.1", "port": self.giver.port, "token": TOKEN, "index": 1}

    def serves(self, folder: Path) -> bool:
        """Return whether an honest taker gets what it needs."""
        folder.mkdir(mode=0o700)
        with Store(str(folder)) as store:
            return (
                transfer.receive(store, {SHA: len(DATA)}, {SHA}, self.where, lambda _size, _waited: False)
                is None
            )


def read_all(conn: socket.socket) -> list[Any]:
    """Read the headers of all frames up to the end."""
    stream, found = Stream(conn.fileno(), conn.fileno()), []
    while (frame := stream.receive(SLOW)) is not None:
        found.append(frame[0])
        if frame[0].get("done"):
            break
    return found


def test_only_what_belongs_to_the_tree_is_given(tmp_path: Path, stack: ExitStack) -> None:
    """The store has the files of other runs too: a name alone opens nothing, nor does a path, nor asking twice."""
    giving = Giving(tmp_path / "work", stack)
    with knock(giving.giver.port, TOKEN) as taker:
        send(taker, {"hashes": [OTHER]})
        assert read_all(taker) == [{"done": True}]
    with knock(giving.giver.port, TOKEN) as taker:
        send(taker, {"hashes": ["../../id"]})
        assert read_all(taker) == [{"done": True}]
    with knock(giving.giver.port, TOKEN) as taker:
        send(taker, {"hashes": [SHA, SHA, SHA]})
        assert read_all(taker)[0] == {"blobs": [[SHA, len(DATA)]]}


WISHES = [
    {"hashes": "everything"},
    {"hashes": None},
    {},
    [],
    {"hashes": [[SHA], 7, None]},
    {"hashes": [SHA] * 10_000},
]


@pytest.mark.parametrize("wish", WISHES, ids=range(len(WISHES)))
def test_an_odd_request_does_no_harm(tmp_path: Path, stack: ExitStack, wish: Any) -> None:
    """Whoever asks for nonsense gets nothing, and the next one is served."""
    giving = Giving(tmp_path / "work", stack)
    with knock(giving.giver.port, TOKEN) as taker, suppress(OSError):
        send(taker, wish)
        assert not any("blobs" in header for header in read_all(taker))
    assert giving.serves(tmp_path / "next")


def test_a_taker_that_does_not_read_is_left(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a byte now and then; the giver does not stay with it for longer than the contents may take."""
    monkeypatch.setattr(transfer, "GRACE", 1.0)
    monkeypatch.setattr(transfer, "MIN_RATE", 1e9)
    (tmp_path / "work").mkdir(mode=0o700)
    large = secrets.token_bytes(1 << 20) * 16
    sha = hashlib.sha256(large).hexdigest()
    store = stack.enter_context(Store(str(tmp_path / "work")))
    store.add(sha, large, len(large))
    giver = transfer.Provider(
        store, {sha: len(large)}, {"address": "127.0.0.1", "ports": None, "token": TOKEN}
    )
    stack.callback(giver.close)
    with knock(giver.port, TOKEN) as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send(taker, {"hashes": [sha]})
        began, got = time.monotonic(), 0
        while time.monotonic() - began < SLOW:
            time.sleep(0.05)
            piece = taker.recv(1024)
            got += len(piece)
            if not giver_is_busy():
                break
    assert not giver_is_busy()
    assert got < len(large)


def test_a_giver_that_closes_leaves_those_that_wait(tmp_path: Path, stack: ExitStack) -> None:
    """What is to come to it will not: they need not wait for as long as it might have taken."""
    giving = Giving(tmp_path / "work", stack)
    lacking = "c" * 64
    giving.giver._sizes[lacking] = 1000
    giving.giver.coming = frozenset({lacking})
    with knock(giving.giver.port, TOKEN) as taker:
        send(taker, {"hashes": [lacking]})
        wait_until(lambda: bool(giving.giver._receivers), "the taker is served")
        giving.giver.close()
        taker.settimeout(SLOW)
        while taker.recv(1 << 16):
            pass
    wait_until(lambda: not giving.giver._receivers, "its thread ends")


def giver_is_busy() -> bool:
    """Return whether a giver attends to anybody."""
    return any("_handle" in thread.name for thread in threading.enumerate())


def test_strangers_do_not_keep_takers_away(tmp_path: Path, stack: ExitStack) -> None:
    """Many that connect and say nothing have no place that a taker needs; the oldest go first."""
    giving = Giving(tmp_path / "work", stack)
    for _ in range(3 * transfer.MAX_PENDING):
        stack.enter_context(socket.create_connection(("127.0.0.1", giving.giver.port), 10))
    assert giving.serves(tmp_path / "next")
    assert len(giving.giver._listener._pending) <= transfer.MAX_PENDING


def test_a_header_is_bounded_by_what_the_tree_holds(tmp_path: Path, stack: ExitStack) -> None:
    """A list of wishes that is longer than all contents' names is not even read."""
    giving = Giving(tmp_path / "work", stack)
    with knock(giving.giver.port, TOKEN) as taker, suppress(OSError):
        send(taker, {"hashes": [SHA] * 10_000})
        assert taker.recv(10) == b""
    assert giving.serves(tmp_path / "next")
