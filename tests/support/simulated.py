"""Thousands of nodes in this process: ways with latency and failures, under which everything is clusterctl's own.

    with SimulatedCluster(Ways(refused=0.01), seed=1) as cluster:
        for outcome in cluster.each(simulated_nodes(1000), lambda c, node: tasks.execute(c, node, ...)): ...

A login waits in its worker's thread, as a real one does; one thread plays the far side of all conversations.
What a node is like depends on seed and name alone.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import _healthy_text
from fabric import Config
from invoke import Context

from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc import errors
from clusterctl.client.rpc.channels import create_wakeup_pipe
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.errors import ClusterctlError, ConnectTimeout, Unreachable
from clusterctl.plans.diagnose.network_tests import TRANSFER_SIZE
from clusterctl.plans.ssh import DECOYS
from clusterctl.plans.sync.manifest import make_manifest
from clusterctl.protocol.frames import encode_frame
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.protocol.messages.checks import MAIN_RAIL
from clusterctl.specs.inventory.model import Node, Ssh

Frame = tuple[Mapping[str, Any], bytes]

FINE, REFUSED, SILENT, SLOW, DYING = "fine", "refused", "silent", "slow", "dying"
SPREAD = 0.4  # of the logarithm of a latency
SLOWER = 10.0
BOOT_LINES = DECOYS.count("\n") + 1


@dataclass(frozen=True)
class Ways:
    """Medians of what a login and an answer take, in seconds, and what share of the nodes fails in which way."""

    login: float = 0.06
    answer: float = 0.03
    refused: float = 0.0
    silent: float = 0.0
    slow: float = 0.0
    dying: float = 0.0
    patience: float = 2.0  # seconds after which a login without an answer is given up


@dataclass(frozen=True)
class Fate:
    """What a node is like: one of the kinds above, and its own latencies in seconds."""

    kind: str
    login: float
    answer: float


def fate_of(ways: Ways, seed: int, name: str) -> Fate:
    """Draw what a node is like."""
    chance = Random(f"{seed} {name}")
    share, kind = chance.random(), FINE
    for one in (REFUSED, SILENT, SLOW, DYING):
        size = getattr(ways, one)
        if share < size:
            kind = one
            break
        share -= size
    login, answer = (
        median * math.exp(chance.gauss(0.0, SPREAD)) * (SLOWER if kind == SLOW else 1.0)
        for median in (ways.login, ways.answer)
    )
    return Fate(kind, login, answer)


def address_of(rank: int) -> str:
    """Give a node's address."""
    return f"10.{rank + 1 >> 16}.{rank + 1 >> 8 & 255}.{rank + 1 & 255}"


def simulated_nodes(count: int) -> tuple[Node, ...]:
    """Describe so many nodes as an inventory would."""
    return tuple(
        Node(name=f"gpu{rank:05}", index=rank, host=address_of(rank), ssh=Ssh(user="alice"))
        for rank in range(count)
    )


