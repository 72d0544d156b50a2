"""A hub and very many peers of the real payload, in two processes: how a gang grows, without its agents.

python many_peers.py NODES [FILES]: FILES is the soft limit of open files with which the hub begins.
Prints JSON: what each stage took in seconds, of them the hub's processor time, the calls of one beat, the hub's
open files and its memory in MB.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from counting import count_calls

from clusterctl.node.gang.failover import GangMember
from clusterctl.node.gang.hub import Hub
from clusterctl.node.gang.membership import GangContext
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.protocol.ranks import NodeRank

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import PartRecord

LIMIT = 180.0  # seconds for each stage
TICK = 0.02


class Heard(GangContext):
    """Counts what a gang does by its agent."""

    def __init__(self, loop: Loop, spec: Any, token: bytes, heard: Counter[str]) -> None:
        super().__init__(loop, spec, token)
        self._heard = heard

    def report(self, event: str, facts: object) -> None:  # noqa: ARG002 - it is counted alone
        """Count an event to the client."""
        self._heard.update([event])

    def stop(self, order: object) -> None:  # noqa: ARG002 - it is counted alone
        """Count an order."""
        self._heard.update(["stop"])

    def save_record(self, record: object) -> None:  # noqa: ARG002 - it is counted alone
        """Count a record."""
        self._heard.update(["record"])

    def leave(self) -> None:
        """Count an end."""
        self._heard.update(["left"])


class OwnMoments(Loop):
    """A loop that many share, as each of them sees it: its moments are its own."""

    def __init__(self, shared: Loop, name: str) -> None:
        super().__init__()
        self._shared, self._name = shared, name
        self.watch, self.unwatch = shared.watch, shared.unwatch  # type: ignore[method-assign]  # the shared loop's
        self.watch_writable, self.unwatch_writable = shared.watch_writable, shared.unwatch_writable  # type: ignore[method-assign]  # too

    def after(self, seconds: float, name: str, callback: Callable[[], None]) -> None:
        """Call back later."""
        self._shared.after(seconds, f"{self._name} {name}", callback)

    def cancel(self, name: str) -> None:
        """Forget a moment."""
        self._shared.cancel(f"{self._name} {name}")


class Members:
    """What the agents of some nodes would be: they count what the gang sends them."""

    def __init__(self, count: int, token: bytes) -> None:
        self.loop, self.heard = Loop(), Counter[str]()
        self._count, self._token = count, token

    def make(self, rank: int) -> GangMember:
        """Make one node's member of the gang."""
        node = f"gpu{rank:05}"
        spec: Any = {"run": "j-1", "node": node, "node_rank": rank, "nnodes": self._count, "hub": "gpu00000"}
        spec.update(master_addr="127.0.0.1", address="127.0.0.1", join_limit=LIMIT)
        return GangMember(Heard(OwnMoments(self.loop, node), spec, self._token, self.heard))


def part_of(rank: int) -> PartRecord:
    """Say that a node has ended well."""
    return {
        "node": f"gpu{rank:05}",
        "node_rank": NodeRank(rank),
        "address": "127.0.0.1",
        "state": "SUCCEEDED",
        "reason": "",
        "time": time.time(),
        "stopped_at": None,
        "stop_kind": "",
        "failures": [],
    }


def play_peers(pipe: Any, count: int, token: bytes) -> None:
    """Be all peers, and do what the other process asks for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    members = Members(count, token)
    peers = [members.make(rank) for rank in range(1, count)]

    def obey() -> None:
        word, *rest = pipe.recv()
        if word == "heard":
            pipe.send(dict(members.heard))
        elif word == "quit":
            members.loop.stop()
        elif word == "ended":
            for rank, peer in enumerate(peers, 1):
                peer.on_end(part_of(rank))
        else:
            for peer in peers if word in ("join", "on_go") else peers[:1]:
                getattr(peer, word)(*rest)

    members.loop.watch(pipe.fileno(), obey)
    members.loop.run()


class Play:
    """The hub's side, stage by stage."""

    def __init__(self, count: int) -> None:
        token = secrets.token_bytes(32)
        self.count = count
        self.pipe, other = multiprocessing.Pipe()
        self._child = multiprocessing.Process(target=play_peers, args=(other, count, token), daemon=True)
        self._child.start()
        self.members = Members(count, token)
        self.hub = self.members.make(0)

    def run(self) -> dict[str, Any]:
        """Go through a run's stages; gives what each took."""
        hub, others = self.hub, self.count - 1
        hub.open()
        assert hub.state.listener is not None and isinstance(hub.role, Hub)
        port, at_hub = hub.state.listener.port, hub.role.members
        told = {"nodes": self.count}
        told.update(self._stage("join", lambda: self.pipe.send(("join", port)), "joined", others))
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        hub.on_go()
        self.pipe.send(("on_go",))
        answered = lambda: all(not one.channel.unanswered_beats for one in at_hub.values())  # noqa: E731 - one line
        told.update(
            self._stage("beat", lambda: told.update(beat_calls=count_calls(hub.beat)), "", 0, answered)
        )
        told.update(self._stage("stop", lambda: self.pipe.send(("on_failure", "boom")), "stop", others - 1))
        told.update(self._stage("record", self._end, "record", others))
        status = Path("/proc/self/status").read_text()
        memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024  # getrusage begins with the parent's
        self.pipe.send(("quit",))
        self._child.join(5)
        return {**told, "open_files": open_files, "memory": round(memory, 1)}

    def _end(self) -> None:
        self.pipe.send(("ended",))
        self.hub.on_end(part_of(0))

    def _stage(
        self,
        name: str,
        begin: Callable[[], None],
        event: str,
        wanted: int,
        done: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        began, spent = time.monotonic(), time.process_time()
        begin()
        while not (done() if done else self._heard(event) >= wanted):
            if time.monotonic() - began > LIMIT:
                raise SystemExit(f"{name}: {self._heard(event)} of {wanted}")
            self.members.loop.after(TICK, "look again", lambda: None)
            self.members.loop._run_once()
        seconds, processor = time.monotonic() - began, time.process_time() - spent
        return {f"{name}_seconds": round(seconds, 4), f"{name}_cpu": round(processor, 4)}

    def _heard(self, event: str) -> int:
        self.pipe.send(("heard",))
        return int(self.pipe.recv().get(event, 0))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
    print(json.dumps(Play(int(sys.argv[1])).run()))
