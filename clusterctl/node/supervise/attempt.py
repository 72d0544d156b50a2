"""The processes, ports and files of one attempt: acts on them, and posts what it saw; decides nothing."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from functools import partial
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ...protocol.ranks import Rank
from ...protocol.reasons import DONE
from ...protocol.run_paths import STDERR_LOG, RunPaths
from ...protocol.states import SUCCEEDED
from ..lifecycle import ending, starting
from ..lifecycle.run import AttemptState, Processes
from ..logs.log_file import read_tail
from ..runtime.event_loop import Loop, call_in_thread
from ..runtime.ports import hold_port, owns_listener, port_of
from ..runtime.processes import ProcessTree, Stat, describe_leftovers, running_descendants
from ..runtime.stream import describe_failure
from ..state.run_record import Record, run_tag_prefix
from ..sync.outside_files import summarise
from .events import Events
from .evidence import Evidence
from .gate_process import GateProcess, SpareGate
from .gpu_memory import GpuMemoryWait
from .launchers.temp_files import COLLECT_LIMIT, TemporaryFiles, needs_temporary_files
from .ranks.groups import find_alone
from .ranks.nested import NestedRanks
from .ranks.progress import StallWatch
from .ranks.workers import Worker
from .ranks.zombies import Zombie, Zombies
from .spawn import make_paths, plan_environment
from .stages import Stages

if TYPE_CHECKING:
    from ...protocol.messages.files import AloneRecord, PartRecord, Spec
    from ...protocol.messages.verbs import Stage
    from ...protocol.states import RunState
    from ..lifecycle.run import Event

    End = Tuple[Event, Optional[int]]  # of a worker or torchrun, with the signal that ended it, if one did

OUTSIDE_LIMIT = 2.0  # seconds for the scan of what the job has left outside its output directory


class Site(NamedTuple):
    """Where an attempt runs, and the secrets that must not stand in what it reports."""

    loop: Loop
    record: Record
    rundir: str
    secrets: Dict[str, str]
    token: str
    events: Events
    warm: SpareGate


class Attempt(Processes):
    """One attempt of a run on this node, as far as the system knows it; `spec` is the run's, as this attempt has it."""

    def __init__(self, site: Site, spec: Spec) -> None:
        self._site = site
        self._spec = spec
        self._record = site.record
        self._master_port: Optional[MasterPort] = None
        markers = RunPaths(site.rundir).diagnosis(spec["attempt"])
        self._nested = NestedRanks(
            site.loop,
            site.rundir,
            markers,
            lambda size: self.post(partial(ending.on_world_seen, size=size)),
            lambda: self.post(partial(ending.on_nested_found, ranks=sorted(self.ranks()))),
            lambda worker: self.post(partial(ending.on_nested_exited, rank=worker.rank)),
        )
        self._zombies = Zombies(site.loop, site.rundir, spec, self._on_zombie)
        self.stall = StallWatch(
            site.loop,
            site.record,
            spec,
            lambda seconds: self.post(partial(ending.on_stalled, seconds=seconds)),
        )
        self._process_tree = ProcessTree(run_tag_prefix(spec), site.warm.spared)
        self._temporary = (
            TemporaryFiles(site.rundir, spec, site.token) if needs_temporary_files(spec) else None
        )
        self.post = partial(site.events.post, source=self)
        self.torchrun: Optional[GateProcess] = None
        self.evidence = Evidence(site.rundir, {**site.secrets, "": site.token})
        self.stages = Stages(site.loop, site.rundir, spec, site.secrets, self.evidence, self.post)
        self.gpu_memory_wait = GpuMemoryWait(site.loop, spec, site.record)

    def begin_next(self, spec: Spec) -> Attempt:
        """Begin another attempt in the place of this one."""
        return Attempt(self._site, spec)

    # the start

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Post an error of a step of the start."""
        try:
            yield
        except Exception as error:  # noqa: BLE001, RUF100 - the client gets whatever it is
            failure = describe_failure(error)
            message = failure["message"]
            self.post(
                partial(
                    starting.on_step_failed,
                    reason=message,
                    text=failure["traceback"] or message,
                    code=failure["code"],
                    in_environment=self.stages.has_prefix,
                )
            )

    def open_ports(self, open_gang: Optional[Callable[[], None]], *, hold: bool, locked: bool) -> None:
        """Hold the master port, and open the gang's listener."""
        with self._reporting_errors():
            has_environment = self.stages.is_made()
            if hold:
                self._master_port = MasterPort(self._site.loop, self._spec["ports"])
            if open_gang is not None:
                open_gang()
            port = self._master_port.port if self._master_port is not None else None
            self.post(
                partial(starting.on_ports_opened, has_environment=has_environment, port=port, locked=locked)
            )

    def start_gate(self, *, other_port: bool = False) -> None:
        """Start a gate, with the Python of the environment if there is one."""
        with self._reporting_errors():
            if self.torchrun is not None:
                self.torchrun.close()
            if other_port:
                self._master_port = MasterPort(self._site.loop, self._spec["ports"])
            if self._temporary is not None:
                self._temporary.hold()
            spec = self.stages.spec
            paths = make_paths(self._site.rundir, spec)
            self.torchrun = GateProcess(self._site.loop, spec, paths, self.post, self._post_ends)
            self.torchrun.start(os.environ, self._site.secrets, self._site.warm)
            port = self._master_port.port if other_port and self._master_port is not None else None
            self.post(partial(starting.on_gate_started, entry=self.torchrun.as_dict(), port=port))

    def start_spare_gate(self) -> None:
        """Start a gate that imports torch and waits, so that this spare begins as soon as the other nodes."""
        spec = self.stages.spec
        env = plan_environment(os.environ, spec, {}, make_paths(self._site.rundir, spec))[0]
        self._site.warm.start_next(spec, env)

    def start_helper(self, stage: Stage) -> None:
        """Run `setup` or `before`."""
        with self._reporting_errors():
            self.stages.start(stage)

    def release_port(self) -> None:
        """Release the master port."""
        if self._master_port is not None:
            self._master_port.release()

    def send_go(self, address: str, port: int) -> None:
        """Make the gate become torchrun."""
        assert self.torchrun is not None
        self.torchrun.send_go(address, port, self._site.token)

    def await_listener(self, port: int) -> None:
        """Wait until torchrun listens, and post it."""
        if self._master_port is not None and self.torchrun is not None and self.torchrun.pid is not None:
            self._master_port.wait_for(
                self.torchrun.pid,
                port,
                lambda listens: self.post(
                    partial(starting.on_listened, listens=listens, text=self._tail()),
                ),
            )

    def _tail(self) -> str:
        return read_tail(self.torchrun.log) if self.torchrun is not None else ""

    # what torchrun and its workers do

    def _post_ends(self) -> None:
        """Post the ends of workers that are known now."""
        for event, ended_by in self._describe_ends(
            self.torchrun.find_ended() if self.torchrun is not None else ()
        ):
            self.post(event, ended_by=ended_by)

    def _describe_ends(self, workers: Iterable[Worker]) -> Iterator[End]:
        """Describe the ends of workers; where that is a launcher of ranks, it follows as that of torchrun."""
        for worker in workers:
            if self._nested.workers is None:
                event = partial(
                    ending.on_rank_exited,
                    rank=worker.rank,
                    pid=worker.identity.pid,
                    exit_code=worker.exit,
                    signal=worker.signal,
                    failure=worker.describe() if worker.failed else "",
                )
                yield event, worker.signal

    def _describe_gate_end(self, torchrun: GateProcess) -> End:
        """Describe the end of the gate, or of torchrun."""
        entry = torchrun.as_dict()
        assert entry is not None
        failed = torchrun.fill_unseen_ends() if torchrun.exit != 0 else []
        event = partial(
            starting.on_torchrun_exited,
            entry=entry,
            text=torchrun.failure or self._tail(),
            has_workers=bool(self.workers()),
            unseen_failure=failed[0].describe() if failed else "",
            in_environment=self.stages.has_prefix,
        )
        return event, torchrun.signal

    def on_child_exit(self, pid: int, status: int) -> Iterator[End]:
        """Take the end of a child, and yield what ended with it."""
        self.stages.on_child_exit(pid, status)
        self._nested.on_child_exit(pid, status)
        torchrun = self.torchrun
        if torchrun is not None:
            is_gate = pid == torchrun.pid
            yield from self._describe_ends(torchrun.on_child_exit(pid, status))
            if is_gate:
                yield self._describe_gate_end(torchrun)

    def workers(self) -> Dict[Rank, Worker]:
        """Return the workers announced so far."""
        return self.torchrun.workers.by_rank if self.torchrun is not None else {}

    def ranks(self) -> Dict[Rank, Worker]:
        """Return the workers, or the ranks that the node's only program has started itself."""
        nested = self._nested.workers
        return self.workers() if nested is None else nested.by_rank

    def logs(self) -> List[str]:
        """Name the files that torchrun and its workers write to."""
        nested = self._nested.workers
        own = self.torchrun.logs() if self.torchrun is not None else []
        return list(dict.fromkeys([*own, *(nested.logs() if nested is not None else ())]))

    def scan_output(self) -> None:
        """Record the current length of the ranks' stderr."""
        self.evidence.scan(self.ranks().values())

    def watch_nested(self) -> None:
        """Find the ranks that a program has started itself."""
        for program in self.workers().values():
            self._nested.start(program)

    def watch_ranks(self, began: Optional[float]) -> None:
        """Post it when a worker has written its traceback and does not exit, and when none makes progress."""
        self._zombies.watch(lambda: self.ranks().values())
        limit = self._spec.get("time_limit")
        time_left = began + limit - time.time() if began is not None and limit else None
        self.stall.watch(lambda: self.ranks().values(), time_left, self._supervisors)

    @property
    def quiet(self) -> float:
        """Return for how many seconds no rank here has made progress."""
        return self.stall.quiet

    def on_quiet(self, seconds: float) -> None:
        """Take for how many seconds no rank of the whole run has made progress."""
        self.stall.on_gang_quiet(seconds)

    def _supervisors(self) -> Set[int]:
        """Return the pids of torchrun and of what outlives the run: what they do is no progress of the ranks."""
        pid = self.torchrun.pid if self.torchrun is not None else None
        return {*self._site.warm.spared, *(() if pid is None else (pid,))}

    def _on_zombie(self, zombie: Zombie) -> None:
        exception = self.evidence.redact(zombie.exception)
        self.evidence.on_worker_stuck(zombie.rank)
        self.post(
            partial(
                ending.on_rank_stuck,
                rank=zombie.rank,
                process=zombie.process,
                exception=exception,
                seconds=zombie.seconds,
            )
        )

    def record_workers(self, ended: Optional[Rank] = None) -> None:
        """Write ranks, pids and ends down."""
        sizes = {worker.world_size for worker in self.workers().values()} - {None} | self._nested.sizes
        unplanned = sizes - {self._spec["world_size"]}
        world_size = next(iter(unplanned or sizes), None)
        ranks = {str(rank): worker.as_dict() for rank, worker in sorted(self.ranks().items())}
        self._record.set({"ranks": ranks, "world_size_seen": world_size})
        if ended is not None and ended in self.ranks():
            self.evidence.on_worker_end(self.ranks()[ended])

    # the end

    def kill_below(self, *, spare_torchrun: bool) -> None:
        """Kill what runs below the agent."""
        pid = self.torchrun.pid if self.torchrun is not None and spare_torchrun else None
        self._process_tree.kill(
            running_descendants({*self._site.warm.spared, *(() if pid is None else (pid,))})
        )

    def kill_after_hook(self) -> None:
        """Kill what the commands of `after` have left running."""
        ProcessTree(run_tag_prefix(self._spec), self._site.warm.spared).kill_all()

    def signal_all(self, processes: List[Stat], *, kill: bool) -> None:
        """Send SIGKILL, or SIGTERM once to each."""
        (self._process_tree.kill if kill else self._process_tree.terminate)(processes)

    def terminate_torchrun(self) -> None:
        """SIGTERM to torchrun, which ends its workers."""
        stat = self.torchrun.stat() if self.torchrun is not None else None
        self._process_tree.terminate([stat] if stat is not None else [])

    def find_remaining(self) -> None:
        """Post what still runs; first the ends of workers that do not: torchrun may have left them as our zombies."""
        remaining = self._process_tree.remaining()
        self._post_ends()
        self.post(partial(ending.on_remaining, processes=remaining))

    def close(self, remaining: List[Stat], *, started: bool) -> None:
        """Read the GPUs' memory once, let go of ports and pipes, and post the end of all processes."""
        if started:
            self.gpu_memory_wait.query_once(lambda: self._collect(remaining))
        else:
            self._collect(remaining)

    def _collect(self, remaining: List[Stat]) -> None:
        """Keep what Ray has logged, and remove its directory, or that of mpirun."""
        if self._temporary is None:
            self._finish(remaining)
        else:
            loop, collect = self._site.loop, self._temporary.collect
            call_in_thread(loop, "temporary files", COLLECT_LIMIT, collect, lambda _: self._finish(remaining))

    def _finish(self, remaining: List[Stat]) -> None:
        self.stages.is_made()  # the environment was used until now
        self.release_port()
        self._nested.stop()
        self._zombies.stop()
        self.stall.stop()
        if self.torchrun is not None:
            self.torchrun.fill_unseen_ends()
            for program in self.workers().values():
                self._nested.fill_unseen_ends(program, read_tail(self._file_of(program), 1 << 20))
            self.torchrun.close()
            self.record_workers()
        worlds = {rank: worker.world_size for rank, worker in self.workers().items()}
        signalled, alone = self._process_tree.signalled(), self._find_alone()
        self.post(
            partial(
                ending.on_all_ended,
                leftovers=describe_leftovers(remaining),
                signalled=signalled,
                worlds=worlds,
                alone=alone,
            )
        )

    def _find_alone(self) -> Optional[AloneRecord]:
        """Return whether the ranks of this node were in no process group of the planned size."""
        started = bool(self._spec["module"]) or self._nested.workers is not None
        folder = RunPaths(self._site.rundir).diagnosis(self._spec["attempt"])
        return find_alone(folder, self._spec, self.ranks().values(), started=started)

    def _file_of(self, program: Worker) -> str:
        """Name the stderr of the node's only program."""
        return os.path.join(self._site.rundir, program.folder or "", STDERR_LOG)

    def build_part(
        self, state: RunState, reason: str, attempt: AttemptState, alone: Optional[AloneRecord] = None
    ) -> None:
        """Post what this node reports of its end."""
        failures = self.evidence.failures(self.ranks().values())
        # ended after node 0's program, so that it is no failure
        served = attempt.stop_kind == DONE and state == SUCCEEDED
        if served:
            failures = [failure for failure in failures if failure["exit"] == 0]
        failed = [failure for failure in failures if failure["exit"] != 0]
        if attempt.torchrun_killed is not None:
            failures.append(attempt.torchrun_killed)
        elif not (failed or served) and self.torchrun is not None and attempt.started and attempt.exit != 0:
            code, signal_number = attempt.exit, attempt.signal
            programs = self.workers().values() if self._nested.workers is not None else ()
            log = next(map(self._file_of, programs), self.torchrun.log)
            failures.append(self.evidence.failure_of_torchrun(log, code, signal_number))
        if attempt.lost is not None:
            failures.append({"rank": None, "reason": attempt.lost, "time": attempt.lost_at})
        part: PartRecord = {
            "node": self._spec["node"],
            "node_rank": self._spec["node_rank"],
            "address": self._spec.get("address"),
            "state": state,
            "reason": reason,
            "time": time.time(),
            "stopped_at": attempt.stopped_at,
            "stop_kind": attempt.stop_kind,
            "failures": failures,
        }
        if alone is not None:
            part["alone"] = alone
        self.post(partial(ending.on_part_built, part=part, has_after=self.stages.has_after))

    def start_after(self, state: RunState, reason: str) -> None:
        """Run the commands of `after` with state and reason of the attempt's end in their environment."""
        self.stages.start(
            "after", {"CLUSTERCTL_STATE": state, "CLUSTERCTL_REASON": self.evidence.redact(reason)}
        )

    def scan_outside(self) -> None:
        """Post what the job has left outside its output directory, or that it took too long to read."""
        call_in_thread(
            self._site.loop,
            "outside",
            OUTSIDE_LIMIT,
            lambda: summarise(self._site.rundir),
            lambda summary: self.post(partial(ending.on_outside_read, summary=summary)),
        )


