"""The run on this node; which gang role it has."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from ...protocol.untrusted import Untrusted
from ..gang.membership import LONGEST_REASON, TIME, Facts, Gang, Order, Side, interval_of, overdue_after
from ..gang.messages import make_record
from ..gang.restarts import Restarts
from ..logs.recorder import Logbook
from ..runtime.event_loop import Loop, give_up
from ..runtime.exit_status import describe_limit
from ..runtime.processes import Identity, become_subreaper, identify, reap, send_signal, wake_on
from ..state.locks import ORDERS, Claim, Locks
from ..state.run_record import FINAL, Record, new_state, time_to_prepare
from ..state.workdir import drop_ballast, lay_ballast, read_json
from .agent_api import Client
from .attempt import Attempt


def make_gang(side: Side, restarts: Optional[Restarts]) -> Gang:
    """Choose what this node is; what it is not is not loaded."""
    if restarts is not None:
        from ..gang.failover import Circle

        return Circle(side, restarts)
    if not side.spec.get("gang"):
        return Gang(side)
    if side.spec["node_rank"] == 0:
        from ..gang.hub import Hub

        return Hub(side)
    from ..gang.peer import Peer

    return Peer(side)


GO_LIMIT = 3600.0  # seconds that a ready gate waits
WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words


class Wires(NamedTuple):
    """The agent's descriptors: the client's socket, the guardian's orders, and beats for the guardian."""

    control: int
    orders: int
    beats: int