def facts_of(node: Node, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as the probe of a healthy node would, its routes to its peers included."""
    text = _healthy_text().replace("10.0.0.NUMBER", node.host).replace("NUMBER", f"{node.index:04}")
    routes = {
        name: {"address": host, "source": node.host, "nic": "eth0"} for name, host in request["peers"].items()
    }
    clock = {"received": time.time(), "answered": time.time()}
    return {**json.loads(text), "routes": routes, "clock": clock}


class FarSide:
    """One thread in which everything happens that the nodes do."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._over = False
        threading.Thread(target=self._run, name="far side", daemon=True).start()

    def after(self, seconds: float, deed: Callable[[], None]) -> None:
        """Do something later."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), deed))
            self._changed.notify()

    def close(self) -> None:
        """End it."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._over and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._over:
                    return
                deed = heapq.heappop(self._due)[2]
            deed()


class SimulatedChannel:
    """A conversation with a node that is not there; what `clusterctl.client.rpc.channels.Channel` asks for."""

    status = 0

    def __init__(self, node: Node, fate: Fate, far: FarSide) -> None:
        self.node, self.at_eof = node.name, False
        self._described, self._fate, self._far = node, fate, far
        self._cut = False
        self._arrived: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._bell = create_wakeup_pipe(self)
        self._cord = self._bell.event("stdout")
        self._heard, self._begun = bytearray(), False
        self._verb, self._request = "", dict[str, Any]()

    def fileno(self) -> int:
        """Be readable when something arrived or all is over."""
        return self._bell.fileno()

    def read_stdout(self) -> bytes:
        """Take what has arrived."""
        with self._lock:
            piece = self._arrived.popleft() if self._arrived else b""
            if not self._arrived and not self.at_eof:
                self._cord.clear()
            return piece

    def read_stderr(self) -> bytes:
        """Take nothing: no one complains."""
        return b""

    def send(self, data: bytes) -> int:
        """Take what is sent to the node, and let it answer in its time."""
        self._heard += data
        if not self._begun:
            self._begin()
        elif frame := self._take_frame():
            self._far.after(self._fate.answer, lambda: self._obey(frame))
        return len(data)

    def find_failure(self) -> ClusterctlError | None:
        """Tell a connection that was cut."""
        return errors.connection_lost(self.node, "Connection reset by peer") if self._cut else None

    def abort(self) -> None:
        """End it."""
        self._end()

    def close(self) -> None:
        """Let go."""
        self._bell.close()

    def _begin(self) -> None:
        """Read what a real node's shell and Python read first; the verb begins when all of it is there."""
        *lines, rest = bytes(self._heard).split(b"\n", BOOT_LINES)
        if len(lines) < BOOT_LINES:
            return
        parts = []
        for _ in range(3):
            size, found, rest = rest.partition(b"\n")
            if not found or len(rest) < int(size):
                return
            parts.append(rest[: int(size)])
            rest = rest[int(size) :]
        header = json.loads(parts[1])
        self._begun, self._heard = True, bytearray(rest)
        self._verb = header["verb"]
        self._request = header["request"]
        self._far.after(self._fate.answer, lambda: self._answer(header["sentinel"]))

    def _take_frame(self) -> Frame | None:
        sizes, found, rest = bytes(self._heard).partition(b"\n")
        middle, end = (sum(map(int, sizes.split()[:count])) for count in (1, 2))
        if not found or len(rest) < end:
            return None
        self._heard = bytearray(rest[end:])
        return dict(json.loads(rest[:middle])), rest[middle:end]

    def _answer(self, sentinel: str) -> None:
        frames = [encode_frame(*frame) for frame in ANSWERS[self._verb](self._described, self._request)]
        said = f"\n{sentinel}\n".encode() + b"".join(frames)
        if self._fate.kind == DYING:
            self._cut = True
            self._arrive(said[: len(said) // 2])
            self._end()
            return
        self._arrive(said)
        if frames and frames[-1] == END:
            self._end()

    def _obey(self, frame: Frame) -> None:
        for header, body in obey(*frame):
            self._arrive(encode_frame(header, body))

    def _arrive(self, data: bytes) -> None:
        with self._lock:
            self._arrived.append(data)
            self._cord.set()

    def _end(self) -> None:
        with self._lock:
            self.at_eof = True
            self._cord.set()


END = encode_frame({"end": True})


def answer_exec(node: Node, _: Mapping[str, Any]) -> list[Frame]:
    """Say what `hostname` would, and end."""
    ended: dict[str, Any] = {"exit": 0, "signal": None, "cut": [], "left": []}
    return [({"stream": "stdout"}, f"{node.name}\n".encode()), ({"ended": ended}, b""), ({"end": True}, b"")]


def answer_probe(node: Node, request: Mapping[str, Any]) -> list[Frame]:
    """Read the facts; who is to stay waits for orders."""
    told: Frame = ({"facts": facts_of(node, request)}, b"")
    return [told] if request.get("stay") else [told, ({"end": True}, b"")]


def answer_start(_: Node, request: Mapping[str, Any]) -> list[Frame]:
    """Say that the agent is up, where its hub or door is, and on the master that it is ready."""
    spec, said = request["spec"], ["started"]
    first = spec["node_rank"] == 0
    if first and spec["gang"]:
        said.insert(0, "hub")
    if spec.get("restart"):
        said.insert(0, "listener")
    told = [({"event": event, "port": 40000, "workdir": {}}, b"") for event in said]
    return [*told, *(_ready() if first else ())]


def answer_sync(_: Node, __: Mapping[str, Any]) -> list[Frame]:
    """Wait for the manifest."""
    return []


def _ready() -> list[Frame]:
    return [({"event": "port", "port": 29500}, b""), ({"event": "ready", "torch": "2.7.1"}, b"")]


def obey(header: Mapping[str, Any], body: bytes) -> list[Frame]:
    """Do what a conversation asks for after its beginning: the proof on the wire, the code, the way to GO."""
    if header.get("mesh") == "listen":
        return [
            (
                {
                    "listening": {
                        "ports": {MAIN_RAIL: 40000},
                        "master_port": 40001 if header["master"] else None,
                    }
                },
                b"",
            )
        ]
    if header.get("mesh") == "call":
        done = {
            "step": "done",
            "got": TRANSFER_SIZE,
            "acked": TRANSFER_SIZE,
            "connect": 0.0001,
            "seconds": 0.001,
            "rtt": 90,
        }
        ways = [
            {**{key: peer[key] for key in ("listener", "rail")}, "peer": peer["name"], **done}
            for peer in header["peers"]
        ]
        return [({"paths": ways}, b"")]
    if header.get("manifest"):
        held = make_manifest(TreeEntry(*row) for row in json.loads(zlib.decompress(body)))
        return [({"tree": held.hash, "files": len(held.entries), "bytes": held.size}, b"")]
    if header.get("do") == "join":
        return [({"event": "joined"}, b""), *_ready()]
    if header.get("do") == "go":
        port = {"port": header["master_port"]}
        return [({"event": "listening", **port}, b""), ({"event": "go_received"}, b"")]
    return [({"event": "ended"}, b"")] if header.get("do") == "cancel" else []


ANSWERS: dict[str, Callable[[Node, Mapping[str, Any]], list[Frame]]] = {
    "exec": answer_exec,
    "probe": answer_probe,
    "start": answer_start,
    "sync": answer_sync,
}


class SimulatedConnection(OpensshConnection):
    """A way into a node that is not there."""

    is_connected = True

    def __init__(self, node: Node, fate: Fate, far: FarSide) -> None:
        Context.__init__(self, Config(lazy=True))
        self._set(node=node, fate=fate, far=far, channels=[])

    def open_channel(self) -> SimulatedChannel:  # type: ignore[override]  # what a session needs of it is the same
        """Begin a conversation."""
        channel = SimulatedChannel(self.node, self.fate, self.far)
        self.channels.append(channel)
        return channel

    def close(self) -> None:
        """Close what was not closed; else the descriptors stay with the process, and `select` takes 1024 at most."""
        for channel in self.channels:
            channel.close()


class SimulatedCluster(Cluster):
    """A cluster whose ways lead nowhere."""

    def __init__(self, ways: Ways, seed: int = 0) -> None:
        super().__init__(lambda _: None)
        self._ways, self._seed, self._far = ways, seed, FarSide()

    def fate(self, node: Node) -> Fate:
        """Say what a node is like."""
        return fate_of(self._ways, self._seed, node.name)

    def close(self) -> None:
        """Close all, and end the far side."""
        super().close()
        self._far.close()

    def _is_direct(self, node: Node) -> bool:  # noqa: ARG002 - that of the class
        """There is no bastion."""
        return True

    def _prepare(self, nodes: object, *, keep: bool = True) -> None:
        """No configuration of SSH reports anything about them."""

    def _connect(self, node: Node) -> Any:
        fate = self.fate(node)
        if fate.kind == SILENT:
            time.sleep(self._ways.patience)
            raise ConnectTimeout(
                "CC-SSH-004", "handshake", node=node.name, waited_for="greeting", address=node.host, limit=20
            )
        time.sleep(fate.login)
        if fate.kind == REFUSED:
            raise Unreachable("CC-SSH-002", node=node.name, target=node.host)
        return SimulatedConnection(node, fate, self._far)
