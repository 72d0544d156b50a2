"""The agent: starts the gate, gives it GO, watches torchrun and its workers, and ends what they leave."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from .client import Client, tail_of
from .deadline import Deadline
from .departure import Departure
from .ending import Sweep, as_left
from .evidence import Evidence
from .gang import FAILURE_WAIT, TIME, Facts, Gang, Order, Side, interval_of, make_gang, make_record
from .locks import ORDERS, Claim, Locks
from .loop import Loop
from .processes import Identity, Stat, become_subreaper, identify, reap, wake_on
from .release import Release
from .state import Record, new_state, tag_of
from .torchrun import Torchrun
from .verdict import Seen, describe_end, describe_limit, judge
from .workdir import read_json
from .workers import Worker

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
        self.client = Client(self.loop, wires.control, self.obey, self.client_left)
        self.record = Record(rundir, new_state(spec))
        locks = Locks(self.loop, spec, lambda: self.seen.went)
        self.claim = Claim(locks, self.record, spec, self.client.tell)
        self.sweep = Sweep(tag_of(spec))
        self.release = Release(self.loop, spec, self.record, lambda: self.seen.went)
        finish = self.release.before(self.finish)
        self.deadline = Deadline(self.loop, self.sweep, self.torchrun_pid, finish)
        world_size = spec["world_size"] if spec["module"] else None
        self.seen = Seen(went=False, processes=spec["processes"], world_size=world_size)
        self.torchrun: Optional[Torchrun] = None
        self.departure = Departure(self)
        self.evidence = Evidence(rundir, {})
        self.gang = Gang(self.side(b""))
        self.stopped_at: Optional[float] = None
        self.ended = False

    def run(self, guardian: Identity) -> None:
        """Serve until everything of the run has ended and is recorded."""
        become_subreaper()
        os.set_blocking(self.wires.beats, False)
        wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
        self.loop.watch(wakeup, lambda: self.wake(os.read(wakeup, 512)))
        self.loop.watch(self.wires.orders, self.hear_guardian)
        me = identify(os.getpid())
        self.record.set(state="PREPARING", guardian=guardian.as_dict(), agent=me.as_dict())
        self.record.note("preparing")
        self.await_go()
        self.beat()
        self.loop.run()

    def await_go(self) -> None:
        """Give the client time for GO, from now on."""
        self.loop.after(GO_LIMIT, "go", lambda: self.cancel("no GO came"))

    def torchrun_pid(self) -> Optional[int]:
        """Return the gate's or torchrun's pid while it has not ended."""
        return self.torchrun.pid if self.torchrun is not None else None

    # what arrives

    def obey(self, order: Dict[str, Any]) -> None:
        """Take one frame of the client."""
        if "secrets" in order and self.torchrun is None:
            self.claim.obey("lock")
            self.prepare(order["secrets"], str(order.get("token") or ""))
        elif order.get("do") == "join":
            self.gang.join(int(order["port"]))
        elif order.get("do") in ORDERS:
            self.claim.obey(order["do"])
            self.await_go()
        elif order.get("do") == "go":
            self.departure.go(int(order["master_port"]))
        elif order.get("do") == "cancel":
            self.cancel(order.get("reason") or "cancelled before the start")

    def prepare(self, secrets: Dict[str, str], token: str) -> None:
        """Make the gang, and set out."""
        self.evidence = Evidence(self.rundir, {**secrets, "": token})
        self.gang = make_gang(self.side(token.encode("utf-8")))
        self.departure.prepare(secrets)

    def side(self, token: bytes) -> Side:
        """Give what the gang may do here."""
        return Side(self.loop, self.spec, token, self.client.tell, self.follow_order, self.keep, self.leave)

    def client_left(self) -> None:
        """Cancel unless GO was given."""
        if not self.seen.went:
            self.cancel("the client left before GO")

    def hear_guardian(self) -> None:
        """Pass on a stop; end everything at once if the guardian is gone."""
        if os.read(self.wires.orders, 64):
            self.stop()
            return
        self.loop.forget(self.wires.orders)
        self.seen = self.seen._replace(lost="the guardian was killed")
        self.record.note("guardian_lost")
        self.gang.failed("the guardian was killed")
        self.deadline.now()

    def wake(self, numbers: bytes) -> None:
        """Serve signals."""
        if signal.SIGTERM in numbers:
            self.stop()
        for pid, status in reap():
            if self.torchrun is not None:
                self.torchrun.reaped(pid, status)

    def beat(self) -> None:
        """Tell the guardian that we are alive, and write what a full disk refused."""
        self.loop.after(self.interval, "beat", self.beat)
        with suppress(OSError):
            os.write(self.wires.beats, b".")
        self.gang.beat()
        self.evidence.look(self.workers().values())
        self.record.flush()

    # what torchrun and its workers do

    def hear(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""
        if event == "rank_exited":
            self.rank_exited(facts["worker"])
        elif event == "torchrun_exited":
            self.torchrun_exited()
        elif event == "workers":
            self.record_workers()
            self.record.note("workers", ranks=sorted(self.workers()))
        elif event == "ready":
            self.departure.ready(facts)

    def workers(self) -> Dict[int, Worker]:
        """Return the workers announced so far."""
        return self.torchrun.workers.by_rank if self.torchrun is not None else {}

    def record_workers(self) -> None:
        """Write ranks, pids and ends down."""
        sizes = {worker.world_size for worker in self.workers().values()}
        unplanned = sizes - {self.spec["world_size"]}
        seen = next(iter(unplanned or sizes), None)
        ranks = {str(rank): worker.as_dict() for rank, worker in sorted(self.workers().items())}
        self.record.set(ranks=ranks, world_size_seen=seen)

    def rank_exited(self, worker: Worker) -> None:
        """Record a worker's end; the others do not wait long for torchrun after a failure."""
        end = {"exit": worker.exit, "signal": worker.signal}
        self.record.note("rank_exited", rank=worker.rank, pid=worker.identity.pid, **end)
        self.record_workers()
        self.evidence.note_end(worker)
        if worker.failed:
            self.fail(worker.describe())

    def fail(self, reason: str) -> None:
        """Take the first failure as the cause, unless we were stopping anyway, and hurry the rest."""
        if self.seen.first_failure is None and self.seen.cancelled is None and self.seen.lost is None:
            self.seen = self.seen._replace(first_failure=reason)
            self.gang.failed(reason)
            self.deadline.within(FAILURE_WAIT)

    def torchrun_exited(self) -> None:
        """Go on to what it left behind."""
        assert self.torchrun is not None
        if self.departure.take_another_port():
            return
        end, number = self.torchrun.exit, self.torchrun.signal
        self.seen = self.seen._replace(exit=end, signal=number)
        self.record.set(torchrun=self.torchrun.as_dict())
        if self.seen.went:
            self.record.note("torchrun_exited", exit=end, signal=number)
            if end != 0:
                unseen = self.torchrun.conclude()
                self.fail(unseen[0].describe() if unseen else f"torchrun {describe_end(end, number)}")
        elif self.seen.cancelled is None and self.seen.lost is None:
            text = self.torchrun.failure or tail_of(self.torchrun.log)
            how = f"{self.spec['python']} {describe_end(end, number)} before it was ready"
            self.departure.fail(text.strip().rpartition("\n")[2] or how, text or how)
        self.departure.end(end)
        self.deadline.look()

    # the end

    def cancel(self, reason: str) -> None:
        """End everything at once."""
        if self.seen.cancelled is None:
            self.seen = self.seen._replace(cancelled=reason)
            self.note_stop(reason, 0)
        self.deadline.now()

    def note_stop(self, reason: str, grace: float) -> None:
        """Record that the run is to end, and since when."""
        self.evidence.look(self.workers().values())
        noted = self.record.note("stopping", reason=reason, grace=grace)
        self.stopped_at = self.stopped_at or noted["time"]

    def stop(self) -> None:
        """End the run on all nodes, as a person asked for."""
        wish = read_json(os.path.join(self.rundir, "stop.json")) or {}
        grace = float(self.spec["grace"] if wish.get("grace") is None else wish["grace"])
        order = Order(str(wish.get("reason") or "stopped"), grace)
        self.follow_order(order)
        self.gang.stopped(order)

    def reach_limit(self) -> None:
        """End the run because its time is up, unless it is ending already."""
        if self.seen.cancelled is None and self.seen.first_failure is None:
            order = Order(describe_limit(self.spec["time_limit"]), float(self.spec["grace"]), TIME)
            self.follow_order(order)
            self.gang.stopped(order)

    def follow_order(self, order: Order) -> None:
        """End this node's part: SIGTERM to torchrun once, and a time for the end, which can only come closer."""
        if self.ended:
            self.note_stop(order.reason, order.grace)  # the rest of the gang goes on
        elif not self.seen.went:
            self.cancel(order.reason)
        else:
            self.ask_to_end(order)

    def ask_to_end(self, order: Order) -> None:
        """Let torchrun end its workers."""
        torchrun = self.torchrun.stat() if self.torchrun is not None else None
        if torchrun is not None:
            if self.seen.cancelled is None:
                self.seen = self.seen._replace(cancelled=order.reason, timed_out=order.kind == TIME)
            self.note_stop(order.reason, order.grace)
            if self.seen.first_failure is None:
                self.sweep.ask([torchrun])
            self.deadline.within(order.grace)

    def finish(self, rest: List[Stat]) -> None:
        """Decide, record, tell, and go as soon as the gang knows and the disk has taken it."""
        if self.torchrun is not None:
            self.torchrun.conclude()
            self.record_workers()
        worlds = {rank: worker.world_size for rank, worker in self.workers().items()}
        state, reason = judge(self.seen._replace(worlds=worlds))
        self.ended = True
        part = self.part(state, reason)
        self.keep(make_record(self.spec, [part], None, whole=not self.spec.get("gang")))
        left, ended = as_left(rest), self.sweep.account()
        self.record.note("ended", state=state, reason=reason, ended=ended, left=left)
        self.record.set(state=state, reason=reason, left=left)
        self.client.tell("ended", state=state, reason=reason)
        self.client.close()
        self.release.then(lambda: self.claim.obey("unlock"))  # whoever waits for the rest holds no GPU
        self.gang.ended(part)

    def part(self, state: str, reason: str) -> Facts:
        """Put together what this node has to say about its end."""
        failures = self.evidence.failures(self.workers().values())
        failed = [failure for failure in failures if failure["exit"] != 0]
        if not failed and self.torchrun is not None and self.seen.went and self.seen.exit != 0:
            log, code, number = self.torchrun.log, self.seen.exit, self.seen.signal
            failures.append(self.evidence.failure_of_torchrun(log, code, number))
        if self.seen.lost is not None:
            failures.append({"rank": None, "reason": self.seen.lost, "time": time.time()})
        about = {"node": self.spec["node"], "node_rank": self.spec["node_rank"]}
        end = {"state": state, "reason": reason, "time": time.time(), "stopped_at": self.stopped_at}
        return {**about, **end, "failures": failures}

    def keep(self, record: Facts) -> None:
        """Write down what is known of the whole run's end."""
        self.record.keep(record)

    def leave(self) -> None:
        """Nothing of the gang is left to wait for: end the loop once the last words are written."""
        if not self.record.state["parted"]:
            self.record.set(parted=True)
            self.loop.after(WRITE_LIMIT, "give up", self.loop.stop)
        if self.record.flush():
            self.release.then(self.loop.stop)
        else:
            self.loop.after(1.0, "leave", self.leave)
