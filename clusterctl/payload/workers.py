"""The workers of a node: announced by the gate, found below it, and how each of them ended."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from typing import Any, Dict, Iterator, List, Optional

from .processes import Identity, alive, children, environment, look, read_stat
from .verdict import describe_end, split_status

# torchrun's own table of failures, for a worker that was gone before anybody could look at it
TABLE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) \(pid: (\d+)\)")

PIDFD_INFO_SIZE = 64
PIDFD_INFO_EXIT = 8
PIDFD_GET_INFO = 3 << 30 | PIDFD_INFO_SIZE << 16 | 0xFF << 8 | 11


class Worker:
    """One rank of this node."""

    def __init__(self, rank: int, local_rank: int, world_size: Optional[int], folder: Optional[str]) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.world_size = world_size
        self.folder = folder
        self.identity: Optional[Identity] = None
        self.pidfd: Optional[int] = None
        self.ended = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None

    @property
    def failed(self) -> bool:
        """Whether it is known to have ended otherwise than with 0."""
        return self.signal is not None or bool(self.exit)

    @property
    def unknown(self) -> bool:
        """Whether nobody saw how it ended."""
        return self.exit is None and self.signal is None

    def describe(self) -> str:
        """Say how it ended."""
        return f"rank {self.rank} {describe_end(self.exit, self.signal)}"

    def as_dict(self) -> Dict[str, Any]:
        """Render for state.json."""
        entry: Dict[str, Any] = {"local_rank": self.local_rank, "pid": None, "starttime": None}
        if self.identity is not None:
            entry.update(self.identity.as_dict())
        entry.update(exit=self.exit, signal=self.signal)
        for stream in ("stdout", "stderr"):
            entry[stream] = f"{self.folder}/{stream}.log" if self.folder else None
        return entry

    def end(self, status: Optional[int]) -> None:
        """Record the end; `status` is a wait status if anybody saw it."""
        self.ended = True
        if status is not None:
            self.exit, self.signal = split_status(status)

    def status(self) -> Optional[int]:
        """Read the wait status of a worker that has ended, before or after torchrun took note of it."""
        stat = look(self.identity) if self.identity is not None else None
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

    @property
    def missing(self) -> bool:
        """Whether an announced worker has no process yet."""
        return any(worker.identity is None and not worker.ended for worker in self)

    def announce(self, entry: Dict[str, Any]) -> None:
        """Take the gate's report of a worker that is being started."""
        error_file = entry["TORCHELASTIC_ERROR_FILE"]
        folder = os.path.relpath(os.path.dirname(error_file), self.rundir) if error_file else None
        size = entry["WORLD_SIZE"]
        worker = Worker(int(entry["RANK"]), int(entry["LOCAL_RANK"]), int(size) if size else None, folder)
        self.by_rank[worker.rank] = worker

    def find(self, gate: int) -> List[Worker]:
        """Look for the processes of announced workers among the gate's children."""
        known = {worker.identity.pid for worker in self if worker.identity is not None}
        found = []
        for pid in children(gate):
            worker = None if pid in known else self._claim(pid)
            if worker is not None:
                found.append(worker)
        return found

    def _claim(self, pid: int) -> Optional[Worker]:
        stat, env = read_stat(pid), environment(pid)
        worker = self.by_rank.get(int(env["RANK"])) if env.get("RANK", "").isdigit() else None
        if stat is None or worker is None or worker.identity is not None:
            return None
        worker.identity = stat.identity
        worker.pidfd = open_pidfd(pid)
        return worker

    def ended_now(self) -> List[Worker]:
        """Return the workers that have ended since the last call."""
        ended = [worker for worker in self if worker.identity is not None and not worker.ended]
        ended = [worker for worker in ended if not alive(worker.identity)]
        for worker in ended:
            worker.end(worker.status())
        return ended

    def reaped(self, pid: int, status: int) -> Optional[Worker]:
        """Take the end of a process that this one inherited."""
        for worker in self:
            if worker.identity is not None and worker.identity.pid == pid and not worker.ended:
                worker.end(status)
                return worker
        return None

    def conclude(self, torchrun_exit: Optional[int], log: str) -> List[Worker]:
        """Fill in the ends that nobody saw: all were good if torchrun's was, else its own table tells.

        Returns the workers that turn out to have failed.
        """
        unseen = [worker for worker in self if worker.unknown]
        table = {int(rank): (int(code), int(pid)) for rank, code, pid in TABLE.findall(log)}
        for worker in unseen:
            if torchrun_exit == 0:
                worker.exit = 0
            elif worker.rank in table:
                code, pid = table[worker.rank]
                worker.exit, worker.signal = (None, -code) if code < 0 else (code, None)
                worker.identity = worker.identity or Identity(pid, 0)
        return [worker for worker in unseen if worker.failed]


def open_pidfd(pid: int) -> Optional[int]:
    """Open a descriptor that becomes readable when the process ends; None on old kernels and Pythons."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
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
