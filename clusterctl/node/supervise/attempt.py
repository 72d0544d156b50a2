"""One attempt of a run on this node: from the gate to the end of the last process, and what was seen of it."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional

from ...protocol.exit_status import describe_end
from ...protocol.ranks import Rank
from ..gang.membership import FAILURE, FAILURE_WAIT, TIME, JsonObject, StopOrder
from ..runtime.event_loop import call_in_thread
from ..runtime.exit_status import Observed, judge
from ..runtime.processes import ProcessTree, Stat, describe_leftovers
from ..state.run_record import run_tag_prefix
from ..state.workdir import read_tail
from ..sync.outside_files import summarise
from .agent_api import AgentApi
from .evidence import Evidence
from .shutdown import GpuMemoryWait, KillSchedule
from .stages import AfterHook
from .startup import Startup
from .torchrun import Torchrun, Worker, WorldSizes

OUTSIDE_LIMIT = 2.0  # seconds for the look at what the job has left outside its output directory


class Attempt:
    """Watches torchrun and its workers, and ends what they leave; `spec` is the run's, as this attempt has it."""

    def __init__(self, agent: AgentApi, spec: Dict[str, Any], *, idle: bool = False) -> None:
        self.agent = agent
        self.idle = idle  # nothing runs here: this node is a spare
        self.is_first = agent.spec["attempt"] == spec["attempt"]
        self.began: Optional[float] = None
        self.spec = spec
        self.loop = agent.loop
        self.record = agent.record
        self.process_tree = ProcessTree(run_tag_prefix(spec))
        self.gpu_memory_wait = GpuMemoryWait(self.loop, spec, self.record, lambda: self.observed.started)
        self.kill_schedule = KillSchedule(
            self.loop, self.process_tree, self.torchrun_pid, self.gpu_memory_wait.query_before(self.finish)
        )
        world_size = spec["world_size"] if spec["module"] else None
        self.observed = Observed(started=False, processes=spec["processes"], world_size=world_size)
        self.torchrun: Optional[Torchrun] = None
        self.startup = Startup(self)
        self.after_hook = AfterHook(agent, spec)
        self.evidence = Evidence(agent.rundir, {})
        self.stopped_at: Optional[float] = None
        self.lost_at = 0.0  # when its agent or guardian was
        self.torchrun_killed: Optional[JsonObject] = None
        self.ended = False
        self._secrets: Dict[str, str] = {}
        self.world_sizes = WorldSizes(self.loop, self.on_world_size)

    def prepare(self, hidden: Dict[str, str], secrets: Dict[str, str]) -> None:
        """Set out; `hidden` is what nobody must read in the evidence, `secrets` what the workers are given."""
        self.evidence = Evidence(self.agent.rundir, hidden)
        self._secrets = secrets
        self.startup.prepare(secrets)

    def report(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens: of the first attempt the client, then the gang."""
        if self.is_first:
            self.agent.client.send_event(event, **facts)
        else:
            self.agent.gang.on_startup_event(event, facts)

    def close_client(self) -> None:
        """The client has no more to wait for."""
        self.agent.client.close()

    def mark_idle(self) -> None:
        """GO came for the others, and this node is a spare."""
        self.observed = self.observed._replace(started=True)
        self.loop.cancel("go")
        self.report("going")
        self.agent.gang.on_go()
        self.close_client()

    def torchrun_pid(self) -> Optional[int]:
        """Return the gate's or torchrun's pid while it has not ended."""
        return self.torchrun.pid if self.torchrun is not None else None

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self.startup.on_child_exit(pid, status)
        self.after_hook.on_child_exit(pid, status)
        if self.torchrun is not None:
            self.torchrun.on_child_exit(pid, status)

    def check_output(self) -> None:
        """Note how long the ranks' stderr is by now."""
        self.evidence.scan(self.workers().values())

    # what torchrun and its workers do

    def on_event(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""
        if event == "rank_exited":
            self.on_rank_exited(facts["worker"])
        elif event == "torchrun_exited":
            self.on_torchrun_exited()
        elif event == "workers":
            self.agent.log_recorder.start()  # before anybody learns of the logs
            self.record_workers()
            self.record.add_event("workers", ranks=sorted(self.workers()))
            if not self.spec["module"] and self.torchrun is not None and self.torchrun.pid is not None:
                self.world_sizes.start(self.torchrun.pid)
        elif event == "ready":
            self.startup.on_gate_ready(facts)

    def workers(self) -> Dict[Rank, Worker]:
        """Return the workers announced so far."""
        return self.torchrun.workers.by_rank if self.torchrun is not None else {}

    def logs(self) -> List[str]:
        """Name the files that torchrun and its workers write to."""
        return self.torchrun.logs() if self.torchrun is not None else []

    def on_world_size(self, size: int) -> None:
        """Record what a program's own workers were started with, and say so at once if it was not planned."""
        if self.spec["world_size"] not in (None, size):
            self.record.add_event("world_size", seen=size, planned=self.spec["world_size"])
        self.record_workers()

    def record_workers(self) -> None:
        """Write ranks, pids and ends down."""
        sizes = {worker.world_size for worker in self.workers().values()} - {None} | self.world_sizes.sizes
        unplanned = sizes - {self.spec["world_size"]}
        world_size = next(iter(unplanned or sizes), None)
        ranks = {str(rank): worker.as_dict() for rank, worker in sorted(self.workers().items())}
        self.record.set(ranks=ranks, world_size_seen=world_size)

    def on_rank_exited(self, worker: Worker) -> None:
        """Record a worker's end; the others do not wait long for torchrun after a failure."""
        end = {"exit": worker.exit, "signal": worker.signal}
        self.record.add_event("rank_exited", rank=worker.rank, pid=worker.identity.pid, **end)
        self.record_workers()
        self.evidence.on_worker_end(worker)
        if worker.failed:
            self.fail(worker.describe())

    def fail(self, reason: str) -> None:
        """Take the first failure as the cause, unless we were stopping anyway, and hurry the rest."""
        if (
            self.observed.first_failure is None
            and self.observed.cancelled is None
            and self.observed.lost is None
        ):
            self.observed = self.observed._replace(first_failure=reason)
            self.agent.gang.on_failure(reason)
            self.kill_schedule.kill_after(FAILURE_WAIT)

    def stop_unsupervised(self, reason: str) -> None:
        """End everything at once, because whoever should protect it is gone."""
        self.observed = self.observed._replace(lost=reason)
        self.lost_at = time.time()
        self.agent.gang.on_failure(reason)
        self.kill_schedule.kill_now()

    def on_torchrun_exited(self) -> None:
        """Go on to what it left behind."""
        assert self.torchrun is not None
        if self.startup.retry_with_another_port():
            return
        exit_code, signal_number = self.torchrun.exit, self.torchrun.signal
        self.observed = self.observed._replace(exit=exit_code, signal=signal_number)
        self.record.set(torchrun=self.torchrun.as_dict())
        if self.observed.started:
            self.record.add_event("torchrun_exited", exit=exit_code, signal=signal_number)
            if exit_code != 0:
                self.torchrun_failed(describe_end(exit_code, signal_number), killed=signal_number is not None)
        elif (
            self.observed.cancelled is None
            and self.observed.lost is None
            and self.observed.gate_failed is None
        ):
            text = self.torchrun.failure or read_tail(self.torchrun.log)
            ending = f"{self.spec['python']} {describe_end(exit_code, signal_number)} before it was ready"
            self.startup.fail(text.strip().rpartition("\n")[2] or ending, text or ending)
        self.startup.on_torchrun_exit(exit_code)
        self.kill_schedule.tick()

    def torchrun_failed(self, ending: str, *, killed: bool) -> None:
        """Blame a worker whose end nobody saw, or torchrun; one that was killed left its workers for us to end."""
        assert self.torchrun is not None
        unseen = self.torchrun.fill_unseen_ends()
        earlier_failure = self.observed.first_failure
        self.fail(unseen[0].describe() if unseen else f"torchrun {ending}")
        if killed and earlier_failure is None and self.observed.first_failure == f"torchrun {ending}":
            self.torchrun_killed = {"rank": None, "reason": f"torchrun {ending}", "time": time.time()}

    # the end

    def cancel(self, reason: str) -> None:
        """End everything at once."""
        if self.observed.cancelled is None:
            self.observed = self.observed._replace(cancelled=reason)
            self.record_stop(reason, 0)
        self.kill_schedule.kill_now()

    def record_stop(self, reason: str, grace: float) -> None:
        """Record that the run is to end, and since when."""
        self.check_output()
        event = self.record.add_event("stopping", reason=reason, grace=grace)
        self.stopped_at = self.stopped_at or event["time"]

    def stop_own_part(self, order: StopOrder) -> None:
        """End this node's part: SIGTERM to torchrun once, and a time for the end, which can only come closer."""
        if self.ended or (self.idle and self.observed.started):
            if not self.idle or order.kind != FAILURE:
                self.record_stop(order.reason, order.grace)  # the rest of the gang goes on
        elif not self.observed.started:
            self.cancel(order.reason)
        else:
            self.terminate(order)

    def terminate(self, order: StopOrder) -> None:
        """Let torchrun end its workers."""
        torchrun = self.torchrun.stat() if self.torchrun is not None else None
        if torchrun is not None:
            if self.observed.cancelled is None:
                self.observed = self.observed._replace(cancelled=order.reason, timed_out=order.kind == TIME)
            self.record_stop(order.reason, order.grace)
            if self.observed.first_failure is None:
                self.process_tree.terminate([torchrun])
            self.kill_schedule.kill_after(order.grace)

    def finish(self, remaining: List[Stat]) -> None:
        """Decide how it ended, and hand that over."""
        self.startup.close()
        self.world_sizes.stop()
        if self.torchrun is not None:
            self.torchrun.fill_unseen_ends()
            self.torchrun.close()
            self.record_workers()
        worlds = {rank: worker.world_size for rank, worker in self.workers().items()}
        state, reason = judge(self.observed._replace(worlds=worlds))
        self.ended = True
        end = {"CLUSTERCTL_STATE": state, "CLUSTERCTL_REASON": self.evidence.redact(reason)}
        part, leftovers = self.build_part(state, reason), describe_leftovers(remaining)
        if self.startup.begun:
            self.after_hook.run(
                end,
                self._secrets,
                self.evidence,
                lambda: self.check_outside_files(lambda: self.agent.on_attempt_ended(part, leftovers)),
            )
        else:
            self.agent.on_attempt_ended(part, leftovers)

    def check_outside_files(self, on_done: Callable[[], None]) -> None:
        """Record what the job has left outside its output directory, and go on; also if that takes too long."""

        def record_summary(summary: Optional[JsonObject]) -> None:
            if summary is not None:
                self.record.set(outside=summary)
            on_done()

        call_in_thread(
            self.loop, "outside", OUTSIDE_LIMIT, lambda: summarise(self.agent.rundir), record_summary
        )

    def build_part(self, state: str, reason: str) -> JsonObject:
        """Put together what this node has to say about its end."""
        failures = self.evidence.failures(self.workers().values())
        failed = [failure for failure in failures if failure["exit"] != 0]
        if self.torchrun_killed is not None:
            failures.append(self.torchrun_killed)
        elif not failed and self.torchrun is not None and self.observed.started and self.observed.exit != 0:
            log, code, signal_number = self.torchrun.log, self.observed.exit, self.observed.signal
            failures.append(self.evidence.failure_of_torchrun(log, code, signal_number))
        if self.observed.lost is not None:
            failures.append({"rank": None, "reason": self.observed.lost, "time": self.lost_at})
        identity = {name: self.spec.get(name) for name in ("node", "node_rank", "address")}
        end = {"state": state, "reason": reason, "time": time.time(), "stopped_at": self.stopped_at}
        return {**identity, **end, "failures": failures}
