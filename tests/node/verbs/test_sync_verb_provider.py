"""The client names another provider while a node receives from one, or too late."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from hostile.giver import Giver, knock, send
from session import Session
from waiting import HANG

from clusterctl.node.sync.peers import PeerStream

TOKEN = "ab" * 32
DATA = bytes(range(256)) * 2000
SHA = hashlib.sha256(DATA).hexdigest()
HALF = len(DATA) // 2


def start(workdir: Path, provide: Any = None) -> Session:
    """Start a sync that lacks one content."""
    request = {"workdir": str(workdir), "run": None, "node": "gpu01", "node_rank": 0, "provide": provide}
    session = Session("sync", request)
    session.send(
        {"manifest": True},
        zlib.compress(json.dumps([["x.bin", "file", 0o644, SHA, len(DATA)]]).encode()),
    )
    return session


def source(giver: Giver, turn: int) -> dict[str, Any]:
    """Name a giver as the provider of a turn."""
    return {"source": {**giver.where, "turn": turn}}


def next_answer(session: Session) -> dict[str, Any]:
    """Return the next frame that is no beat."""
    while True:
        frame = session.receive()
        assert frame is not None
        if "beat" not in frame[0]:
            return frame[0]


def test_a_node_continues_with_the_provider_that_is_named_next(tmp_path: Path) -> None:
    """It leaves one that has sent a half and waits, and the next sends only the rest."""
    half_sent = threading.Event()

    def dawdle(taker: socket.socket) -> None:
        send(taker, {"blob": SHA, "last": False}, DATA[:HALF])
        half_sent.set()
        while True:
            send(taker, {"wait": True})
            time.sleep(1)  # a node counts 2 s for each, and leaves after 35

    def give_rest(taker: socket.socket) -> None:
        send(taker, {"blob": SHA, "last": True}, DATA[HALF:])
        send(taker, {"done": True})
        taker.recv(1)

    slow, fast = Giver(TOKEN, dawdle), Giver(TOKEN, give_rest)
    with start(tmp_path / "work") as session:
        assert next_answer(session) == {"missing": [SHA]}
        session.send(source(slow, 1))
        assert half_sent.wait(HANG)
        session.send(source(fast, 2))
        assert next_answer(session) == {"stored": True}
        assert next_answer(session)["bytes"] == len(DATA)
    slow.close()
    fast.close()


def test_a_problem_names_the_turn_of_its_provider(tmp_path: Path) -> None:
    """The client has named another by then: so it does not blame that one."""
    gone = Giver(TOKEN, lambda _taker: None)
    with start(tmp_path / "work") as session:
        next_answer(session)
        session.send(source(gone, 7))
        problem = {"missing": [SHA], "source_problem": "it closed the connection", "turn": 7}
        assert next_answer(session) == problem
    gone.close()


def test_a_provider_that_is_named_too_late_changes_nothing(tmp_path: Path) -> None:
    """The node has everything by then, and goes on sending it to others."""
    late = Giver(TOKEN, lambda _taker: None)
    with start(tmp_path / "work", {"address": "127.0.0.1", "ports": None, "token": TOKEN}) as session:
        port = next_answer(session)["port"]
        session.send({"blob": SHA, "at": 0, "last": True}, zlib.compress(DATA))
        session.send({"done": True})
        assert next_answer(session) == {"stored": True}
        next_answer(session)
        session.send(source(late, 1))
        with knock(port, TOKEN) as taker:
            send(taker, {"hashes": [SHA]})
            frame = PeerStream(taker, 1 << 16).receive_frame(HANG)
            assert frame is not None
            assert frame[1] == DATA
    late.close()
