"""The gang with real processes, one path each; all other orders are replayed in memory by test_transcripts.py."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gangs import GangRun
from noderun import NodeRun
from waiting import HANG, wait_until

Make = Callable[..., NodeRun]


def test_a_failure_on_one_node_ends_all(node: Make) -> None:
    """Nobody watches: the others are stopped, and all write the same record of the cause."""
    gang = GangRun(node).prepare().join().go()
    began = time.time()
    gang.tell(1, "raise ValueError('bad loss')")
    states = gang.ended()

    assert [state["state"] for state in states] == ["STOPPED", "FAILED", "STOPPED"]
    assert states[0]["reason"] == states[2]["reason"] == "gpu02: rank 1 exited with 1"
    records = [gang.record(rank) for rank in range(3)]
    assert records[0] == records[1] == records[2]
    assert (records[0]["whole"], records[0]["stop"]["node"]) == (True, "gpu02")
    parts = {part["node"]: part for part in records[0]["parts"]}
    assert [part["state"] for part in parts.values()] == ["STOPPED", "FAILED", "STOPPED"]
    (failure,) = parts["gpu02"]["failures"]
    assert (failure["rank"], failure["exit"], failure["signal"]) == (1, 1, None)
    ((block,)) = failure["tracebacks"]
    assert block["lines"][0] == "Traceback (most recent call last):"
    assert failure["tail"][-1] == block["lines"][-1] == "ValueError: bad loss"
    # seconds since 1970, by the hub's clock, which each node knows as well as a loaded machine lets it
    assert all(abs(moment - began) < HANG for moment in (block["at"], failure["time"]))
    assert all((node.rundir / "gang.json").stat().st_mode & 0o777 == 0o600 for node in gang.nodes)


def test_all_well_is_known_to_all(node: Make) -> None:
    """A node that ends early waits for the others without being called lost, and all say that all went well."""
    gang = GangRun(node, 2, gang_limit=5.0).prepare().join().go()
    gang.tell(1, "pass")
    wait_until(lambda: gang.nodes[1].state()["state"] == "SUCCEEDED", "one that ends early")
    time.sleep(6.0)
    early = gang.nodes[1].state()
    gang.tell(0, "pass")
    states = gang.ended()

    assert (early["gang_done"], [state["state"] for state in states]) == (False, ["SUCCEEDED"] * 2)
    assert all(state["gang_done"] for state in states)
    assert gang.record(0) == gang.record(1)
    assert (gang.record(1)["whole"], gang.record(1)["stop"]) == (True, None)
    (follow, *_) = [
        frame[0] for frame in gang.nodes[1].verb("follow", follow=True, events=0) if "state" in frame[0]
    ]
    assert follow["state"]["gang"]["whole"] is True


def test_a_stop_on_one_node_is_a_stop_on_all(node: Make) -> None:
    """Also where that node's part has ended already: everybody has the grace of the one who asked."""
    gang = GangRun(node, grace=30.0).prepare().join().go()
    gang.tell(2, "pass")
    wait_until(lambda: gang.nodes[2].state()["state"] == "SUCCEEDED", "one that ends early")
    (*_, said) = (frame[0] for frame in gang.nodes[2].verb("stop", grace=3.0, reason="stopped by ann@laptop"))
    states = gang.ended()

    assert [state["state"] for state in states] == ["STOPPED", "STOPPED", "SUCCEEDED"]
    assert {state["reason"] for state in states[:2]} == {"stopped by ann@laptop"}
    assert said == {"end": True}
    assert gang.nodes[1].event("stopping")["grace"] == 3.0


def test_a_silent_node_is_lost(node: Make) -> None:
    """An agent that sends nothing for the limit is given up, and the rest is ended."""
    gang = GangRun(node, gang_limit=5.0, agent_limit=3600.0).prepare().join().go()
    frozen = gang.nodes[1]
    os.kill(frozen.pid("agent"), signal.SIGSTOP)
    rest = [one for one in gang.nodes if one is not frozen]
    wait_until(lambda: not any(one.is_alive() for one in rest), "the rest ended")
    states = [one.state() for one in rest]
    os.kill(frozen.pid("agent"), signal.SIGCONT)
    gang.ended()

    assert all(state["state"] == "STOPPED" and "silent for 5 s" in state["reason"] for state in states)
    assert frozen.state()["state"] == "STOPPED"


