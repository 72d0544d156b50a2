"""The proof on the wire between real processes of this machine: who reaches whom, what strangers get, what stays."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from session import Session
from waiting import HANG

from clusterctl.node.diagnose.mesh import Credentials

SIZE = 256 << 10
TOKEN = "ab" * 32


class Taking:
    """One node's process that takes part."""

    def __init__(self, number: int, *, token: str = TOKEN, **order: Any) -> None:
        self.name, self.address = f"n{number}", f"127.0.0.{number}"
        addresses = {"": self.address, "second": f"127.0.9.{number}"}
        self.session = Session("probe", {"stay": True, "workdir": "/tmp"})
        assert "facts" in self._hear()
        asked = {"mesh": "listen", "name": self.name, "addresses": addresses, "token": token}
        self.session.send({**asked, "ports": None, "master": False, **order})
        self.answer = self._hear()
        reported = self.answer.get("listening", {})
        self.ports: dict[str, int] = {**reported.get("ports", {}), "master": reported.get("master_port") or 0}

    def _hear(self) -> dict[str, Any]:
        frame = self.session.receive()
        assert frame is not None, self.session.stderr_so_far()
        return frame[0]

    def peer(self, door: str = "mesh", **changes: Any) -> dict[str, Any]:
        """Say where this one can be called."""
        port = self.ports["" if door == "mesh" else "master"]
        return {
            "name": self.name,
            "address": self.address,
            "port": port,
            "listener": door,
            "rail": "",
            **changes,
        }

    def call(self, *peers: dict[str, Any]) -> None:
        """Let it call others."""
        self.session.send({"mesh": "call", "peers": list(peers)})

    def ways(self) -> dict[str, dict[str, Any]]:
        """Give what came of its calls, by the peer's name and the door."""
        return {f"{way['peer']} {way['listener']}": way for way in self._hear()["paths"]}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """End all processes after the test."""
    with ExitStack() as stack:
        yield stack


def take(stack: ExitStack, number: int, **order: Any) -> Taking:
    """Start one more process."""
    one = Taking(number, **order)
    stack.callback(one.session.close)
    return one


def refused(address: str, port: int) -> bool:
    """Whether nobody listens there."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex((address, port)) != 0


def test_everybody_reaches_everybody(stack: ExitStack) -> None:
    """Three processes connect to each other and to the master's port; 256 KiB arrive both ways; then nobody listens."""
    nodes = [take(stack, number, master=number == 1, ports=[20000, 20100]) for number in (1, 2, 3)]
    for node in nodes:
        doors = [nodes[0].peer("master")] if node is not nodes[0] else []
        node.call(*(peer.peer() for peer in nodes if peer is not node), *doors)
    for node in nodes:
        ways = node.ways()
        assert len(ways) == (2 if node is nodes[0] else 3)
        for name, way in ways.items():
            assert (way["step"], way["error"], way["unproven"]) == ("done", None, False), way
            assert way["got"] == (0 if name.endswith("master") else SIZE)
            assert way["own"] == way["seen"] == node.address
            assert way["mss"] > 1000
            assert way["least_rtt"] > 0
            assert 0 < way["connect"] < way["seconds"]
    assert 20000 <= nodes[0].ports["master"] <= 20100
    for node in nodes:
        node.session.hang_up()
        assert node.session.process.wait(HANG) == 0
        assert refused(node.address, node.ports[""])
        assert refused(node.address, nodes[0].ports["master"])


def test_what_cannot_be_bound_is_told(stack: ExitStack) -> None:
    """An address that is not ours is the answer, and the process ends with the client."""
    node = Taking(1, addresses={"": "192.0.2.1"})
    stack.callback(node.session.close)
    assert node.answer == {"problem": "Cannot assign requested address"}


