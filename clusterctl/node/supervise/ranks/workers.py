"""The ranks of one attempt on this node: which process each is, when and how it ended."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional

from ....protocol.exit_status import describe_end, split_status
from ....protocol.ranks import Rank
from ....protocol.run_paths import STDERR_LOG, STDOUT_LOG
from ...runtime.event_loop import Loop
from ...runtime.processes import Identity, find_process, is_alive

if TYPE_CHECKING:
    from ....protocol.messages.files import RankRecord
    from ....protocol.messages.local import StartedWorker

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
        """Return how it ended."""
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
        """Read the wait status of a worker that has ended; None if only its parent has it."""
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

    def logs(self) -> List[str]:
        """Name the files that they write to."""
        folders = [os.path.join(self.rundir, worker.folder) for worker in self if worker.folder]
        return [os.path.join(folder, stream) for folder in folders for stream in (STDOUT_LOG, STDERR_LOG)]

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
        """Fill in the ends that were not seen: all were good if torchrun's was, else its own table shows it.

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
    """Ask a kernel of 6.15 or later how a process ended that was reaped already."""
    answer = bytearray(PIDFD_INFO_SIZE)
    struct.pack_into("=Q", answer, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, answer)
    except OSError:
        return None
    mask, status = struct.unpack_from("=Q", answer, 0)[0], struct.unpack_from("=i", answer, 60)[0]
    return int(status) if mask & PIDFD_INFO_EXIT else None


POLL_INTERVAL = 0.1  # seconds between looks at known workers where the kernel or Python has no pidfd


class WorkerWatch:
    """Calls `on_change` when a worker may have ended; `check` then finds which."""

    def __init__(self, loop: Loop, workers: Workers, timer: str, on_change: Callable[[], None]) -> None:
        self._loop, self._workers, self._timer, self._on_change = loop, workers, timer, on_change

    def add(self, worker: Worker) -> None:
        """Watch it, by its pidfd where there is one."""
        if worker.pidfd is None:
            self._loop.after(POLL_INTERVAL, self._timer, self._poll)
        else:
            self._loop.watch(worker.pidfd, self._on_change)

    def remove(self, worker: Worker) -> None:
        """Watch it no more."""
        if worker.pidfd is not None:
            self._loop.unwatch(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = None

    def stop(self) -> None:
        """Watch none of them any more."""
        self._loop.cancel(self._timer)
        for worker in self._workers:
            self.remove(worker)

    def check(self) -> Iterator[Worker]:
        """Record and yield those that have ended and whose exit status can be read; they are watched no more."""
        for worker in self._workers.find_gone():
            status = worker.status()
            self.remove(worker)
            if status is not None:  # else its parent has reaped it, and reports it
                worker.record_exit(status)
                yield worker

    def _poll(self) -> None:
        self._on_change()
        if any(is_alive(worker.identity) for worker in self._workers):
            self._loop.after(POLL_INTERVAL, self._timer, self._poll)
