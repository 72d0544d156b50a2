"""The run on this node; which gang role it has."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from ...protocol.untrusted import Untrusted
from ..gang.membership import (
    LONGEST_REASON,
    TIME,
    Gang,
    GangContext,
    JsonObject,
    StopOrder,
    beat_interval,
    overdue_after,
)
from ..gang.messages import make_record
from ..logs.recorder import LogRecorder
from ..runtime.event_loop import Loop, reraise
from ..runtime.exit_status import describe_limit
from ..runtime.processes import Identity, identify, reap, send_signal, set_subreaper, wake_on
from ..state.locks import ORDERS, Locks, NodeLocks
from ..state.run_record import FINAL, Record, new_state, time_to_prepare
from ..state.workdir import read_json, release_disk_reserve, reserve_disk
from .agent_api import Client
from .attempt import Attempt
from .restarts import Restarts


def make_gang(context: GangContext, restarts: Optional[Restarts]) -> Gang:
    """Choose what this node is; what it is not is not loaded."""
    if restarts is not None:
        from ..gang.failover import FailoverGang

        return FailoverGang(context, restarts)
    if not context.spec.get("gang"):
        return Gang(context)
    if context.spec["node_rank"] == 0:
        from ..gang.hub import Hub

        return Hub(context)
    from ..gang.peer import Peer

    return Peer(context)


GO_LIMIT = 3600.0  # seconds that a ready gate waits
WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words


class Descriptors(NamedTuple):
    """The agent's descriptors: the client's socket, the guardian's orders, and beats for the guardian."""

    control: int
    orders: int
    beats: int


