"""The workers of a node: announced by the gate, watched here, and how each of them ended."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
from typing import Any, Dict, Iterator, List, Optional

from .processes import Identity, alive, look
from .verdict import describe_end, split_status

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
