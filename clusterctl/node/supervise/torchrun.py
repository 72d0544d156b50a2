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
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set

from ..runtime.event_loop import Loop
from ..runtime.exit_status import describe_end, split_status
from ..runtime.processes import Identity, Stat, alive, descendants, kernel_lists_children, look, read_stat
from ..state.environments import reach_programs
from ..state.workdir import tail_of
from .spawn import Gate, Places, fill, plan_environment, start_gate

# torchrun's own table of failures, for a worker that was gone before anybody could look at it
TABLE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) \(pid: \d+\)")

PIDFD_INFO_SIZE = 64
PIDFD_INFO_EXIT = 8
PIDFD_GET_INFO = 3 << 30 | PIDFD_INFO_SIZE << 16 | 0xFF << 8 | 11


class Worker:
    """One rank of this node."""

    def __init__(
        self, identity: Identity, rank: int, local_rank: int, world_size: Optional[int], folder: Optional[str]
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
        self.starved = False  # whether the kernel has killed for want of memory since it was started
        self._kills = count_memory_kills()

    @property
    def failed(self) -> bool:
        """Whether it is known to have ended otherwise than with 0."""
        return self.signal is not None or bool(self.exit)

    def describe(self) -> str:
        """Say how it ended."""
        return f"rank {self.rank} {describe_end(self.exit, self.signal)}"

    def as_dict(self) -> Dict[str, Any]:
        """Render for state.json."""
        entry = {
            "local_rank": self.local_rank,
            **self.identity.as_dict(),
            "exit": self.exit,
            "signal": self.signal,
        }
        for stream in ("stdout", "stderr"):
            entry[stream] = f"{self.folder}/{stream}.log" if self.folder else None
        return {**entry, "starved": True} if self.starved else entry

    def end(self, status: int) -> None:
        """Record the end by its wait status."""
        self.ended = True
        self.exit, self.signal = split_status(status)
        self.starved = self.signal == signal.SIGKILL and count_memory_kills() > self._kills

    def status(self) -> Optional[int]:
        """Read the wait status of a worker that has ended; None if only its parent can tell."""
        stat = look(self.identity)
        if stat is not None:
            return stat.exit_code
        return status_of(self.pidfd) if self.pidfd is not None else None


class Workers:
    """All ranks of this node."""

    def __init__(self, rundir: str) -> None:
        self.rundir = rundir
        self.by_rank: Dict[int, Worker] = {}

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.by_rank.values())

    def announce(self, entry: Dict[str, Any]) -> Worker:
        """Take the gate's report of a worker that was started."""
        error_file = entry["TORCHELASTIC_ERROR_FILE"]
        folder = os.path.relpath(os.path.dirname(error_file), self.rundir) if error_file else None
        size = int(entry["WORLD_SIZE"]) if entry["WORLD_SIZE"] else None
        identity = Identity(entry["pid"], entry["starttime"])
        worker = Worker(identity, int(entry["RANK"]), int(entry["LOCAL_RANK"]), size, folder)
        self.by_rank[worker.rank] = worker
        return worker

    def gone(self) -> List[Worker]:
        """Return the workers that no longer run and whose end is not recorded."""
        return [worker for worker in self if not worker.ended and not alive(worker.identity)]

    def told(self, rank: int, code: int) -> Optional[Worker]:
        """Take the end that torchrun saw, as `Popen.returncode`; None if it was known before."""
        worker = self.by_rank[rank]
        if worker.ended:
            return None
        worker.end(-code if code < 0 else code << 8)
        return worker

    def reaped(self, pid: int, status: int) -> Optional[Worker]:
        """Take the end of a process that this one inherited."""
        for worker in self:
            if worker.identity.pid == pid and not worker.ended:
                worker.end(status)
                return worker
        return None

    def conclude(self, torchrun_exit: Optional[int], log: str) -> List[Worker]:
        """Fill in the ends that nobody saw: all were good if torchrun's was, else its own table tells.

        Returns the workers that turn out to have failed.
        """
        unseen = [worker for worker in self if not worker.ended]
        table = {int(rank): int(code) for rank, code in TABLE.findall(log)}
        for worker in unseen:
            if torchrun_exit == 0:
                self.told(worker.rank, 0)
            elif worker.rank in table:
                self.told(worker.rank, table[worker.rank])
        return [worker for worker in unseen if worker.failed]


