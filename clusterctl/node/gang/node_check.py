"""Whether a silent node is gone: its kernel answers no connection, neither to us nor to other nodes.

The kernel of a node whose agent is halted, or swaps, still accepts or refuses connections: such a node keeps the whole
silence limit. Without power or cable nothing comes back. Nor does it through a firewall that drops or rejects these
connections, so "no answer" counts only for a node that has answered us before: it is checked once while it responds.
A node that reports that another one answers only delays: the hub gives up no node that it reaches itself, and waits for
all that it has asked and that are not silent themselves.
"""

from __future__ import annotations

import errno
import socket
from enum import Enum
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
    Sequence,
    Set,
    Tuple,
)

from ...protocol.messages.gang import CheckNode, NodeChecked, render_message
from ...protocol.ranks import Slot
from ..runtime.event_loop import Loop
from .limits import SUSPECTED_AFTER, beat_interval
from .membership import GangContext, Member

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec

WITNESSES = 2  # other nodes that are asked
CHECK_BEATS = 1.5  # beats that a check takes: what others found is here at the second one after it has begun
LOST_AFTER = SUSPECTED_AFTER + 2  # beats
MAX_CHECKS = 16  # at once: each opens files
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
FROM_ITS_KERNEL = (0, errno.ECONNREFUSED)  # accepted, or refused

Target = Tuple[str, int]


class Outcome(Enum):
    """What a check of a node has found."""

    ANSWERED = "a connection was accepted or refused"
    SILENT = "nothing came back"
    UNKNOWN = "it could not be found out"


def judge_error(error: int) -> Outcome:
    """Return what the error of a connection, 0 for none, means for the node at its other end."""
    if error in NO_ANSWER:
        return Outcome.SILENT
    return Outcome.ANSWERED if error in FROM_ITS_KERNEL else Outcome.UNKNOWN


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
        """Whether the node answered no other; those who are asked and not present themselves are not waited for."""
        return not self.answered and self.asked & frozenset(present) <= self.unanswered


def choose_witnesses(silent_slot: Slot, candidates: Iterable[Slot], slot_count: int) -> List[Slot]:
    """Choose the next nodes after the silent one, which differ from node to node."""
    return sorted(candidates, key=lambda slot: (slot - silent_slot) % slot_count)[:WITNESSES]


def describe_loss(spec: Spec) -> str:
    """Return why a node is lost before the silence limit."""
    return f"it was silent for {LOST_AFTER * beat_interval(spec):g} s, and its node does not answer"


