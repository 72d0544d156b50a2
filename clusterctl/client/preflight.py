"""Mesh test from here; facts of this machine."""

from __future__ import annotations

import os
import secrets
import selectors
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterctl.client.rpc.session import Session
from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.framework import Here
from clusterctl.plans.diagnose.mesh import Listening, Way, Wire, plan_orders, read_listening, read_ways
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job

SEND_LIMIT = 2.0  # seconds for a node to take an order of a few KiB
LISTEN_LIMIT = 3.0
REPORT_LIMIT = 9.0  # a call may connect for 2.5 s, wait 4 s for a slow process, and 2.5 s for a byte
Answers = dict[str, Untrusted]


@dataclass(frozen=True)
class Taker:
    """A node that takes part: its open probe, its addresses by rail, the ports from which its master port comes."""

    session: Session
    addresses: Mapping[str, str]
    ports: tuple[int, int] | None = None


def prove_wire(takers: Mapping[str, Taker]) -> Wire:
    """Let the nodes call each other and tell what came of it; the first is node 0. A hanging node costs its limit only.

    Closes the sessions; no listener is left when they have ended.
    """
    proof = _Proof(takers)
    try:
        return proof.run()
    finally:
        for taker in takers.values():
            taker.session.close()


class _Proof:
    def __init__(self, takers: Mapping[str, Taker]) -> None:
        self._takers = takers
        self._absent: dict[str, str] = {}

    def run(self) -> Wire:
        began = time.monotonic()
        listening = self._listen()
        ways, master_port = self._call(listening), _master_port(listening)
        seconds = time.monotonic() - began
        return Wire(tuple(self._takers), tuple(ways), self._absent, master_port, seconds)

    def _listen(self) -> dict[str, Listening]:
        """Have all listen; gives where, in the order of the nodes."""
        token = secrets.token_hex(32)
        for node_rank, (name, taker) in enumerate(self._takers.items()):
            about = {
                "name": name,
                "addresses": dict(taker.addresses),
                "ports": taker.ports,
                "master": node_rank == 0,
            }
            self._send(name, {"mesh": "listen", "token": token, **about})
        answers = self._hear(self._takers, {"listening", "problem"}, LISTEN_LIMIT, "listen")
        found: dict[str, Listening] = {}
        for name in (name for name in self._takers if name in answers):
            told = read_listening(
                answers[name].unread("listening"),
                answers[name].text("problem", 200),
                self._takers[name].addresses,
            )
            if isinstance(told, Listening):
                found[name] = told
            else:
                self._absent[name] = told
        return found

    def _call(self, listening: Mapping[str, Listening]) -> list[Way]:
        orders = plan_orders(listening) if len(listening) > 1 else {}
        for name, peers in orders.items():
            self._send(name, {"mesh": "call", "peers": peers})
        answers = self._hear(orders, {"ways"}, REPORT_LIMIT, "report")
        return [
            way
            for name in orders
            if name in answers
            for way in read_ways(answers[name].unread("ways"), name, orders[name])
        ]

    def _send(self, name: str, order: Mapping[str, Any]) -> None:
        try:
            self._takers[name].session.send(order, timeout=SEND_LIMIT)
        except ClusterctlError as error:
            self._absent[name] = error.message

    def _hear(self, names: Iterable[str], wanted: set[str], limit: float, verb: str) -> Answers:
        """Wait for one frame of each node; who sends none within the limit is absent from then on."""
        answers: Answers = {}
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            waiting = {name for name in names if name not in self._absent}
            for name in waiting:
                selector.register(self._takers[name].session, selectors.EVENT_READ, name)
            ready: Sequence[str] = tuple(waiting)  # what came before we watched is told by no descriptor
            first = True  # also where the time is up: what is here is taken in
            while waiting and (first or time.monotonic() < deadline):
                first = False
                for name in ready:
                    answer = self._take(name, wanted)
                    if answer is not None or name in self._absent:
                        waiting.discard(name)
                        selector.unregister(self._takers[name].session)
                    if answer is not None:
                        answers[name] = answer
                left = max(0.0, deadline - time.monotonic())
                ready = [key.data for key, _ in selector.select(left)] if waiting else []
        for name in waiting:
            self._absent[name] = f"it did not {verb} within {limit:g} s"
        return answers

    def _take(self, name: str, wanted: set[str]) -> Untrusted | None:
        session = self._takers[name].session
        try:
            for header, _ in session.pump():
                if any(word in header for word in wanted):
                    return header
            if session.ended:  # its descriptor stays readable for ever
                self._absent[name] = "its part ended before the proof did"
        except ClusterctlError as error:
            self._absent[name] = error.message
        return None


def _master_port(listening: Mapping[str, Listening]) -> int | None:
    return next((place.master_port for place in listening.values() if place.master_port), None)


MOST_NAMES = 2000


def look_here(nodes: Sequence[Node], job: Job | None) -> Here:
    """Look at the keys that the inventory names and at the directory of the job's script; never raises."""
    keys = {node.ssh.key for node in nodes if node.ssh.key}
    modes = {path: mode for path in sorted(keys) if (mode := _mode(path)) & 0o077}
    return Here(modes, tuple(_beside_script(job)) if job is not None else ())


def _mode(path: str) -> int:
    with suppress(OSError, RuntimeError, ValueError):
        found = Path(path).expanduser().stat()
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else 0
    return 0


def _beside_script(job: Job) -> Iterator[str]:
    """Name the Python files, and the directories with Python files, in the directory that Python looks in first."""
    if job.script is None:
        return
    folder = Path(job.file).parent / job.sync.source / Path(job.script).parent
    with suppress(OSError), os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(MOST_NAMES), strict=False):
            if entry.name.endswith(".py"):
                yield entry.name
            elif (folder / entry.name / "__init__.py").is_file():
                yield f"{entry.name}/"