def count_memory_kills() -> int:
    """Count what the kernel has killed on this machine because memory, or that of a cgroup, ran out; 0 if unknown."""
    try:
        with open("/proc/vmstat", "rb") as source:
            found = re.search(rb"^oom_kill (\d+)$", source.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


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
    if look(identity) is not None:
        return descriptor
    os.close(descriptor)
    return None


def status_of(pidfd: int) -> Optional[int]:
    """Ask a kernel of 6.15 or later how a process ended that somebody has reaped already."""
    answer = bytearray(PIDFD_INFO_SIZE)
    struct.pack_into("=Q", answer, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, answer)
    except OSError:
        return None
    mask, status = struct.unpack_from("=Q", answer, 0)[0], struct.unpack_from("=i", answer, 60)[0]
    return int(status) if mask & PIDFD_INFO_EXIT else None


POLL = 0.1  # seconds between looks at known workers where the kernel or Python has no pidfd

Notify = Callable[..., None]


class Torchrun:
    """The gate, then torchrun, and its workers; tells `notify` what it hears of them."""

    def __init__(self, loop: Loop, spec: Dict[str, Any], places: Places, notify: Notify) -> None:
        self.spec = spec
        self.places = places
        self.workers = Workers(places.rundir)
        self.over = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.failure = ""
        self._loop = loop
        self._notify = notify
        self._gate: Optional[Gate] = None
        self._late: Dict[str, Any] = {}
        self._reports = b""
        self._went = self._closed = False

    @property
    def pid(self) -> Optional[int]:
        """The process, while it has not ended."""
        return self._gate.identity.pid if self._gate is not None and not self.over else None

    @property
    def log(self) -> str:
        """Where torchrun's own output goes."""
        return os.path.join(self.places.attempt, "torchrun.log")

    def logs(self) -> List[str]:
        """Name this and what the workers write to."""
        folders = [
            os.path.join(self.places.rundir, worker.folder) for worker in self.workers if worker.folder
        ]
        streams = ("stdout.log", "stderr.log")
        return [self.log, *(os.path.join(folder, stream) for folder in folders for stream in streams)]

    def start(self, inherited: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        """Start the gate."""
        env, self._late = plan_environment(inherited, self.spec, secrets, self.places)
        if not self.spec["module"]:
            reach_programs(env, self.spec["python"])
        self._gate = start_gate(self.spec["python"], self.spec["module"], env, self.places)
        self._loop.watch(self._gate.report, self._hear)

    def go(self, address: str, port: int) -> None:
        """Give GO, with the master's address and port; a gate that has just died is noticed by its end."""
        assert self._gate is not None
        self._went = True
        values = {**self.places.values, "master_addr": address, "master_port": str(port)}
        code = os.path.join(self.places.rundir, "code")
        env = {"PWD": code, **{key: fill(text, values) for key, text in self._late.items()}}
        argv = [fill(word, values) for word in self.spec["argv"]]
        place = {"attempt": self.places.attempt, "node_rank": self.spec["node_rank"]}
        order = {"cwd": code, "env": env, "argv": argv, **place}
        rest = memoryview(json.dumps(order).encode("utf-8") + b"\n")
        with suppress(OSError):
            while rest:
                rest = rest[os.write(self._gate.go, rest) :]
        os.close(self._gate.go)

    def close(self) -> None:
        """Let go of the pipes once the process has ended."""
        if self._gate is not None and self.over and not self._closed:
            self._closed = True
            self._loop.forget(self._gate.report)
            os.close(self._gate.report)
            if not self._went:
                os.close(self._gate.go)

    def stat(self) -> Optional[Stat]:
        """Look at the process, while it has not ended."""
        return look(self._gate.identity) if self._gate is not None and not self.over else None

    def as_dict(self) -> Optional[Dict[str, Any]]:
        """Render for state.json."""
        if self._gate is None:
            return None
        return {**self._gate.identity.as_dict(), "exit": self.exit, "signal": self.signal}

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child; workers are our children when torchrun died before them."""
        if pid == self.pid:
            self._hear()
            self._see_ends()
            self.over = True
            self.exit, self.signal = split_status(status)
            self._notify("torchrun_exited", exit=self.exit, signal=self.signal)
            return
        worker = self.workers.reaped(pid, status)
        if worker is not None:
            self._forget(worker)

    def conclude(self) -> List[Worker]:
        """Fill in what only torchrun saw of its workers; returns those of them that failed."""
        return self.workers.conclude(self.exit, tail_of(self.log, 1 << 20))

    def _hear(self) -> None:
        assert self._gate is not None
        while True:
            try:
                piece = os.read(self._gate.report, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                self._loop.forget(self._gate.report)
                break
            self._reports += piece
        *lines, self._reports = self._reports.split(b"\n")
        for line in lines:
            self._take(json.loads(line.decode("utf-8")))

    def _take(self, report: Dict[str, Any]) -> None:
        if "ready" in report:
            self._notify("ready", torch=report["ready"])
        elif "failed" in report:
            self.failure = report["failed"]
        elif "worker" in report:
            self._attend(self.workers.announce(report["worker"]))
            if len(self.workers.by_rank) == self.spec["processes"]:
                self._notify("workers")
        elif "ended" in report:
            worker = self.workers.told(**report["ended"])
            if worker is not None:
                self._forget(worker)

    def _attend(self, worker: Worker) -> None:
        if worker.pidfd is None:
            self._loop.after(POLL, "poll", self._poll_workers)
        else:
            self._loop.watch(worker.pidfd, self._see_ends)

    def _poll_workers(self) -> None:
        self._see_ends()
        if any(not worker.ended for worker in self.workers):
            self._loop.after(POLL, "poll", self._poll_workers)

    def _see_ends(self) -> None:
        for worker in self.workers.gone():
            status = worker.status()
            if status is None:
                self._unwatch(worker)  # torchrun has reaped it, and its report is on the way
            else:
                worker.end(status)
                self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        self._unwatch(worker)
        self._notify("rank_exited", worker=worker)

    def _unwatch(self, worker: Worker) -> None:
        if worker.pidfd is not None:
            self._loop.forget(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = None


FIRST, RAREST = 1.0, 64.0  # seconds between two looks, each twice the one before
MOST = 256  # processes that are looked into at a time
LARGEST = 128 << 10  # bytes of an environment; Linux allows one variable as much
MAPS = 1 << 20  # bytes of a list of mapped files

Heard = Callable[[int], None]


class WorldSizes:
    """Looks at the program's processes now and then; calls `heard` once for every other WORLD_SIZE."""

    def __init__(self, loop: Loop, heard: Heard) -> None:
        self._loop = loop
        self._heard = heard
        self._known: Set[Identity] = set()
        self._inherited: Optional[str] = None
        self._delay = FIRST
        self.seen: Set[int] = set()

    def begin(self, pid: int) -> None:
        """Watch what a process starts, where that costs no look at all processes of the machine."""
        if kernel_lists_children():
            self._loop.after(self._delay, "world sizes", lambda: self._look(pid))

    def end(self) -> None:
        """Look no more."""
        self._loop.drop("world sizes")

    def _look(self, pid: int) -> None:
        self._delay = min(2 * self._delay, RAREST)
        self.begin(pid)
        self._inherited = read_environ(pid).get("WORLD_SIZE")
        new = [stat for stat in descendants(pid) if stat.identity not in self._known]
        for stat in new[:MOST]:
            size = self._size_of(stat.pid)
            found = read_stat(stat.pid)
            if size is not None and found is not None and found.identity == stat.identity:
                self._known.add(stat.identity)
                if size not in self.seen:
                    self.seen.add(size)
                    self._heard(size)

    def _size_of(self, pid: int) -> Optional[int]:
        """Read what a worker was told; None for what is no worker, and for what the job's own `env` says."""
        env = read_environ(pid)
        size = env.get("WORLD_SIZE", "")
        told = "RANK" in env and size != self._inherited and size.isdigit() and len(size) < 10
        return int(size) if told and runs_torch(pid) else None


def read_environ(pid: int) -> Dict[str, str]:
    """Read the variables that a process was started with; nothing if it is gone or not ours."""
    words = _read("/proc/%d/environ" % pid, LARGEST).decode("utf-8", "replace").split("\0")
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def runs_torch(pid: int) -> bool:
    """Whether a process is a Python, or has torch's library loaded."""
    try:
        name = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False
    return name.startswith(("python", "pypy")) or b"libtorch" in _read("/proc/%d/maps" % pid, MAPS)


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as source:
            return source.read(most)
    except OSError:
        return b""
