"""Gangs whose job may be started again by its nodes, for the tests: seats, spares, and the dialogue up to GO."""

from __future__ import annotations

import json
import signal
from functools import partial
from typing import Any

from gangs import ELSEWHERE, FINAL, GangRun, Make, wait_for_all
from noderun import NodeRun
from waiting import wait_until

from clusterctl.node.runtime.processes import send_signal
from clusterctl.node.state.run_record import parse_identity

# Each rank of each attempt waits for a file of its own, which holds what it is to do.
SCRIPT = """
import os, signal, subprocess, sys, time
attempt = os.environ["CLUSTERCTL_ATTEMPT"]
place = os.environ["GANG_MARK"] + "/" + attempt + "." + os.environ["RANK"]
print("settled in attempt", attempt, "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
while not os.path.exists(place):
    time.sleep(0.01)
exec(open(place).read())
"""
USUAL = ["node_lost", "worker_killed", "network", "gpu", "port_taken"]


class RestartGang(GangRun):
    """Some nodes of one run, the last of them spares."""

    def __init__(self, make: Make, count: int = 2, spares: int = 0, **changes: Any) -> None:
        wish = {
            "max": 3,
            "on": USUAL,
            "progress": "**",
            "pause": 0.2,
            **changes.pop("restart", {}),
        }
        limits = {"gang_limit": 5.0, "join_limit": 5.0}
        super().__init__(make, count + spares, changes.pop("script", SCRIPT), **{**limits, **changes})
        self.count = count
        ranks = [seat if seat < count else None for seat in range(count + spares)]
        roster = [
            {"slot": seat, "node": node.spec["node"], "node_rank": rank}
            for seat, (node, rank) in enumerate(zip(self.nodes, ranks, strict=True))
        ]
        for seat, node in enumerate(self.nodes):
            about = {"slot": seat, "slots": len(self.nodes), "spare": seat >= count, "roster": roster}
            node.spec.update(about, restart=wish, nnodes=count, world_size=count)
            node.spec["gang"] = len(self.nodes) > 1
            node.spec["output_dir"] = str(self.orders)
        self.doors: list[list[Any]] = []

    @property
    def active(self) -> list[NodeRun]:
        """The nodes of the first attempt."""
        return [node for node in self.nodes[: self.count] if node in self.present]

    def prepare(self) -> RestartGang:
        """Bring all agents up; each says where its door is."""
        for node in self.present:
            node.start()
        for seat, node in enumerate(self.nodes):
            if seat in self.absent:
                continue
            node.hear("started")
            for header in node.heard:
                if header.get("event") == "listener":
                    self.doors.append([seat, node.spec["address"], header["port"]])
        return self

    def join(self) -> RestartGang:
        """Let the others go to the hub, and all know every door."""
        for seat, node in enumerate(self.nodes):
            if seat in self.absent or seat == 0:
                continue
            order = {"do": "join", "port": self.doors[0][2], "listeners": self.doors}
            assert node.session is not None
            node.session.send(order)
        if 0 not in self.absent:
            assert self.nodes[0].session is not None
            self.nodes[0].session.send({"do": "listeners", "listeners": self.doors})
        for node in self.others:
            wait_for_all(node, "joined")
        for node in self.active:
            wait_for_all(node, "ready")
        return self

    def go(self) -> RestartGang:
        """Give GO: node 0 first, spares last; leave when every worker is there."""
        self.release(self.present)
        self.settled(1, [seat for seat in range(self.count) if seat not in self.absent])
        return self

    def release(self, nodes: list[NodeRun]) -> None:
        """Give GO to these nodes, to node 0 first if it is one of them, and hang up."""
        master = self.nodes[0]
        for node in nodes:
            if node is master:
                wait_for_all(master, "port")
            assert node.session is not None
            node.session.send({"do": "go", "master_port": master.port or ELSEWHERE})
            if node is master:
                master.hear("listening")
        for node in nodes:
            node.hear("end")
            assert node.session is not None
            node.session.close()

    def begin(self) -> RestartGang:
        """Do all that a client does."""
        return self.prepare().join().go()

    def settled(self, attempt: int, seats: Any) -> None:
        """Wait until the workers of an attempt are there on these seats."""
        for seat in seats:
            wait_until(partial(self._is_settled, seat, attempt), f"attempt {attempt} on {seat}")

    def _is_settled(self, seat: int, attempt: int) -> bool:
        state = self.nodes[seat].state()
        if state["state"] in FINAL:
            raise AssertionError(f"ended: {state}\n{self.nodes[seat].agent_log()}")
        files = [entry["stdout"] for entry in state["ranks"].values()]
        return state["attempt"] == attempt and any(
            f"settled in attempt {attempt}" in (self.nodes[seat].rundir / file).read_text() for file in files
        )

    def order(self, attempt: int, rank: int, code: str) -> None:
        """Let a rank of an attempt do something."""
        aside = self.orders.parent / f"{attempt}.{rank}.new"
        aside.write_text(code)
        aside.rename(self.orders / f"{attempt}.{rank}")

    def finish(self, attempt: int) -> list[dict[str, Any]]:
        """Let all ranks of an attempt end well."""
        for rank in range(self.count):
            self.order(attempt, rank, "pass")
        return self.ended()

    def ended(self) -> list[dict[str, Any]]:
        """Wait until nothing is left anywhere; gives the states, of nodes that vanished the last."""
        try:
            wait_until(lambda: not any(node.is_alive() for node in self.nodes), "nothing left anywhere")
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(map(describe, self.nodes))) from None
        return [node.state() for node in self.present]

    def causes(self, seat: int = 0) -> list[tuple[str, str]]:
        """Give the reasons for which earlier attempts ended, as a node recorded them."""
        state = json.loads((self.nodes[seat].rundir / "state.json").read_text())
        return [(entry["cause_reason"], entry["text"]) for entry in state["attempts"]]


def describe(node: NodeRun) -> str:
    """Write what is left of a node's run, its state, its last events and its agent's log."""
    state = {
        key: value for key, value in node.state().items() if key in ("state", "reason", "roster", "attempt")
    }
    events = [event["event"] for event in node.events()]
    return f"{node.spec['node']}: left {node.left()}; {state}; {events}\n{node.agent_log()}"


def vanish(one: NodeRun) -> None:
    """Let a node disappear as a power failure does, but that its connections end at once."""
    state = one.state()
    own = [parse_identity(state[name]) for name in ("guardian", "agent")]
    for identity in own:
        assert identity is not None and send_signal(identity, signal.SIGSTOP)
    state = one.state()
    others = [parse_identity(entry) for entry in (state["torchrun"], *state["ranks"].values())]
    for identity in (*own, *others):
        if identity is not None:
            send_signal(
                identity, signal.SIGKILL
            )  # by pid and start time: what has ended may have lent its pid
