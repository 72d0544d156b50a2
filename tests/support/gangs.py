"""Whole gangs on this machine for the tests: one agent for each 127.0.0.x, with a stand-in for torch."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from conformity import problems
from noderun import NodeRun
from session import Session
from waiting import wait_until

from clusterctl.protocol.messages.files import GangRecord

Make = Callable[..., NodeRun]
ELSEWHERE = 29999  # the master's port, where node 0 is not ours
FINAL = ("SUCCEEDED", "FAILED", "FAILED_SETUP", "STOPPED", "TIMEOUT", "LOST")

# Each rank waits for a file with its own number in the name, which holds what it is to do.
WAITING = """
import os, signal, sys, time
place = os.environ["GANG_MARK"] + "/" + os.environ["RANK"]
print("settled", flush=True)
while not os.path.exists(place):
    time.sleep(0.01)
exec(open(place).read())
"""


class GangRun:
    """Some nodes of one run."""

    def __init__(
        self, make: Make, count: int = 3, script: str = WAITING, absent: Sequence[int] = (), **changes: Any
    ) -> None:
        self.absent = frozenset(absent)  # places that a test fills with something else
        token, run = secrets.token_hex(32), f"job-20261120T110000-{secrets.token_hex(4)}"
        self.token = token
        self.nodes = []
        for rank in range(count):
            about = {
                "run": run,
                "node": f"gpu0{rank + 1}",
                "node_rank": rank,
                "nnodes": count,
                "world_size": count,
            }
            gang = {"gang": True, "hub": "gpu01", "token": token, "address": f"127.0.0.{rank + 1}"}
            node = make(script, **{"nproc": 1, **about, **gang, **changes}).use_stub()
            self.nodes.append(node)
        self.orders = self.nodes[0].root.parent / f"orders of {run}"
        self.orders.mkdir()
        for node in self.nodes:
            node.spec["env"]["GANG_MARK"] = str(self.orders)
        self.port = 0

    @property
    def present(self) -> list[NodeRun]:
        """The nodes that have an agent of ours."""
        return [node for place, node in enumerate(self.nodes) if place not in self.absent]

    @property
    def others(self) -> list[NodeRun]:
        """Those of them that are not node 0."""
        return [node for node in self.present if node is not self.nodes[0]]

    def prepare(self) -> GangRun:
        """Bring all agents up; the hub says where it listens."""
        if 0 not in self.absent:
            self.nodes[0].start()
            self.port = self.nodes[0].hear("hub")["port"]
        for node in self.others:
            node.start()
        for node in self.present:
            node.hear("started")
        return self

    def join(self) -> GangRun:
        """Let the others go to the hub."""
        for node in self.others:
            conversation(node).send({"do": "join", "port": self.port})
        for node in self.others:
            wait_for_all(node, "joined", "ready")
        for node in self.present:
            wait_for_all(node, "ready")
        return self

    def go(self) -> GangRun:
        """Give GO, node 0 first; wait until every worker is there."""
        master = self.nodes[0]
        port = master.port or ELSEWHERE
        if 0 not in self.absent:
            conversation(master).send({"do": "go", "master_port": port})
            master.hear("listening")
        for node in self.others:
            conversation(node).send({"do": "go", "master_port": port})
        for node in self.present:
            node.hear("end")
            conversation(node).close()
        for node in self.present:
            node.running()
            wait_until(partial(is_settled, node), "settled")
        return self

    def tell(self, rank: int, code: str) -> None:
        """Let a rank do something."""
        aside = self.orders / f"{rank}.new"
        aside.write_text(code)
        aside.rename(self.orders / str(rank))

    def record(self, rank: int) -> dict[str, Any]:
        """Read a node's gang.json."""
        content: dict[str, Any] = json.loads((self.nodes[rank].rundir / "gang.json").read_text())
        wrong = list(problems(GangRecord, content, "gang.json"))
        assert not wrong, f"not as protocol/messages says: {wrong}"
        return content

    def states(self) -> list[str]:
        """Give every node's state."""
        return [node.state()["state"] for node in self.present]

    def ended(self) -> list[dict[str, Any]]:
        """Wait until nothing is left anywhere; gives the states."""
        wait_until(lambda: not any(node.is_alive() for node in self.nodes), "nothing left anywhere")
        states = [node.state() for node in self.present]
        assert all(state["state"] in FINAL for state in states), states
        return states


def conversation(node: NodeRun) -> Session:
    """Return the open conversation with a node."""
    assert node.session is not None, "it has not begun, or is closed"
    return node.session


def is_settled(node: NodeRun) -> bool:
    """Return whether the worker of a node has begun."""
    return "settled" in node.output(node.spec["node_rank"])


def wait_for_all(node: NodeRun, *events: str) -> None:
    """Hear events in any order, also those that were heard before."""
    for event in events:
        if event not in [header.get("event") for header in node.heard]:
            node.hear(event)
