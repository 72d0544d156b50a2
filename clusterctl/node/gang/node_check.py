"""Whether a silent node is gone: its kernel answers no connection, neither to us nor to other nodes.

The kernel of a node whose agent is halted, or swaps, still accepts or refuses connections: such a node keeps the whole
silence limit. Without power or cable nothing comes back. A node that says of another that it answers only delays: the
hub gives up no node that it reaches itself, and waits for all that it has asked and that are not silent themselves.
"""

from __future__ import annotations

import errno
import socket
from typing import (
    TYPE_CHECKING,
    Callable,
    Collection,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from ...protocol.messages.gang import NodeChecked
from ...protocol.ranks import Slot
from ..runtime.event_loop import Loop
from .membership import SUSPECTED_AFTER, GangContext, Member, beat_interval

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec

WITNESSES = 2  # other nodes that are asked
CHECK_BEATS = 0.75  # of the time between two beats: what others found is here at the next one
MOST_CHECKS = 16  # at once: each opens files
TRIES = 4  # connections to each port, so that the last one is tried late: a cable may be back by then
# Nothing came back. A missing address of our own is the same: we are cut off, and the others cannot reach us.
NO_ANSWER = (
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.EADDRNOTAVAIL,
)

Target = Tuple[str, int]


class Suspicion(NamedTuple):
    """What is known of a silent node: who was asked to connect to it, who got no answer, and whether any did."""

    asked: FrozenSet[Slot]
    unanswered: FrozenSet[Slot] = frozenset()
    answered: bool = False

    def record(self, slot: Slot, *, answers: bool) -> Suspicion:
        """Take what one of those found; of others nothing is taken."""
        if slot not in self.asked:
            return self
        if answers:
            return self._replace(answered=True)
        return self._replace(unanswered=self.unanswered | {slot})

    def is_gone(self, present: Collection[Slot]) -> bool:
        """Whether the node answered nobody; those who are asked and not present themselves are not waited for."""
        return not self.answered and self.asked & frozenset(present) <= self.unanswered


def choose_witnesses(silent_slot: Slot, candidates: Iterable[Slot], slot_count: int) -> List[Slot]:
    """Choose the next nodes after the silent one, which differ from node to node."""
    return sorted(candidates, key=lambda slot: (slot - silent_slot) % slot_count)[:WITNESSES]


def describe_loss(spec: Spec) -> str:
    """Say why a node is lost before the silence limit."""
    return f"it was silent for {SUSPECTED_AFTER * beat_interval(spec):g} s, and its node does not answer"


class SilentNodes:
    """What a hub knows of its silent members."""

    def __init__(self, own_slot: Slot, slot_count: int) -> None:
        self._own_slot, self._slot_count = own_slot, slot_count
        self._suspicions: Dict[Slot, Suspicion] = {}

    def find_witnesses(self, slot: Slot, members: Mapping[Slot, Member]) -> Optional[List[Slot]]:
        """Choose who is asked about a member that has become silent; None for any other."""
        if not members[slot].is_silent:
            self.forget(slot)
            return None
        if slot in self._suspicions:
            return None
        candidates = [other for other, member in members.items() if member.is_responding]
        witnesses = choose_witnesses(slot, candidates, self._slot_count)
        self._suspicions[slot] = Suspicion(frozenset({self._own_slot, *witnesses}))
        return witnesses

    def record(self, slot: Slot, message: NodeChecked) -> None:
        """Take what one of those found."""
        suspicion = self._suspicions.get(message.slot)
        if suspicion is not None:
            self._suspicions[message.slot] = suspicion.record(slot, answers=message.answers)

    def is_gone(self, slot: Slot, members: Mapping[Slot, Member]) -> bool:
        """Whether a member is silent, and its node answers nobody."""
        suspicion = self._suspicions.get(slot)
        if suspicion is None or not members[slot].is_silent:
            return False
        present = {other for other in suspicion.asked if other in members and not members[other].is_silent}
        return suspicion.is_gone({self._own_slot, *present})

    def forget(self, slot: Slot) -> None:
        """Forget a member that was heard again, or left."""
        self._suspicions.pop(slot, None)


class NodeChecks:
    """The checks of other nodes that run here, one at a time for each."""

    def __init__(self, context: GangContext) -> None:
        self._context = context
        self._ports: Dict[Slot, List[Target]] = {
            Slot(int(entry["slot"])): [(str(entry["address"]), int(port)) for port in entry["ports"]]
            for entry in context.spec.get("node_ports") or ()
        }
        self._running: Dict[Slot, NodeCheck] = {}

    def can_check(self, slot: Slot) -> bool:
        """Whether the spec says where a node could answer, and not too many checks run already."""
        return slot in self._ports and len(self._running) < MOST_CHECKS

    def start(self, slot: Slot, also: Iterable[Target], on_result: Callable[[bool], None]) -> None:
        """Find out whether a node answers on any port, unless this is under way or not possible."""
        if slot in self._running or not self.can_check(slot):
            return

        def finish(answers: bool) -> None:
            del self._running[slot]
            on_result(answers)

        spec = self._context.spec
        targets = list(dict.fromkeys([*self._ports[slot], *also]))
        source = str(spec.get("address") or "")
        check = self._running[slot] = NodeCheck(self._context.loop, slot, targets, source)
        check.start(CHECK_BEATS * beat_interval(spec), finish)

    def close(self) -> None:
        """Stop all, without a result."""
        for check in self._running.values():
            check.close()
        self._running.clear()


class NodeCheck:
    """Connects to some ports of a node again and again, until one answers or the time is over."""

    def __init__(self, loop: Loop, slot: Slot, targets: List[Target], source: str) -> None:
        self._loop, self._targets, self._source = loop, targets, source
        self._timer = f"check of slot {slot}"
        self._sockets: List[socket.socket] = []
        self._tries = TRIES
        self._pause = 0.0
        self._on_result: Callable[[bool], None] = lambda _: None

    def start(self, seconds: float, on_result: Callable[[bool], None]) -> None:
        """Report from the loop whether anything came back; True also where it cannot be found out."""
        self._pause, self._on_result = seconds / TRIES, on_result
        self._loop.after(0.0, self._timer, self._try)

    def close(self) -> None:
        """End it without a result."""
        self._loop.cancel(self._timer)
        while self._sockets:
            self._drop(self._sockets[-1])

    def _try(self) -> None:
        if self._tries == 0:
            self._finish(answers=False)
            return
        self._tries -= 1
        self._loop.after(self._pause, self._timer, self._try)
        if any(self._is_answered_at_once(target) for target in self._targets):
            self._finish(answers=True)

    def _is_answered_at_once(self, target: Target) -> bool:
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # no file is free: nothing is proven
            return True
        self._sockets.append(sock)
        sock.setblocking(False)
        try:
            if self._source:
                sock.bind((self._source, 0))
            sock.connect(target)
        except BlockingIOError:
            self._loop.watch_writable(sock.fileno(), lambda: self._on_connected(sock))
            return False
        except OSError as error:
            self._drop(sock)
            return error.errno not in NO_ANSWER
        return True

    def _on_connected(self, sock: socket.socket) -> None:
        """Accepted or refused, its kernel has answered."""
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._drop(sock)
        if error not in NO_ANSWER:
            self._finish(answers=True)

    def _drop(self, sock: socket.socket) -> None:
        self._sockets.remove(sock)
        self._loop.unwatch(sock.fileno())
        sock.close()

    def _finish(self, *, answers: bool) -> None:
        self.close()
        self._on_result(answers)