class SilentNodes:
    """What a hub knows of the nodes of its silent members, and how it finds out."""

    def __init__(self, checks: NodeChecks, own_slot: Slot, slot_count: int) -> None:
        self._checks, self._own_slot, self._slot_count = checks, own_slot, slot_count
        self._suspicions: Dict[Slot, Suspicion] = {}

    def check(
        self,
        slot: Slot,
        members: Mapping[Slot, Member],
        also: Sequence[Target],
        report: Callable[[NodeChecked], None],
    ) -> None:
        """Check a member's node once while it responds, and with others, once, when it has become silent."""
        member, checks = members[slot], self._checks
        if member.is_responding:
            checks.check_once(slot, also)
        if not member.is_silent:
            self.forget(slot)
        elif slot not in self._suspicions and checks.has_answered(slot) and checks.can_check(slot):
            candidates = [other for other, one in members.items() if one.is_responding]
            witnesses = choose_witnesses(slot, candidates, self._slot_count)
            self._suspicions[slot] = Suspicion(frozenset({self._own_slot, *witnesses}))
            checks.start(slot, also, lambda answers: report(NodeChecked(slot, answers)))
            for witness in witnesses:
                if witness in members:  # sending to the one before it may have failed
                    members[witness].channel.send(render_message(CheckNode(slot)))

    def record(self, slot: Slot, message: NodeChecked) -> None:
        """Take what one of those found."""
        suspicion = self._suspicions.get(message.slot)
        if suspicion is not None:
            self._suspicions[message.slot] = suspicion.record(slot, answers=message.answers)

    def is_gone(self, slot: Slot, members: Mapping[Slot, Member]) -> bool:
        """Whether a member is silent, and its node answers no other."""
        suspicion, member = self._suspicions.get(slot), members.get(slot)
        if suspicion is None or member is None or not member.is_silent:
            return False
        present = {other for other in suspicion.asked if other in members and not members[other].is_silent}
        return suspicion.is_gone({self._own_slot, *present})

    def forget(self, slot: Slot) -> None:
        """Forget a member that has sent something again, or left."""
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
        self._checked_once: Set[Slot] = set()
        self._answered: Set[Slot] = set()

    def can_check(self, slot: Slot) -> bool:
        """Whether the spec has where a node could answer, and not too many checks run already."""
        return slot in self._ports and len(self._running) < MAX_CHECKS

    def has_answered(self, slot: Slot) -> bool:
        """Whether a node has ever answered a connection of ours: if not, no answer proves nothing."""
        return slot in self._answered

    def check_once(self, slot: Slot, also: Iterable[Target]) -> None:
        """Find out whether a node that responds answers connections; the port of its sshd, which logs them, is last."""
        if slot not in self._checked_once and slot not in self._running and self.can_check(slot):
            self._checked_once.add(slot)
            targets = dict.fromkeys([*also, *reversed(self._ports[slot])])
            self._start(slot, [[target] for target in targets], lambda _: None)

    def start(self, slot: Slot, also: Iterable[Target], on_result: Callable[[bool], None]) -> None:
        """Find out whether a node answers on any port, unless this is under way or not possible."""
        if slot not in self._running and self.can_check(slot):
            targets = list(dict.fromkeys([*self._ports[slot], *also]))
            self._start(slot, [targets] * TRIES, lambda outcome: on_result(outcome is not Outcome.SILENT))

    def _start(
        self, slot: Slot, rounds: Sequence[Sequence[Target]], on_result: Callable[[Outcome], None]
    ) -> None:
        def finish(outcome: Outcome) -> None:
            del self._running[slot]
            if outcome is Outcome.ANSWERED:
                self._answered.add(slot)
            on_result(outcome)

        spec = self._context.spec
        check = NodeCheck(self._context.loop, slot, rounds, str(spec.get("address") or ""))
        self._running[slot] = check
        check.start(CHECK_BEATS * beat_interval(spec), finish)

    def close(self) -> None:
        """Stop all, without a result."""
        for check in self._running.values():
            check.close()
        self._running.clear()


class NodeCheck:
    """Connects to ports of a node, round by round, until one answers or the time is over."""

    def __init__(self, loop: Loop, slot: Slot, rounds: Sequence[Sequence[Target]], source: str) -> None:
        self._loop, self._source = loop, source
        self._timer = f"check of slot {slot}"
        self._sockets: List[socket.socket] = []
        self._rounds = list(rounds)
        self._pause = 0.0
        self._on_result: Callable[[Outcome], None] = lambda _: None

    def start(self, seconds: float, on_result: Callable[[Outcome], None]) -> None:
        """Report from the loop what came back."""
        self._pause, self._on_result = seconds / len(self._rounds), on_result
        self._loop.after(0.0, self._timer, self._try)

    def close(self) -> None:
        """End it without a result."""
        self._loop.cancel(self._timer)
        while self._sockets:
            self._drop(self._sockets[-1])

    def _try(self) -> None:
        if not self._rounds:
            self._finish(Outcome.SILENT)
            return
        self._loop.after(self._pause, self._timer, self._try)
        for target in self._rounds.pop(0):
            outcome = self._connect(target)
            if outcome is not Outcome.SILENT:
                self._finish(outcome)
                return

    def _connect(self, target: Target) -> Outcome:
        """Return what is known at once; an answer may come later."""
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # no file is free
            return Outcome.UNKNOWN
        self._sockets.append(sock)
        sock.setblocking(False)
        try:
            if self._source:
                sock.bind((self._source, 0))
            sock.connect(target)
        except BlockingIOError:
            self._loop.watch_writable(sock.fileno(), lambda: self._on_connected(sock))
            return Outcome.SILENT
        except OSError as error:
            self._drop(sock)
            return judge_error(error.errno or 0)
        return Outcome.ANSWERED

    def _on_connected(self, sock: socket.socket) -> None:
        """Accepted or refused, its kernel has answered."""
        outcome = judge_error(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        self._drop(sock)
        if outcome is not Outcome.SILENT:
            self._finish(outcome)

    def _drop(self, sock: socket.socket) -> None:
        self._sockets.remove(sock)
        self._loop.unwatch(sock.fileno())
        sock.close()

    def _finish(self, outcome: Outcome) -> None:
        self.close()
        self._on_result(outcome)