class Agent:
    """The life of one run on this node, from the client's first frame to the final state."""

    def __init__(self, rundir: str, spec: Dict[str, Any], descriptors: Descriptors, interval: float) -> None:
        self.rundir = rundir
        self.spec = spec
        self.descriptors = descriptors
        self.interval = min(interval, beat_interval(spec)) if spec.get("gang") else interval
        self.loop = Loop()
        self.loop.on_error = self.on_error
        self.client = Client(self.loop, descriptors.control, self.on_order, self.on_client_left)
        self.record = Record(rundir, new_state(spec))
        locks = Locks(self.loop, spec, lambda: self.attempt.observed.started)
        self.locks = NodeLocks(locks, self.record, spec, self.client.send_event)
        self.attempt: Attempt = Attempt(self, spec, idle=bool(spec.get("spare")))
        limit = int(spec.get("log_limit") or 0)
        self.log_recorder = LogRecorder(self.loop, self.record, limit, self.logs)
        self.restarts = Restarts(self) if spec.get("restart") else None
        self.gang = Gang(self.gang_context(b""))
        self.secrets: Optional[Dict[str, str]] = None
        self.stops = 0
        self.failing = False
        self.token = ""

    def run(self, guardian: Identity) -> None:
        """Serve until everything of the run has ended and is recorded."""
        set_subreaper()
        reserve_disk(self.rundir)
        os.set_blocking(self.descriptors.beats, False)
        wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
        self.loop.watch(wakeup, lambda: self.on_signals(os.read(wakeup, 512)))
        self.loop.watch(self.descriptors.orders, self.on_guardian)
        own_identity = identify(os.getpid())
        self.record.set(state="PREPARING", guardian=guardian.as_dict(), agent=own_identity.as_dict())
        self.record.add_event("preparing")
        self.start_go_timeout()
        self.log_recorder.start()
        self.beat()
        self.loop.run()
        send_signal(guardian, signal.SIGCONT)  # one that somebody halted could not see us off

    def start_go_timeout(self) -> None:
        """Give the client time for GO, from now on."""
        limit = GO_LIMIT + time_to_prepare(self.spec)
        self.loop.after(limit, "go", lambda: self.attempt.cancel("no GO came"))

    # what arrives

    def on_order(self, order: Dict[str, Any]) -> None:
        """Take one frame of the client."""
        if "secrets" in order and self.secrets is None:
            self.locks.on_order("lock")
            self.secrets, self.token = order["secrets"], str(order.get("token") or "")
            self.prepare()
        elif order.get("do") in ("join", "doors"):
            self.gang.set_listen_addresses(order.get("doors") or [])
            if order["do"] == "join":
                self.gang.join(int(order["port"]))
        elif order.get("do") == "setup":
            self.attempt.startup.make_environment()
        elif order.get("do") == "before":
            self.attempt.startup.run_before()
        elif order.get("do") in ORDERS:
            self.locks.on_order(order["do"])
            self.start_go_timeout()
        elif order.get("do") == "go":
            self.on_go(order)
        elif order.get("do") == "cancel":
            self.attempt.cancel(order.get("reason") or "cancelled before the start")

    def on_go(self, order: Dict[str, Any]) -> None:
        """Let the first attempt go; the client's GO for a spare may come after the gang has called it in."""
        if not self.attempt.is_first:
            self.client.send_event("going")
            self.client.close()
        elif self.attempt.idle:
            self.attempt.mark_idle()
        else:
            self.attempt.startup.on_go(int(order["master_port"]))

    def prepare(self) -> None:
        """Make the gang and start up; a spare only listens."""
        self.gang = make_gang(self.gang_context(self.token.encode("utf-8")), self.restarts)
        if self.attempt.idle:
            self.attempt.startup.start_idle()
        else:
            self.start_up()

    def begin_attempt(self, spec: Dict[str, Any], *, idle: bool) -> None:
        """Put a new attempt in the place of one that has ended."""
        self.attempt = Attempt(self, spec, idle=idle)
        self.attempt.observed = self.attempt.observed._replace(started=idle)

    def start_up(self) -> None:
        """Set out for GO."""
        secrets = self.secrets or {}
        if self.restarts is not None:
            self.restarts.begin()
        self.attempt.prepare({**secrets, "": self.token}, secrets)

    def gang_context(self, token: bytes) -> GangContext:
        """Give what the gang may do here."""
        return GangContext(
            self.loop,
            self.spec,
            token,
            self.client.send_event,
            self.stop_own_part,
            self.save_record,
            self.leave,
        )

    def on_client_left(self) -> None:
        """Cancel unless GO was given."""
        if self.attempt.is_first and not self.attempt.observed.started:
            self.attempt.cancel("the client left before GO")

    def on_guardian(self) -> None:
        """Pass on a stop; end everything at once if the guardian is gone."""
        if os.read(self.descriptors.orders, 64):
            self.stop()
            return
        self.loop.unwatch(self.descriptors.orders)
        self.record.add_event("guardian_lost")
        self.stop_unsupervised("the guardian was killed")

    def stop_unsupervised(self, reason: str) -> None:
        """End everything here at once, because it can be looked after no more."""
        if self.restarts is not None:
            self.restarts.on_agent_lost(reason)
        else:
            self.attempt.stop_unsupervised(reason)

    def on_error(self, error: Exception) -> None:
        """End in order after an error of our own, which the log holds; where that cannot be, the guardian does it."""
        self.loop.report(error)
        ended = self.record.state["state"] in FINAL
        between_attempts = self.restarts is not None and self.attempt.ended
        if self.failing or (self.attempt.kill_schedule.finished and not ended and not between_attempts):
            raise error
        self.failing = True
        self.loop.after(overdue_after(self.spec, 0.0), "collapse", lambda: reraise(error))
        reason = f"the agent failed: {type(error).__name__}: {error}"[:LONGEST_REASON]
        self.record.add_event("agent_failed", reason=reason)
        if ended:
            self.gang.leave()
        else:
            self.stop_unsupervised(reason)

    def on_signals(self, signal_numbers: bytes) -> None:
        """Serve signals."""
        if signal.SIGTERM in signal_numbers:
            self.stop()
        for pid, status in reap():
            self.attempt.on_child_exit(pid, status)

    def beat(self) -> None:
        """Tell the guardian that we are alive, and write what a full disk refused."""
        self.loop.after(self.interval, "beat", self.beat)
        with suppress(OSError):
            os.write(self.descriptors.beats, b".")
        self.gang.beat()
        self.attempt.check_output()
        self.record.flush()

    def logs(self) -> List[str]:
        """Name the logs that may grow now."""
        return self.attempt.logs()

    def start_time_limit(self) -> None:
        """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
        limit = self.spec.get("time_limit")
        self.attempt.began = time.time()
        if self.record.state["began"] is None:
            self.record.set(began=self.attempt.began)
            if limit:
                self.set_time_limit(limit)

    def set_time_limit(self, seconds: float) -> None:
        """End the run in so many seconds, whichever attempt it is at then."""
        self.loop.after(seconds, "time limit", self.on_time_limit)

    # the end

    def stop(self) -> None:
        """End the run on all nodes, as a person asked for; who asks again does not wait for `after`."""
        if self.stops:
            self.attempt.after_hook.cancel()
        self.stops += 1
        request = Untrusted(read_json(os.path.join(self.rundir, "stop.json")))
        requested_grace = request.number("grace", 0.0)
        grace = float(self.spec["grace"]) if requested_grace is None else requested_grace
        self.stop_everywhere(StopOrder(request.text("reason", LONGEST_REASON) or "stopped", grace))

    def on_time_limit(self) -> None:
        """End the run because its time is up, unless it is ending already."""
        observed = self.attempt.observed
        between_attempts = self.restarts is not None and self.attempt.ended
        if between_attempts or (observed.cancelled is None and observed.first_failure is None):
            self.stop_everywhere(
                StopOrder(describe_limit(self.spec["time_limit"]), float(self.spec["grace"]), TIME)
            )

    def stop_everywhere(self, order: StopOrder) -> None:
        """End the part of this node, and the others'."""
        self.stop_own_part(order)
        self.gang.on_stop(order)

    def stop_own_part(self, order: StopOrder) -> None:
        """End this node's part."""
        self.attempt.stop_own_part(order)

    def on_attempt_ended(self, part: JsonObject, leftovers: List[JsonObject]) -> None:
        """Record, tell, and go as soon as the gang knows and the disk has taken it."""
        self.log_recorder.conclude()
        if self.restarts is not None and (self.attempt.observed.started or not self.attempt.is_first):
            self.restarts.on_attempt_ended(part, leftovers)
            return
        self.save_record(make_record(self.spec, [part], None, whole=not self.spec.get("gang")))
        state, reason, ended = part["state"], part["reason"], self.attempt.process_tree.signalled()
        self.record.add_event("ended", state=state, reason=reason, ended=ended, left=leftovers)
        self.record.set(state=state, reason=reason, left=leftovers)
        self.client.send_event("ended", state=state, reason=reason)
        self.client.close()
        # whoever waits for the rest holds no GPU
        self.attempt.gpu_memory_wait.when_free(lambda: self.locks.on_order("unlock"))
        self.gang.on_end(part)

    def save_record(self, record: JsonObject) -> None:
        """Write down what is known of the whole run's end."""
        self.record.save_gang_record(record)

    def leave(self) -> None:
        """Nothing of the gang is left to wait for: end the loop once the last words are written."""
        if not self.record.state["parted"]:
            self.record.set(parted=True)
            self.loop.after(WRITE_LIMIT, "give up", self.loop.stop)
        release_disk_reserve(self.rundir)
        if self.record.flush():
            self.attempt.gpu_memory_wait.when_free(self.loop.stop)
        else:
            self.loop.after(1.0, "leave", self.leave)
