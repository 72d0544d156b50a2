"""The torchrun process, its workers and the WORLD_SIZE they see.

Which WORLD_SIZE the processes of a program were started with, where the program starts its workers itself.

Known is what stands in their environment from the start: torchrun, accelerate and deepspeed put it there. What a script
passes to `init_process_group` as an argument, as after `mp.spawn`, or sets in its own `os.environ`, cannot be seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, Optional, Set

from ...protocol.exit_status import describe_end, split_status
from ...protocol.ranks import Rank
from ...protocol.run_paths import STDERR_LOG, STDOUT_LOG, RunPaths
from ..diagnose.rank import VARIABLE
from ..runtime.event_loop import Loop
from ..runtime.processes import (
    Identity,
    Stat,
    descendants,
    find_process,
    is_alive,
    kernel_lists_children,
    read_stat,
)
from ..state.environments import append_programs_to_path
from ..state.workdir import read_tail
from .spawn import (
    AttemptPaths,
    Gate,
    plan_environment,
    prepare_diagnosis,
    render_template,
    start_gate,
)
from .warm_server import WarmServer

if TYPE_CHECKING:
    from ...protocol.messages.children import GateOrder, GateReport, StartedWorker
    from ...protocol.messages.files import JournalEvent, RankRecord, SentTemplate, Spec, TorchrunRecord

# torchrun's own table of failures, for a worker that was gone before anybody could look at it
FAILURE_TABLE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) \(pid: \d+\)")

PIDFD_INFO_SIZE = 64
PIDFD_INFO_EXIT = 8
PIDFD_GET_INFO = 3 << 30 | PIDFD_INFO_SIZE << 16 | 0xFF << 8 | 11


class Worker:
    """One rank of this node."""

    def __init__(
        self,
        identity: Identity,
        rank: Rank,
        local_rank: int,
        world_size: Optional[int],
        folder: Optional[str],
    ) -> None:
        self.identity = identity
        self.rank = rank
        self.local_rank = local_rank
        self.world_size = world_size
        self.folder = folder
        self.pidfd = open_pidfd(identity)
        self.ended = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.oom_killed = False  # whether the kernel has killed because memory ran out since it was started
        self._earlier_kills = count_memory_kills()

    @property
    def failed(self) -> bool:
        """Whether it is known to have ended otherwise than with 0."""
        return self.signal is not None or bool(self.exit)

    def describe(self) -> str:
        """Say how it ended."""
        return f"rank {self.rank} {describe_end(self.exit, self.signal)}"

    def as_dict(self) -> RankRecord:
        """Render for state.json."""
        entry: RankRecord = {
            "local_rank": self.local_rank,
            "pid": self.identity.pid,
            "starttime": self.identity.starttime,
            "exit": self.exit,
            "signal": self.signal,
            "stdout": self._log("stdout"),
            "stderr": self._log("stderr"),
        }
        if self.oom_killed:
            entry["oom_killed"] = True
        return entry

    def _log(self, stream: str) -> Optional[str]:
        return f"{self.folder}/{stream}.log" if self.folder else None

    def record_exit(self, status: int) -> None:
        """Record the end by its wait status."""
        self.ended = True
        self.exit, self.signal = split_status(status)
        self.oom_killed = self.signal == signal.SIGKILL and count_memory_kills() > self._earlier_kills

    def status(self) -> Optional[int]:
        """Read the wait status of a worker that has ended; None if only its parent can tell."""
        stat = find_process(self.identity)
        if stat is not None:
            return stat.exit_code
        return read_exit_status(self.pidfd) if self.pidfd is not None else None


class Workers:
    """All ranks of this node."""

    def __init__(self, rundir: str) -> None:
        self.rundir = rundir
        self.by_rank: Dict[Rank, Worker] = {}

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.by_rank.values())

    def announce(self, entry: StartedWorker) -> Worker:
        """Take the gate's report of a worker that was started."""
        error_file = entry["TORCHELASTIC_ERROR_FILE"]
        folder = os.path.relpath(os.path.dirname(error_file), self.rundir) if error_file else None
        world_size = int(entry["WORLD_SIZE"]) if entry["WORLD_SIZE"] else None
        identity = Identity(entry["pid"], entry["starttime"])
        worker = Worker(identity, Rank(int(entry["RANK"])), int(entry["LOCAL_RANK"]), world_size, folder)
        self.by_rank[worker.rank] = worker
        return worker

    def find_gone(self) -> List[Worker]:
        """Return the workers that no longer run and whose end is not recorded."""
        return [worker for worker in self if not worker.ended and not is_alive(worker.identity)]

    def record_end(self, rank: Rank, code: int) -> Optional[Worker]:
        """Take the end that torchrun saw, as `Popen.returncode`; None if it was known before."""
        worker = self.by_rank[rank]
        if worker.ended:
            return None
        worker.record_exit(-code if code < 0 else code << 8)
        return worker

    def on_child_exit(self, pid: int, status: int) -> Optional[Worker]:
        """Take the end of a process that this one inherited."""
        for worker in self:
            if worker.identity.pid == pid and not worker.ended:
                worker.record_exit(status)
                return worker
        return None

    def fill_unseen_ends(self, torchrun_exit: Optional[int], log: str) -> List[Worker]:
        """Fill in the ends that nobody saw: all were good if torchrun's was, else its own table tells.

        Returns the workers that turn out to have failed.
        """
        unseen = [worker for worker in self if not worker.ended]
        table = {Rank(int(rank)): int(code) for rank, code in FAILURE_TABLE.findall(log)}
        for worker in unseen:
            if torchrun_exit == 0:
                self.record_end(worker.rank, 0)
            elif worker.rank in table:
                self.record_end(worker.rank, table[worker.rank])
        return [worker for worker in unseen if worker.failed]