POLL_INTERVAL = 0.02  # seconds between looks whether torchrun listens
# a gate on a warm node listens some 30 ms after GO; all others wait for it
FIRST_INTERVAL, FIRST_SECONDS = 0.004, 0.5
LISTEN_LIMIT = 120.0  # seconds in which torchrun must listen


class MasterPort:
    """Holds a port, then waits until exactly one process listens there."""

    def __init__(self, loop: Loop, ports: Optional[Sequence[int]]) -> None:
        self._loop = loop
        self._holder: Optional[socket.socket] = hold_port(ports)
        self.port = port_of(self._holder)

    def wait_for(self, pid: int, port: int, on_done: Callable[[bool], None]) -> None:
        """Call `on_done` once the process listens on the port, or with False if it does not come to that."""
        began = time.monotonic()

        def poll() -> None:
            elapsed = time.monotonic() - began
            if owns_listener(pid, port):
                self.release()
                on_done(True)
            elif elapsed > LISTEN_LIMIT:
                self.release()
                on_done(False)
            else:
                pause = FIRST_INTERVAL if elapsed < FIRST_SECONDS else POLL_INTERVAL
                self._loop.after(pause, "listen", poll)

        self._loop.after(0, "listen", poll)

    def release(self) -> None:
        """Release the port."""
        self._loop.cancel("listen")
        if self._holder is not None:
            self._holder.close()
            self._holder = None
