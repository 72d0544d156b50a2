"""A content that is sent on while it arrives: what a receiver gets of it, frame by frame."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG

from clusterctl.node.sync import outgoing
from clusterctl.node.sync.outgoing import Outgoing
from clusterctl.node.sync.peers import PeerStream
from clusterctl.node.sync.store import Store
from clusterctl.node.sync.transfer import unpack_frame

DATA = bytes(range(256)) * 16_000  # 4 MB, in parts of 1 MiB
SHA = hashlib.sha256(DATA).hexdigest()
SIZE = len(DATA)
HALF = SIZE // 2


class Receiver:
    """The other end of what a thread gives."""

    def __init__(self, store: Store, held: dict[str, int]) -> None:
        own, other = socket.socketpair()
        self._sockets = own, other
        self._stream = PeerStream(own, 1 << 20)
        sender = Outgoing(store, {SHA: SIZE}, PeerStream(other, 1 << 20), held)
        self._thread = threading.Thread(target=sender.send, args=([SHA], frozenset({SHA})), daemon=True)
        self._thread.start()

    def read(self) -> tuple[dict[str, Any], memoryview]:
        """Return the next frame that says more than that nothing has come."""
        while True:
            frame = self._stream.receive_frame(HANG)
            assert frame is not None
            if "wait" not in frame[0]:
                return frame

    def read_bytes(self, size: int) -> tuple[bytes, bool]:
        """Return so many bytes of the content, and whether that is said to be all."""
        data, last = b"", False
        while len(data) < size:
            ((sha, part, last),) = unpack_frame(*self.read())
            assert sha == SHA
            data += part
        return data, last

    def close(self) -> None:
        """Leave."""
        for one in self._sockets:
            one.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store without contents."""
    (tmp_path / "work").mkdir(mode=0o700)
    with Store(str(tmp_path / "work")) as store:
        yield store


def test_all_but_the_last_byte_is_sent_before_the_hash_is_right(store: Store) -> None:
    """The receiver has what is here; the last byte follows when the content is whole."""
    receiver = Receiver(store, {})
    store.add(SHA, DATA[:HALF], SIZE, last=False)
    assert receiver.read_bytes(HALF) == (DATA[:HALF], False)
    store.add(SHA, DATA[HALF:], SIZE, last=False)
    assert receiver.read_bytes(SIZE - HALF - 1) == (DATA[HALF:-1], False)
    store.add(SHA, b"", SIZE, last=True)
    assert receiver.read_bytes(1) == (DATA[-1:], True)
    assert receiver.read()[0] == {"done": True}
    receiver.close()


def test_a_content_that_was_wrong_begins_again(store: Store) -> None:
    """What was sent of it is taken back, before anything of the new one is sent."""
    receiver = Receiver(store, {})
    store.add(SHA, b"x" * HALF, SIZE, last=False)
    assert receiver.read_bytes(HALF)[0] == b"x" * HALF
    store.abandon()
    assert receiver.read()[0] == {"again": SHA}
    store.add(SHA, DATA[:HALF], SIZE, last=False)
    store.add(SHA, DATA[HALF:], SIZE, last=True)
    assert receiver.read_bytes(SIZE) == (DATA, True)
    assert receiver.read()[0] == {"done": True}
    receiver.close()


def test_a_receiver_that_has_a_part_gets_the_rest(store: Store) -> None:
    """Nothing that it has is sent, whether the content arrives or is whole."""
    receiver = Receiver(store, {SHA: HALF})
    store.add(SHA, DATA[:HALF], SIZE, last=False)
    store.add(SHA, DATA[HALF:], SIZE, last=True)
    assert receiver.read_bytes(SIZE - HALF) == (DATA[HALF:], True)
    assert receiver.read()[0] == {"done": True}
    receiver.close()
    late = Receiver(store, {SHA: SIZE - 5})
    assert late.read_bytes(5) == (DATA[-5:], True)
    assert late.read()[0] == {"done": True}
    late.close()


def test_a_receiver_gets_wait_while_nothing_comes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not take the node for dead."""
    monkeypatch.setattr(outgoing, "WAIT_INTERVAL", 0.05)
    own, other = socket.socketpair()
    sender = Outgoing(store, {SHA: SIZE}, PeerStream(other, 1 << 20), {})
    threading.Thread(target=sender.send, args=([SHA], frozenset({SHA})), daemon=True).start()
    stream = PeerStream(own, 1 << 20)
    assert [stream.receive_frame(HANG) for _ in range(3)] == [({"wait": True}, b"")] * 3
    store.add(SHA, DATA, SIZE, last=True)
    while stream.receive_frame(HANG) != ({"done": True}, b""):
        pass
    own.close()
    other.close()


OTHER = {hashlib.sha256(bytes([number])).hexdigest(): bytes([number]) for number in range(20)}


def test_other_contents_wake_no_receiver(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others arrive it gets no `wait` for each of them."""
    monkeypatch.setattr(outgoing, "WAIT_INTERVAL", HANG)
    own, other = socket.socketpair()
    sender = Outgoing(store, {SHA: SIZE}, PeerStream(other, 1 << 20), {})
    threading.Thread(target=sender.send, args=([SHA], frozenset({SHA})), daemon=True).start()
    for sha, data in OTHER.items():
        store.add(sha, data, 1)
    store.add("b" * 64, b"x", SIZE, last=False)
    store.add(SHA, DATA, SIZE)
    stream = PeerStream(own, 1 << 20)
    frame = stream.receive_frame(HANG)
    assert frame is not None
    assert frame[0].keys() == {"blob", "last"}
    while stream.receive_frame(HANG) != ({"done": True}, b""):
        pass
    own.close()
    other.close()


def test_a_slow_uplink_is_reported_though_something_comes_all_the_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver's limit does not run while contents are awaited here, however short each wait is."""
    monkeypatch.setattr(outgoing, "WAIT_INTERVAL", 0.05)
    own, other = socket.socketpair()
    sizes = dict.fromkeys(OTHER, 1)
    given = PeerStream(other, 1 << 20)
    given.deadline = deadline = time.monotonic() + HANG
    sender = Outgoing(store, sizes, given, {})
    threading.Thread(target=sender.send, args=(list(OTHER), frozenset(OTHER)), daemon=True).start()
    for sha, data in OTHER.items():
        time.sleep(0.03)
        store.add(sha, data, 1)
    stream = PeerStream(own, 1 << 20)
    waits = 0
    while (frame := stream.receive_frame(HANG)) != ({"done": True}, b""):
        assert frame is not None
        waits += "wait" in frame[0]
    assert waits >= 5
    assert given.deadline == pytest.approx(deadline + waits * 0.05)
    own.close()
    other.close()


def test_a_content_that_has_gone_is_no_longer_here(store: Store) -> None:
    """A second attempt wants it again: it is waited for, and sent once."""
    store.add(SHA, DATA, SIZE)
    store.received.forget({SHA})
    receiver = Receiver(store, {})
    store.add(SHA, DATA, SIZE)
    assert receiver.read_bytes(SIZE) == (DATA, True)
    assert receiver.read()[0] == {"done": True}
    receiver.close()
