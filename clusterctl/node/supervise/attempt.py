"""One attempt of a run on this node: from the gate to the end of the last process, and what was seen of it."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional

from ..gang.membership import FAILURE, FAILURE_WAIT, TIME, Facts, Order
from ..runtime.event_loop import call_in_thread
from ..runtime.exit_status import Seen, describe_end, judge
from ..runtime.processes import Stat, Sweep, as_left
from ..state.run_record import mark_of
from ..state.workdir import tail_of
from ..sync.outside_files import summarise
from .agent_api import Host
from .evidence import Evidence
from .shutdown import Deadline, Release
from .stages import Afterwards
from .startup import Departure
from .torchrun import Torchrun, Worker, WorldSizes

OUTSIDE_LIMIT = 2.0  # seconds for the look at what the job has left outside its output directory


class Attempt:
    """Watches torchrun and its workers, and ends what they leave; `spec` is the run's, as this attempt has it."""

    def __init__(self, agent: Host, spec: Dict[str, Any], *, idle: bool = False) -> None:
        self.agent = agent
        self.idle = idle  # nothing runs here: this node is a spare
        self.first = agent.spec["attempt"] == spec["attempt"]
        self.began: Optional[float] = None
        self.spec = spec
        self.loop = agent.loop
        self.record = agent.record
        self.sweep = Sweep(mark_of(spec))
        self.release = Release(self.loop, spec, self.record, lambda: self.seen.went)
        self.deadline = Deadline(self.loop, self.sweep, self.torchrun_pid, self.release.before(self.finish))
        world_size = spec["world_size"] if spec["module"] else None
        self.seen = Seen(went=False, processes=spec["processes"], world_size=world_size)
        self.torchrun: Optional[Torchrun] = None
        self.departure = Departure(self)
        self.afterwards = Afterwards(agent, spec)
        self.evidence = Evidence(agent.rundir, {})
        self.stopped_at: Optional[float] = None
        self.lost_at = 0.0  # when its agent or guardian was
        self.torchrun_killed: Optional[Facts] = None
        self.ended = False
        self._secrets: Dict[str, str] = {}
        self.worlds = WorldSizes(self.loop, self.world_seen)

    def prepare(self, hidden: Dict[str, str], secrets: Dict[str, str]) -> None:
        """Set out; `hidden` is what nobody must read in the evidence, `secrets` what the workers are given."""
        self.evidence = Evidence(self.agent.rundir, hidden)
        self._secrets = secrets
        self.departure.prepare(secrets)

    def tell(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens: of the first attempt the client, then the gang."""
        if self.first:
            self.agent.client.tell(event, **facts)
        else:
            self.agent.gang.departs(event, facts)

    def hang_up(self) -> None:
        """The client has no more to wait for."""
        self.agent.client.close()

    def wait_aside(self) -> None:
        """GO came for the others, and this node is a spare."""
        self.seen = self.seen._replace(went=True)
        self.loop.drop("go")
        self.tell("going")
        self.agent.gang.went()
        self.hang_up()

    def torchrun_pid(self) -> Optional[int]:
        """Return the gate's or torchrun's pid while it has not ended."""
        return self.torchrun.pid if self.torchrun is not None else None

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self.departure.reaped(pid, status)
        self.afterwards.reaped(pid, status)
        if self.torchrun is not None:
            self.torchrun.reaped(pid, status)

    def look(self) -> None:
        """Watch how the ranks' words grow."""
        self.evidence.look(self.workers().values())

    # what torchrun and its workers do

    def hear(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""
        if event == "rank_exited":
            self.rank_exited(facts["worker"])
        elif event == "torchrun_exited":
            self.torchrun_exited()
        elif event == "workers":
            self.agent.logbook.begin()  # before anybody learns of the logs
            self.record_workers()
            self.record.note("workers", ranks=sorted(self.workers()))
            if not self.spec["module"] and self.torchrun is not None and self.torchrun.pid is not None:
                self.worlds.begin(self.torchrun.pid)
        elif event == "ready":
            self.departure.ready(facts)

    def workers(self) -> Dict[int, Worker]:
        """Return the workers announced so far."""
        return self.torchrun.workers.by_rank if self.torchrun is not None else {}

    def logs(self) -> List[str]:
        """Name the files that torchrun and its workers write to."""
        return self.torchrun.logs() if self.torchrun is not None else []

    def world_seen(self, size: int) -> None:
        """Record what a program's own workers were started with, and say so at once if it was not planned."""
        if self.spec["world_size"] not in (None, size):
            self.record.note("world_size", seen=size, planned=self.spec["world_size"])
        self.record_workers()

    def record_workers(self) -> None:
        """Write ranks, pids and ends down."""
        sizes = {worker.world_size for worker in self.workers().values()} - {None} | self.worlds.seen
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
            self.agent.gang.failed(reason)
            self.deadline.within(FAILURE_WAIT)

    def lose(self, reason: str) -> None:
        """End everything at once, because whoever should protect it is gone."""
        self.seen = self.seen._replace(lost=reason)
        self.lost_at = time.time()
        self.agent.gang.failed(reason)
        self.deadline.now()

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
                self.torchrun_failed(describe_end(end, number), killed=number is not None)
        elif self.seen.cancelled is None and self.seen.lost is None and self.seen.gate_failed is None:
            text = self.torchrun.failure or tail_of(self.torchrun.log)
            how = f"{self.spec['python']} {describe_end(end, number)} before it was ready"
            self.departure.fail(text.strip().rpartition("\n")[2] or how, text or how)
        self.departure.end(end)
        self.deadline.look()

    def torchrun_failed(self, how: str, *, killed: bool) -> None:
        """Blame a worker whose end nobody saw, or torchrun; one that was killed left its workers for us to end."""
        assert self.torchrun is not None
        unseen = self.torchrun.conclude()
        before = self.seen.first_failure
        self.fail(unseen[0].describe() if unseen else f"torchrun {how}")
        if killed and before is None and self.seen.first_failure == f"torchrun {how}":
            self.torchrun_killed = {"rank": None, "reason": f"torchrun {how}", "time": time.time()}

    # the end

    def cancel(self, reason: str) -> None:
        """End everything at once."""
        if self.seen.cancelled is None:
            self.seen = self.seen._replace(cancelled=reason)
            self.note_stop(reason, 0)
        self.deadline.now()

    def note_stop(self, reason: str, grace: float) -> None:
        """Record that the run is to end, and since when."""
        self.look()
        noted = self.record.note("stopping", reason=reason, grace=grace)
        self.stopped_at = self.stopped_at or noted["time"]

    def follow_order(self, order: Order) -> None:
        """End this node's part: SIGTERM to torchrun once, and a time for the end, which can only come closer."""
        if self.ended or (self.idle and self.seen.went):
            if not self.idle or order.kind != FAILURE:
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
        """Decide how it ended, and hand that over."""
        self.departure.close()
        self.worlds.end()
        if self.torchrun is not None:
            self.torchrun.conclude()
            self.torchrun.close()
            self.record_workers()
        worlds = {rank: worker.world_size for rank, worker in self.workers().items()}
        state, reason = judge(self.seen._replace(worlds=worlds))
        self.ended = True
        end = {"CLUSTERCTL_STATE": state, "CLUSTERCTL_REASON": self.evidence.hide(reason)}
        part, left = self.part(state, reason), as_left(rest)
        if self.departure.begun:
            self.afterwards.run(
                end,
                self._secrets,
                self.evidence,
                lambda: self.look_outside(lambda: self.agent.attempt_ended(part, left)),
            )
        else:
            self.agent.attempt_ended(part, left)

    def look_outside(self, done: Callable[[], None]) -> None:
        """Record what the job has left outside its output directory, and go on; also if that takes too long."""

        def take(found: Optional[Facts]) -> None:
            if found is not None:
                self.record.set(outside=found)
            done()

        call_in_thread(self.loop, "outside", OUTSIDE_LIMIT, lambda: summarise(self.agent.rundir), take)

    def part(self, state: str, reason: str) -> Facts:
        """Put together what this node has to say about its end."""
        failures = self.evidence.failures(self.workers().values())
        failed = [failure for failure in failures if failure["exit"] != 0]
        if self.torchrun_killed is not None:
            failures.append(self.torchrun_killed)
        elif not failed and self.torchrun is not None and self.seen.went and self.seen.exit != 0:
            log, code, number = self.torchrun.log, self.seen.exit, self.seen.signal
            failures.append(self.evidence.failure_of_torchrun(log, code, number))
        if self.seen.lost is not None:
            failures.append({"rank": None, "reason": self.seen.lost, "time": self.lost_at})
        about = {name: self.spec.get(name) for name in ("node", "node_rank", "address")}
        end = {"state": state, "reason": reason, "time": time.time(), "stopped_at": self.stopped_at}
        return {**about, **end, "failures": failures}