def memory_of(pid: int) -> int:
    """Read a process's resident memory in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def descriptors_of(pid: int) -> int:
    """Count a process's open files."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def knock(gang: GangRun) -> socket.socket:
    """Connect to the hub as a stranger."""
    return socket.create_connection(("127.0.0.1", gang.port), HANG)


def read_line(stranger: socket.socket) -> bytes:
    """Read up to a newline, or what came before the end."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while not said.endswith(b"\n") and (piece := stranger.recv(1)):
            said += piece
    return said


def proof(gang: GangRun, purpose: str, rank: int, hub_nonce: str, peer_nonce: str) -> str:
    """Prove the token as the protocol says."""
    facts = [purpose, gang.nodes[0].spec["run"], rank, f"gpu0{rank + 1}", hub_nonce, peer_nonce]
    return hmac.new(gang.token.encode(), json.dumps(facts).encode(), hashlib.sha256).hexdigest()


GARBAGE = [
    b"\n\n\n\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"[" * 1000 + b"\n",
    b'{"slot": 1, "node": "gpu02", "nonce": "' + b"0" * 32 + b'", "proof": "' + b"0" * 64 + b'"}\n',
    b'{"slot": true, "node": 1, "nonce": [], "proof": {}}\n',
    b'{"slot": 1e999}\n',
    b"\xff\xfe\x00" * 100 + b"\n",
    b"x" * 100_000,
    b"0 " + b"0" * 64 + b' . {"kind": "stop"}\n',
]


def test_strangers_do_the_hub_no_harm(node: Make) -> None:
    """Garbage, wrong proofs, endless lines, 500 connections and slow ones: bounded, forgotten, and the run goes on."""
    gang = GangRun(node, 2).prepare()
    agent = gang.nodes[0].pid("agent")
    files, memory = descriptors_of(agent), memory_of(agent)
    for content in GARBAGE:
        with knock(gang) as stranger:
            assert b"nonce" in read_line(stranger)
            with contextlib.suppress(OSError):
                stranger.sendall(content)
                stranger.settimeout(HANG)
                assert read_line(stranger) == b""
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", gang.port))
        wait_until(lambda: descriptors_of(agent) <= files + 2 + 8, "the oldest dropped")
        gang.join()
        assert descriptors_of(agent) <= files + 1 + 2 + 8
        gang.go()
        assert memory_of(agent) < memory + 4096
    with pytest.raises(ConnectionRefusedError):
        knock(gang)
    for rank in (0, 1):
        gang.tell(rank, "pass")
    assert [state["state"] for state in gang.ended()] == ["SUCCEEDED"] * 2


def test_no_proof_serves_twice(node: Make) -> None:
    """A proof that was overheard is refused on another connection, as is the hub's own sent back, or a second peer."""
    gang = GangRun(node, 3).prepare()
    nonce = "0" * 32
    about = {"slot": 1, "node": "gpu02", "nonce": nonce}
    with knock(gang) as first, knock(gang) as second, knock(gang) as third:
        asked = json.loads(read_line(first))["nonce"]
        good = proof(gang, "the peer is who it says", 1, asked, nonce)
        answer = json.dumps({**about, "proof": good}).encode() + b"\n"
        first.sendall(answer)
        told = json.loads(read_line(first))["proof"]
        assert told == proof(gang, "the hub is who it says", 1, asked, nonce)
        beat = read_line(first)
        assert b'"kind": "beat"' in beat
        assert read_line(second) and not second.sendall(answer)
        assert read_line(second) == b"", "replayed"
        own = json.loads(read_line(third))["nonce"]
        third.sendall(json.dumps({**about, "proof": told}).encode() + b"\n")
        assert read_line(third) == b"", "reflected"
        with knock(gang) as twin:
            asked = json.loads(read_line(twin))["nonce"]
            again = proof(gang, "the peer is who it says", 1, asked, nonce)
            twin.sendall(json.dumps({**about, "proof": again}).encode() + b"\n")
            read_line(twin)
            assert read_line(twin) == b"", "a second one of the same rank"
        first.sendall(beat)
        first.settimeout(5)
        rest = b"".join(iter(lambda: read_line(first), b""))
        assert b"welcome" not in rest, "a line sent back"
        assert own != asked
