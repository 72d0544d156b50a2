"""The locks of a run on this node: one abstract socket for each GPU, one for the node.

The kernel frees them when the agent dies, however it dies. They belong to the network namespace: all accounts of a
machine see them, containers with a network of their own do not.

A run that wants the whole node holds NODE; any other holds a SHARE of it. Each binds its own name first and looks at
the other's then, so that of two who come at once at least one sees the other.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Dict, List, Set, Tuple

from ...protocol.states import PREPARING, WAITING
from ..runtime.event_loop import Loop
from .lock_holders import (
    GPU,
    NODE,
    SHARE,
    belongs_to,
    names_in_use,
    query_holders,
    share_name,
    socket_address,
)
from .run_record import Record

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.verbs import AnyEventFacts, EventName, Holder, HolderAnswer, LockOrder

    SendEvent = Callable[[EventName, AnyEventFacts], None]

ORDERS: Tuple[LockOrder, ...] = ("lock", "list_holders", "unlock")
LOCK_TRIES = 5  # times to take all, when those who were in the way have just left
BACKLOG = 64
VISITORS_PER_TURN = 16  # visitors served before the agent does something else
ACCEPT_PAUSE = 1.0  # seconds without visitors after the system refused one


def exclusive_names(spec: Spec) -> List[str]:
    """Name what a run must hold alone, in the order of all runs."""
    gpus = sorted(GPU + str(gpu["id"]) for gpu in spec.get("gpus") or ())
    return [NODE, *gpus] if spec.get("exclusive") else gpus


class Locks:
    """Takes all locks of a run or none, and sends every process that connects who holds them."""

    def __init__(self, loop: Loop, spec: Spec, has_started: Callable[[], bool]) -> None:
        self._loop = loop
        self._spec = spec
        self._has_started = has_started
        self._held: Dict[str, socket.socket] = {}
        self._since = time.time()
        self._share = share_name(str(spec["run"]), str(spec["node"]))

    @property
    def held(self) -> bool:
        """Whether all are ours."""
        return bool(self._held)

    def acquire(self) -> List[Holder]:
        """Take all at once; if one is held, take none and name its holder."""
        if self.held:
            return []
        own_names: Set[str] = set()  # two nodes of this run may be one machine
        for attempt in range(LOCK_TRIES):
            time.sleep(attempt * random.uniform(0.002, 0.01))
            taken = self._bind(own_names)
            holders = query_holders(taken)
            own_taken = {holder["name"] for holder in holders if belongs_to(holder, self._spec["run"])}
            others = [holder for holder in holders if holder["name"] not in own_taken]
            if others:
                self.release()
                return others
            if not taken:
                others = self._others_here()
                if others:
                    self.release()
                return others
            own_names |= own_taken
        return [{"name": name, "run": None} for name in taken]

    def find_holders(self) -> List[Holder]:
        """Return who is in the way, and take nothing."""
        holders = query_holders(exclusive_names(self._spec)) + self._others_here()
        return [holder for holder in holders if not belongs_to(holder, self._spec["run"])]

    def release(self) -> None:
        """Release all locks."""
        for sock in self._held.values():
            self._loop.unwatch(sock.fileno())
            sock.close()
        self._held.clear()

    def _others_here(self) -> List[Holder]:
        """Ask those who only share the node, or have it alone; those of this run do not count."""
        names = names_in_use(SHARE) if self._spec.get("exclusive") else [NODE]
        holders = query_holders(name for name in names if name != self._share)
        return [holder for holder in holders if not belongs_to(holder, self._spec["run"])]

    def _bind(self, skipped: Set[str]) -> List[str]:
        """Bind what is free; if not all is, keep nothing and name the rest."""
        names = [name for name in exclusive_names(self._spec) if name not in skipped]
        names += [] if self._spec.get("exclusive") else [self._share]
        taken = []
        for name in names:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                sock.bind(socket_address(name))
                sock.listen(BACKLOG)
            except OSError:
                sock.close()
                taken.append(name)
            else:
                self._held[name] = sock
        if taken:
            self.release()
        else:
            self._since = time.time()
            for sock in self._held.values():
                self._serve(sock)
        return taken

    def _serve(self, sock: socket.socket) -> None:
        self._loop.watch(sock.fileno(), lambda: self._answer(sock))

    def _answer(self, sock: socket.socket) -> None:
        """Answer those that connect; each gets what its buffer takes at once, so that none can delay us."""
        for _ in range(VISITORS_PER_TURN):
            try:
                visitor = sock.accept()[0]
            except BlockingIOError:
                return
            except OSError:  # descriptors may be scarce: not to be asked again at once
                number = sock.fileno()
                self._loop.unwatch(number)
                self._loop.after(ACCEPT_PAUSE, "lock %d" % number, lambda: self._resume(sock))
                return
            with suppress(OSError), visitor:
                visitor.setblocking(False)
                visitor.send(self._render_answer())

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._held.values():
            self._serve(sock)

    def _render_answer(self) -> bytes:
        spec = self._spec
        run, job, node, by = (str(spec.get(key) or "")[:300] for key in ("run", "job", "node", "launched_by"))
        answer: HolderAnswer = {
            "run": run,
            "job": job,
            "node": node,
            "by": by,
            "since": self._since,
            "submitted": spec.get("submitted"),
            "protocol": 1,
            "going": self._has_started(),
            "agent": os.getpid(),
        }
        return json.dumps(answer).encode("ascii")


class NodeLocks:
    """The client's orders about locks, and the answers: {"event": "locks", "held": ..., "holders": [...]}."""

    def __init__(self, locks: Locks, record: Record, spec: Spec, send_event: SendEvent) -> None:
        self._locks = locks
        self._record = record
        self._gpus = {GPU + str(gpu["id"]): gpu.get("index") for gpu in spec.get("gpus") or ()}
        self._send_event = send_event

    @property
    def held(self) -> bool:
        """Whether all is ours."""
        return self._locks.held

    def on_order(self, order: LockOrder) -> None:
        """Carry out one order of ORDERS, and answer."""
        holders: List[Holder] = []
        if order == "lock":
            holders = self._locks.acquire()
            self._record_holders(holders)
        elif order == "list_holders":
            holders = self._locks.find_holders()
        else:
            self._locks.release()
        for holder in holders:
            holder["gpu"] = self._gpus.get(holder["name"])
        self._send_event("locks", {"held": self._locks.held, "holders": holders})

    def _record_holders(self, holders: List[Holder]) -> None:
        if holders:
            run_ids = sorted({str(holder.get("run") or holder["name"]) for holder in holders})
            if self._record.state["state"] != WAITING:
                self._record.add_event("busy", {"holders": run_ids})
            self._record.set({"state": WAITING, "reason": "waits for %s" % ", ".join(run_ids)})
        elif self._record.state["state"] == WAITING and self._record.state["reason"] != "spare":
            self._record.add_event("locked")
            spare = bool(self._record.state.get("spare"))
            self._record.set({"state": WAITING if spare else PREPARING, "reason": "spare" if spare else ""})