def count_memory_kills() -> int:
    """Count what the kernel has killed on this machine because memory, or that of a cgroup, ran out; 0 if unknown."""
    try:
        with open("/proc/vmstat", "rb") as source:
            match = re.search(rb"^oom_kill (\d+)$", source.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def open_pidfd(identity: Identity) -> Optional[int]:
    """Open a descriptor that becomes readable when the process ends.

    None on old kernels and Pythons, and where the process has been reaped already.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if find_process(identity) is not None:
        return descriptor
    os.close(descriptor)
    return None


def read_exit_status(pidfd: int) -> Optional[int]:
    """Ask a kernel of 6.15 or later how a process ended that somebody has reaped already."""
    answer = bytearray(PIDFD_INFO_SIZE)
    struct.pack_into("=Q", answer, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, answer)
    except OSError:
        return None
    mask, status = struct.unpack_from("=Q", answer, 0)[0], struct.unpack_from("=i", answer, 60)[0]
    return int(status) if mask & PIDFD_INFO_EXIT else None


POLL_INTERVAL = 0.1  # seconds between looks at known workers where the kernel or Python has no pidfd

if TYPE_CHECKING:
    from typing import TypedDict

    class TorchrunFacts(TypedDict, total=False):
        """What is reported of torchrun: `worker` has exited; torch of this version is imported; how workers start."""

        worker: Worker
        torch: str
        method: str
        text: str


Notify = Callable[["JournalEvent", "TorchrunFacts"], None]


class Torchrun:
    """The gate, then torchrun, and its workers; tells `notify` what it hears of them."""

    def __init__(self, loop: Loop, spec: Spec, paths: AttemptPaths, notify: Notify) -> None:
        self.spec = spec
        self.paths = paths
        self.workers = Workers(paths.rundir)
        self.ended = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.failure = ""
        self._loop = loop
        self._notify = notify
        self._gate: Optional[Gate] = None
        self._templates: Dict[str, SentTemplate] = {}
        self._diagnosis = self._search_path = ""
        self._secrets: Mapping[str, str] = {}
        self.is_forked = False
        self._reports = b""
        self._go_sent = self._closed = False

    @property
    def pid(self) -> Optional[int]:
        """The process, while it has not ended."""
        return self._gate.identity.pid if self._gate is not None and not self.ended else None

    @property
    def log(self) -> str:
        """Where torchrun's own output goes."""
        return self.paths.torchrun_log

    def logs(self) -> List[str]:
        """Name this and what the workers write to."""
        folders = [os.path.join(self.paths.rundir, worker.folder) for worker in self.workers if worker.folder]
        streams = (STDOUT_LOG, STDERR_LOG)
        return [self.log, *(os.path.join(folder, stream) for folder in folders for stream in streams)]

    def start(
        self, inherited: Mapping[str, str], secrets: Mapping[str, str], server: Optional[WarmServer] = None
    ) -> None:
        """Start the gate; of one that a server outlives the secrets come with GO."""
        if server is not None and server.is_needed:
            self._secrets, secrets = secrets, {}
        env, self._templates = plan_environment(inherited, self.spec, secrets, self.paths)
        if not self.spec["module"]:
            append_programs_to_path(env, self.spec["python"])
        self._diagnosis, self._search_path = env.get(VARIABLE, ""), env.get("PYTHONPATH", "")
        if server is not None:
            self._gate = server.fork_gate(self.spec, env, self.paths)
        self.is_forked = self._gate is not None
        if self._gate is None:
            self._gate = start_gate(self.spec, env, self.paths, server.expect() if server else None)
        self._loop.watch(self._gate.report, self._read_reports)

    def send_go(self, address: str, port: int) -> None:
        """Give GO, with the master's address and port; a gate that has just died is noticed by its end."""
        assert self._gate is not None
        self._go_sent = True
        values = {**self.paths.values, "master_addr": address, "master_port": str(port)}
        code = RunPaths(self.paths.rundir).code
        env = {
            **self._secrets,
            "PWD": code,
            **{key: render_template(template, values) for key, template in self._templates.items()},
        }
        if self._diagnosis:
            search_path = env.get("PYTHONPATH", self._search_path)
            env["PYTHONPATH"] = prepare_diagnosis(self._diagnosis, search_path)
        argv = [render_template(word, values) for word in self.spec["argv"]]
        order: GateOrder = {
            "cwd": code,
            "env": env,
            "argv": argv,
            "attempt": self.paths.attempt,
            "node_rank": self.spec["node_rank"],
        }
        unsent = memoryview(json.dumps(order).encode("utf-8") + b"\n")
        with suppress(OSError):
            while unsent:
                unsent = unsent[os.write(self._gate.go, unsent) :]
        os.close(self._gate.go)

    def close(self) -> None:
        """Let go of the pipes once the process has ended."""
        if self._gate is not None and self.ended and not self._closed:
            self._closed = True
            self._loop.unwatch(self._gate.report)
            os.close(self._gate.report)
            if not self._go_sent:
                os.close(self._gate.go)

    def stat(self) -> Optional[Stat]:
        """Look at the process, while it has not ended."""
        return find_process(self._gate.identity) if self._gate is not None and not self.ended else None

    def as_dict(self) -> Optional[TorchrunRecord]:
        """Render for state.json."""
        if self._gate is None:
            return None
        return {**self._gate.identity.as_dict(), "exit": self.exit, "signal": self.signal}

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child; workers are our children when torchrun died before them."""
        if pid == self.pid:
            self._read_reports()
            self._check_ends()
            self.ended = True
            self.exit, self.signal = split_status(status)
            self._notify("torchrun_exited", {})
            return
        worker = self.workers.on_child_exit(pid, status)
        if worker is not None:
            self._on_worker_end(worker)

    def fill_unseen_ends(self) -> List[Worker]:
        """Fill in what only torchrun saw of its workers; returns those of them that failed."""
        return self.workers.fill_unseen_ends(self.exit, read_tail(self.log, 1 << 20))

    def _read_reports(self) -> None:
        assert self._gate is not None
        while True:
            try:
                chunk = os.read(self._gate.report, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                self._loop.unwatch(self._gate.report)
                break
            self._reports += chunk
        *lines, self._reports = self._reports.split(b"\n")
        for line in lines:
            self._on_report(json.loads(line.decode("utf-8")))

    def _on_report(self, report: GateReport) -> None:
        if "ready" in report:
            self._notify("ready", {"torch": report["ready"]})
        elif "failed" in report:
            self.failure = report["failed"]
        elif "worker" in report:
            self._watch_worker(self.workers.announce(report["worker"]))
            if len(self.workers.by_rank) == self.spec["processes"]:
                self._notify("workers", {})
        elif "start" in report:
            self._notify("start_method", {"method": report["start"], "text": report["text"]})
        elif "ended" in report:
            worker = self.workers.record_end(report["ended"]["rank"], report["ended"]["code"])
            if worker is not None:
                self._on_worker_end(worker)

    def _watch_worker(self, worker: Worker) -> None:
        if worker.pidfd is None:
            self._loop.after(POLL_INTERVAL, "poll", self._poll_workers)
        else:
            self._loop.watch(worker.pidfd, self._check_ends)

    def _poll_workers(self) -> None:
        self._check_ends()
        if any(not worker.ended for worker in self.workers):
            self._loop.after(POLL_INTERVAL, "poll", self._poll_workers)

    def _check_ends(self) -> None:
        for worker in self.workers.find_gone():
            status = worker.status()
            if status is None:
                self._unwatch(worker)  # torchrun has reaped it, and its report is on the way
            else:
                worker.record_exit(status)
                self._on_worker_end(worker)

    def _on_worker_end(self, worker: Worker) -> None:
        self._unwatch(worker)
        self._notify("rank_exited", {"worker": worker})

    def _unwatch(self, worker: Worker) -> None:
        if worker.pidfd is not None:
            self._loop.unwatch(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = None


FIRST_DELAY, LONGEST_DELAY = 1.0, 64.0  # seconds between two looks, each twice the one before
MOST_PROCESSES = 256  # processes that are looked into at a time
LARGEST_ENVIRON = 128 << 10  # bytes of an environment; Linux allows one variable as much
LARGEST_MAPS = 1 << 20  # bytes of a list of mapped files

OnWorldSize = Callable[[int], None]


class WorldSizes:
    """Looks at the program's processes now and then; calls `on_size` once for every other WORLD_SIZE."""

    def __init__(self, loop: Loop, on_size: OnWorldSize) -> None:
        self._loop = loop
        self._on_size = on_size
        self._known: Set[Identity] = set()
        self._inherited: Optional[str] = None
        self._delay = FIRST_DELAY
        self.sizes: Set[int] = set()

    def start(self, pid: int) -> None:
        """Watch what a process starts, where that costs no look at all processes of the machine."""
        if kernel_lists_children():
            self._loop.after(self._delay, "world sizes", lambda: self._poll(pid))

    def stop(self) -> None:
        """Look no more."""
        self._loop.cancel("world sizes")

    def _poll(self, pid: int) -> None:
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        self.start(pid)
        self._inherited = read_environ(pid).get("WORLD_SIZE")
        new = [stat for stat in descendants(pid) if stat.identity not in self._known]
        for stat in new[:MOST_PROCESSES]:
            size = self._read_world_size(stat.pid)
            current = read_stat(stat.pid)
            if size is not None and current is not None and current.identity == stat.identity:
                self._known.add(stat.identity)
                if size not in self.sizes:
                    self.sizes.add(size)
                    self._on_size(size)

    def _read_world_size(self, pid: int) -> Optional[int]:
        """Read what a worker was started with; None for what is no worker, and for what the job's own `env` says."""
        env = read_environ(pid)
        size = env.get("WORLD_SIZE", "")
        is_worker = "RANK" in env and size != self._inherited and size.isdigit() and len(size) < 10
        return int(size) if is_worker and runs_torch(pid) else None


def read_environ(pid: int) -> Dict[str, str]:
    """Read the variables that a process was started with; nothing if it is gone or not ours."""
    entries = _read("/proc/%d/environ" % pid, LARGEST_ENVIRON).decode("utf-8", "replace").split("\0")
    return dict(entry.partition("=")[::2] for entry in entries if "=" in entry)


def runs_torch(pid: int) -> bool:
    """Whether a process is a Python, or has torch's library loaded."""
    try:
        name = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False
    return name.startswith(("python", "pypy")) or b"libtorch" in _read("/proc/%d/maps" % pid, LARGEST_MAPS)


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as source:
            return source.read(most)
    except OSError:
        return b""