def test_ports_that_are_all_in_use_are_named(stack: ExitStack) -> None:
    """Node 0 of a run could not begin either; the client has to know that from another trouble."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        node = Taking(1, addresses={"": "127.0.0.1"}, ports=[port, port], master=True)
        stack.callback(node.session.close)

    assert node.answer == {"problem": f"all of `ports: {port}-{port}` are in use", "taken": True}


def test_further_nics_are_called_by_their_own_addresses(stack: ExitStack) -> None:
    """A second rail has a door and callers of its own; one that cannot be bound is left out."""
    nodes = [
        take(stack, 1),
        take(stack, 2, addresses={"": "127.0.0.2", "second": "127.0.9.2", "third": "192.0.2.1"}),
    ]
    assert sorted(nodes[1].answer["listening"]["ports"]) == ["", "second"]
    second = {"address": "127.0.9.2", "port": nodes[1].ports["second"], "rail": "second"}
    nodes[0].call(nodes[1].peer(**second))
    way = nodes[0].ways()["n2 mesh"]
    assert (way["error"], way["rail"], way["own"], way["seen"]) == (None, "second", "127.0.9.1", "127.0.9.1")


def test_strangers_get_nothing(stack: ExitStack) -> None:
    """Garbage, a flood, silence and a wrong token harm no proof and learn nothing but a nonce."""
    nodes = [take(stack, number) for number in (1, 2)]
    door = (nodes[1].address, nodes[1].ports[""])
    crowd = [stack.enter_context(closing(socket.create_connection(door))) for _ in range(200)]
    rude = crowd[-3:]  # the first ones have been sent away, for there are too many
    for conn in rude:
        conn.settimeout(HANG)
        assert len(json.loads(conn.recv(4096))["nonce"]) == 32
    rude[0].sendall(b"x" * 4096)
    rude[1].sendall(json.dumps({"name": "n1", "nonce": "00", "proof": "00", "bulk": True}).encode() + b"\n")
    rude[2].sendall(b"[" * 1000 + b"\n")
    nodes[0].call(nodes[1].peer())
    assert nodes[0].ways()["n2 mesh"]["error"] is None
    for conn in rude:
        with suppress(ConnectionResetError):
            assert conn.recv(4096) == b""


def test_a_stranger_at_the_address_is_told(stack: ExitStack) -> None:
    """Who answers without knowing the token is not taken for the node."""
    mine, other = take(stack, 1), take(stack, 2, token="cd" * 32)
    with closing(socket.create_server(("127.0.0.3", 0))) as door:
        mine.call(
            other.peer(),
            {
                "name": "n3",
                "address": "127.0.0.3",
                "port": door.getsockname()[1],
                "listener": "mesh",
                "rail": "",
            },
        )
        conn, _ = door.accept()
        conn.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        ways = mine.ways()
        conn.close()
    assert (ways["n3 mesh"]["step"], ways["n3 mesh"]["unproven"]) == ("greet", True)
    assert ways["n2 mesh"]["step"] == "greet"
    assert ways["n2 mesh"]["error"]


def test_closed_and_silent_peers_cost_their_own_limit(stack: ExitStack) -> None:
    """A refused call, and one that connects and hears nothing, are told apart; the rest is not held up by them."""
    nodes = [take(stack, number) for number in (1, 2, 3)]
    os.kill(nodes[2].session.process.pid, signal.SIGSTOP)
    try:
        nodes[0].call(nodes[1].peer(), nodes[2].peer(), nodes[1].peer(name="gone", port=1))
        ways = nodes[0].ways()
    finally:
        os.kill(nodes[2].session.process.pid, signal.SIGCONT)
    assert ways["n2 mesh"]["error"] is None
    assert (ways["gone mesh"]["step"], ways["gone mesh"]["error"]) == ("connect", "Connection refused")
    assert (ways["n3 mesh"]["step"], ways["n3 mesh"]["connect"] > 0) == ("greet", True)


def test_a_client_that_dies_leaves_no_listener(stack: ExitStack) -> None:
    """The end of stdin ends the process, also while a call is under way."""
    node, peer = take(stack, 1), take(stack, 2)
    os.kill(peer.session.process.pid, signal.SIGSTOP)
    try:
        node.call(peer.peer())
        node.session.hang_up()
        assert node.session.process.wait(HANG) == 0
    finally:
        os.kill(peer.session.process.pid, signal.SIGCONT)
    assert refused(node.address, node.ports[""])


def test_the_kernel_ends_what_nobody_ends(stack: ExitStack) -> None:
    """An alarm is set before the first door opens, so that a process that hangs is ended too."""
    node = take(stack, 1, alarm=5)
    assert not refused(node.address, node.ports[""])
    assert node.session.process.wait(HANG) == -signal.SIGALRM
    assert refused(node.address, node.ports[""])


def test_a_stranger_that_sends_a_byte_now_and_then_holds_nobody_up(stack: ExitStack) -> None:
    """At the address of a node or at our own door: the call ends with an answer, before the alarm would end all."""
    mine, peer = take(stack, 1), take(stack, 2)
    over = threading.Event()
    stack.callback(over.set)
    door = stack.enter_context(closing(socket.create_server(("127.0.0.3", 0))))
    guest = stack.enter_context(closing(socket.create_connection((mine.address, mine.ports[""]))))

    def drip() -> None:
        conn = door.accept()[0]
        with conn, suppress(OSError):
            while not over.wait(0.2):
                conn.sendall(b"{")

    def drip_as_guest() -> None:
        with suppress(OSError):
            while not over.wait(0.2):
                guest.sendall(b"{")

    for deed in (drip, drip_as_guest):
        threading.Thread(target=deed, daemon=True).start()
    slow = {
        "name": "n3",
        "address": "127.0.0.3",
        "port": door.getsockname()[1],
        "listener": "mesh",
        "rail": "",
    }
    mine.call(slow, peer.peer())
    ways = mine.ways()

    assert ways["n2 mesh"]["error"] is None
    assert ways["n3 mesh"]["step"] == "greet"
    assert ways["n3 mesh"]["error"]


class Liar:
    """A node of the check that knows the token, and then does what it likes: as a listener, once for each deed."""

    def __init__(self, stack: ExitStack, deed: Callable[[socket.socket], None]) -> None:
        self._deed = deed
        self._door = stack.enter_context(closing(socket.create_server(("127.0.0.4", 0))))
        self.peer = {
            "name": "n4",
            "address": "127.0.0.4",
            "port": self._door.getsockname()[1],
            "listener": "mesh",
            "rail": "",
        }
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        badge, nonce = Credentials("n4", bytes.fromhex(TOKEN)), "0" * 32
        with suppress(OSError):
            conn = self._door.accept()[0]
            with conn:
                conn.sendall(json.dumps({"nonce": nonce}).encode() + b"\n")
                said = json.loads(conn.makefile("rb").readline())
                proof = badge.prove("I listen", said["name"], "n4", nonce, said["nonce"])
                conn.sendall(json.dumps({"proof": proof, "seen": ["x" * 500] * 1}).encode() + b"\n")
                self._deed(conn)


def drip_bulk(conn: socket.socket) -> None:
    """Give a byte now and then."""
    while True:
        conn.sendall(b"x")
        time.sleep(0.2)


def flood(conn: socket.socket) -> None:
    """Give without end."""
    while True:
        conn.sendall(bytes(1 << 16))


@pytest.mark.parametrize("deed", [drip_bulk, flood])
def test_a_hostile_listener_ends_no_probe(stack: ExitStack, deed: Callable[[socket.socket], None]) -> None:
    """It proves the token, and then sends too slowly or too much: its way is told as it was, the others' too."""
    mine, peer = take(stack, 1), take(stack, 2)
    liar = Liar(stack, deed)
    mine.call(liar.peer, peer.peer())
    ways = mine.ways()

    assert ways["n2 mesh"]["error"] is None
    assert ways["n4 mesh"]["got"] <= SIZE
    assert ways["n4 mesh"]["seen"] == ""
    assert (ways["n4 mesh"]["error"] is None) == (deed is flood)
    assert mine.session.process.poll() is None


def test_a_hostile_caller_gets_no_more_than_was_agreed(stack: ExitStack) -> None:
    """It proves the token and floods the door: it is sent away, and the next one is served."""
    nodes = [take(stack, number) for number in (1, 2)]
    badge, nonce = Credentials("n4", bytes.fromhex(TOKEN)), "0" * 32
    conn = stack.enter_context(closing(socket.create_connection((nodes[1].address, nodes[1].ports[""]))))
    asked = json.loads(conn.recv(4096))["nonce"]
    proof = badge.prove("I call", "n4", "n2", asked, nonce)
    conn.sendall(json.dumps({"name": "n4", "nonce": nonce, "proof": proof, "bulk": True}).encode() + b"\n")
    threading.Thread(target=read_on, args=(conn,), daemon=True).start()
    with pytest.raises(ConnectionError):
        flood(conn)
    nodes[0].call(nodes[1].peer())
    assert nodes[0].ways()["n2 mesh"]["error"] is None


def read_on(conn: socket.socket) -> None:
    """Take whatever comes."""
    with suppress(OSError):
        while conn.recv(1 << 16):
            pass