class Agent:
    """The life of one run on this node, from the client's first frame to the final state."""

    def __init__(self, rundir: str, spec: Dict[str, Any], wires: Wires, interval: float) -> None:
        self.rundir = rundir
        self.spec = spec
        self.wires = wires
        self.interval = min(interval, interval_of(spec)) if spec.get("gang") else interval
        self.loop = Loop()
        self.loop.failed = self.collapse
        self.client = Client(self.loop, wires.control, self.obey, self.client_left)
        self.record = Record(rundir, new_state(spec))
        locks = Locks(self.loop, spec, lambda: self.attempt.seen.went)
        self.claim = Claim(locks, self.record, spec, self.client.tell)
        self.attempt: Attempt = Attempt(self, spec, idle=bool(spec.get("spare")))
        limit = int(spec.get("log_limit") or 0)
        self.logbook = Logbook(self.loop, self.record, limit, self.logs)
        self.restarts = Restarts(self) if spec.get("restart") else None
        self.gang = Gang(self.side(b""))
        self.secrets: Optional[Dict[str, str]] = None
        self.stops = 0
        self.collapsed = False
        self.token = ""

    def run(self, guardian: Identity) -> None:
        """Serve until everything of the run has ended and is recorded."""
        become_subreaper()
        lay_ballast(self.rundir)
        os.set_blocking(self.wires.beats, False)
        wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
        self.loop.watch(wakeup, lambda: self.wake(os.read(wakeup, 512)))
        self.loop.watch(self.wires.orders, self.hear_guardian)
        me = identify(os.getpid())
        self.record.set(state="PREPARING", guardian=guardian.as_dict(), agent=me.as_dict())
        self.record.note("preparing")
        self.await_go()
        self.logbook.begin()
        self.beat()
        self.loop.run()
        send_signal(guardian, signal.SIGCONT)  # one that somebody halted could not see us off

    def await_go(self) -> None:
        """Give the client time for GO, from now on."""
        limit = GO_LIMIT + time_to_prepare(self.spec)
        self.loop.after(limit, "go", lambda: self.attempt.cancel("no GO came"))

    # what arrives

    def obey(self, order: Dict[str, Any]) -> None:
        """Take one frame of the client."""
        if "secrets" in order and self.secrets is None:
            self.claim.obey("lock")
            self.secrets, self.token = order["secrets"], str(order.get("token") or "")
            self.prepare()
        elif order.get("do") in ("join", "doors"):
            self.gang.know(order.get("doors") or [])
            if order["do"] == "join":
                self.gang.join(int(order["port"]))
        elif order.get("do") == "setup":
            self.attempt.departure.set_up()
        elif order.get("do") == "before":
            self.attempt.departure.run_before()
        elif order.get("do") in ORDERS:
            self.claim.obey(order["do"])
            self.await_go()
        elif order.get("do") == "go":
            self.take_go(order)
        elif order.get("do") == "cancel":
            self.attempt.cancel(order.get("reason") or "cancelled before the start")

    def take_go(self, order: Dict[str, Any]) -> None:
        """Let the first attempt go; the client's GO for a spare may come after the gang has called it in."""
        if not self.attempt.first:
            self.client.tell("going")
            self.client.close()
        elif self.attempt.idle:
            self.attempt.wait_aside()
        else:
            self.attempt.departure.go(int(order["master_port"]))

    def prepare(self) -> None:
        """Make the gang, and set out; a spare only opens its door."""
        self.gang = make_gang(self.side(self.token.encode("utf-8")), self.restarts)
        if self.attempt.idle:
            self.attempt.departure.stand_by()
        else:
            self.depart()

    def begin_attempt(self, spec: Dict[str, Any], *, idle: bool) -> None:
        """Put a new attempt in the place of one that has ended."""
        self.attempt = Attempt(self, spec, idle=idle)
        self.attempt.seen = self.attempt.seen._replace(went=idle)

    def depart(self) -> None:
        """Set out for GO."""
        secrets = self.secrets or {}
        if self.restarts is not None:
            self.restarts.begin()
        self.attempt.prepare({**secrets, "": self.token}, secrets)

    def side(self, token: bytes) -> Side:
        """Give what the gang may do here."""
        return Side(self.loop, self.spec, token, self.client.tell, self.follow_order, self.keep, self.leave)

    def client_left(self) -> None:
        """Cancel unless GO was given."""
        if self.attempt.first and not self.attempt.seen.went:
            self.attempt.cancel("the client left before GO")

    def hear_guardian(self) -> None:
        """Pass on a stop; end everything at once if the guardian is gone."""
        if os.read(self.wires.orders, 64):
            self.stop()
            return
        self.loop.forget(self.wires.orders)
        self.record.note("guardian_lost")
        self.lose("the guardian was killed")

    def lose(self, reason: str) -> None:
        """End everything here at once, because it can be looked after no more."""
        if self.restarts is not None:
            self.restarts.lose_agent(reason)
        else:
            self.attempt.lose(reason)

    def collapse(self, error: Exception) -> None:
        """End in order after an error of our own, which the log holds; where that cannot be, the guardian does it."""
        self.loop.report(error)
        ended = self.record.state["state"] in FINAL
        waits = self.restarts is not None and self.attempt.ended
        if self.collapsed or (self.attempt.deadline.over and not ended and not waits):
            raise error
        self.collapsed = True
        self.loop.after(overdue_after(self.spec, 0.0), "collapse", lambda: give_up(error))
        reason = f"the agent failed: {type(error).__name__}: {error}"[:LONGEST_REASON]
        self.record.note("agent_failed", reason=reason)
        if ended:
            self.gang.desert()
        else:
            self.lose(reason)

    def wake(self, numbers: bytes) -> None:
        """Serve signals."""
        if signal.SIGTERM in numbers:
            self.stop()
        for pid, status in reap():
            self.attempt.reaped(pid, status)

    def beat(self) -> None:
        """Tell the guardian that we are alive, and write what a full disk refused."""
        self.loop.after(self.interval, "beat", self.beat)
        with suppress(OSError):
            os.write(self.wires.beats, b".")
        self.gang.beat()
        self.attempt.look()
        self.record.flush()

    def logs(self) -> List[str]:
        """Name the logs that may grow now."""
        return self.attempt.logs()

    def count_time(self) -> None:
        """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
        limit = self.spec.get("time_limit")
        self.attempt.began = time.time()
        if self.record.state["began"] is None:
            self.record.set(began=self.attempt.began)
            if limit:
                self.limit_within(limit)

    def limit_within(self, seconds: float) -> None:
        """End the run in so many seconds, whichever attempt it is at then."""
        self.loop.after(seconds, "time limit", self.reach_limit)

    # the end

    def stop(self) -> None:
        """End the run on all nodes, as a person asked for; who asks again does not wait for `after`."""
        if self.stops:
            self.attempt.afterwards.cut()
        self.stops += 1
        wish = Untrusted(read_json(os.path.join(self.rundir, "stop.json")))
        wished = wish.number("grace", 0.0)
        grace = float(self.spec["grace"]) if wished is None else wished
        self.end_all(Order(wish.text("reason", LONGEST_REASON) or "stopped", grace))

    def reach_limit(self) -> None:
        """End the run because its time is up, unless it is ending already."""
        seen = self.attempt.seen
        between = self.restarts is not None and self.attempt.ended
        if between or (seen.cancelled is None and seen.first_failure is None):
            self.end_all(Order(describe_limit(self.spec["time_limit"]), float(self.spec["grace"]), TIME))

    def end_all(self, order: Order) -> None:
        """End the part of this node, and the others'."""
        self.follow_order(order)
        self.gang.stopped(order)

    def follow_order(self, order: Order) -> None:
        """End this node's part."""
        self.attempt.follow_order(order)

    def attempt_ended(self, part: Facts, left: List[Facts]) -> None:
        """Record, tell, and go as soon as the gang knows and the disk has taken it."""
        self.logbook.conclude()
        if self.restarts is not None and (self.attempt.seen.went or not self.attempt.first):
            self.restarts.attempt_ended(part, left)
            return
        self.keep(make_record(self.spec, [part], None, whole=not self.spec.get("gang")))
        state, reason, ended = part["state"], part["reason"], self.attempt.sweep.account()
        self.record.note("ended", state=state, reason=reason, ended=ended, left=left)
        self.record.set(state=state, reason=reason, left=left)
        self.client.tell("ended", state=state, reason=reason)
        self.client.close()
        self.attempt.release.then(
            lambda: self.claim.obey("unlock")
        )  # whoever waits for the rest holds no GPU
        self.gang.ended(part)

    def keep(self, record: Facts) -> None:
        """Write down what is known of the whole run's end."""
        self.record.keep(record)

    def leave(self) -> None:
        """Nothing of the gang is left to wait for: end the loop once the last words are written."""
        if not self.record.state["parted"]:
            self.record.set(parted=True)
            self.loop.after(WRITE_LIMIT, "give up", self.loop.stop)
        drop_ballast(self.rundir)
        if self.record.flush():
            self.attempt.release.then(self.loop.stop)
        else:
            self.loop.after(1.0, "leave", self.leave)
