"""Records at the exit of a process of which size its process group of torch was; `supervise/ranks/groups.py` reads it.

Like `rank.py` this file is also written beside the `sitecustomize.py` of a run, so it imports nothing of ours. Every
Python process of an attempt calls `watch`, not only the ranks: a rank may leave the training to a process that it
starts. In the directory of the attempt the process PID has

    PID.group    {"pid", "starttime", "size", "rank", "ended"}; size: null until it exits, 0 where it is not known,
                 1 if torch.distributed is imported and was never initialized, else the ranks of its default group;
                 rank: its own in that group, else null; ended: when it exits, in the ticks of starttime

The file is removed at the exit of a process that has not imported torch.distributed.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MODULE = "clusterctl_group"  # the name of this file there
SUFFIX = ".group"
C10D, RPC = "torch.distributed.distributed_c10d", "torch.distributed.rpc"
# What is set by init_process_group and kept by destroy_process_group, in torch 2.2 to 2.15; None before. A torch that
# has it otherwise is one of which nothing is known.
KEPT_MARKS = ("_backend", "_default_pg_init_method")
# Ranks that have one of these may communicate by it.
OTHER_LIBRARIES = (
    *("jax", "jaxlib", "mpi4py", "horovod", "ray", "tensorflow"),
    *("torch_xla", "mxnet", "paddle", "mindspore"),
)


def watch(folder: str) -> None:
    """Begin to watch this process; whatever prevents it must not prevent the job."""
    try:
        if _is_resource_tracker():
            return
        process = _Process(folder)
        process.write(None)
        atexit.register(process.write_at_exit)
        os.register_at_fork(after_in_child=process.on_fork)
    except Exception:  # noqa: BLE001, RUF100 - the job is more important
        return


def read_size() -> Optional[int]:
    """Return the size of this process's group as PID.group has it; None if torch.distributed is not imported."""
    c10d: Any = sys.modules.get(C10D)
    if c10d is None:
        return None
    if c10d.is_initialized():
        return int(c10d.get_world_size())
    other = any(name in sys.modules for name in OTHER_LIBRARIES)
    used = any(getattr(c10d, name, "") is not None for name in KEPT_MARKS)
    has_rpc = getattr(sys.modules.get(RPC), "_init_counter", 0) > 0
    return 0 if other or used or has_rpc else 1


def read_rank() -> Optional[int]:
    """Return the rank of this process in its default group; None if it is in none."""
    c10d: Any = sys.modules.get(C10D)
    return int(c10d.get_rank()) if c10d is not None and c10d.is_initialized() else None


def _is_resource_tracker() -> bool:
    """Return whether multiprocessing has started this process to clean up: it outlives the others, and is killed."""
    with open("/proc/self/cmdline", "rb") as source:
        return b"multiprocessing.resource_tracker" in source.read(4096)


class _Process:
    """This process, also after a fork."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._inherited: Optional[int] = None  # the size when it was forked
        self._forked = False

    def write(self, size: Optional[int]) -> None:
        """Write the file."""
        with open("/proc/self/stat", "rb") as source:
            starttime = int(source.read().rpartition(b")")[2].split()[19])
        ended = rank = None
        if size is not None:
            ended = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
            rank = read_rank() if size > 1 else None
        facts = [
            "null" if fact is None else str(fact) for fact in (os.getpid(), starttime, size, rank, ended)
        ]
        content = '{"pid": %s, "starttime": %s, "size": %s, "rank": %s, "ended": %s}' % tuple(facts)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path(), flags, 0o600)
        try:
            os.write(descriptor, content.encode("ascii"))
        finally:
            os.close(descriptor)

    def write_at_exit(self) -> None:
        """Write the size, or remove the file; a forked process, such as a data loader's, only what is new."""
        try:
            size = read_size()
            if size is None and not self._forked:
                os.unlink(self._path())
            elif size is not None and not (self._forked and size == self._inherited):
                self.write(size)
        except Exception:  # noqa: BLE001, RUF100 - nothing may be printed at the exit
            return

    def on_fork(self) -> None:
        """Take notice that this is another process, in which multiprocessing may leave no time for `atexit`."""
        try:
            self._forked, self._inherited = True, read_size()
            util: Any = sys.modules.get("multiprocessing.util")
            if util is not None:  # it forgets all finalizers just after the fork, then calls this
                util.register_after_fork(self, _finalize)
        except Exception:  # noqa: BLE001, RUF100 - see watch
            return

    def _path(self) -> str:
        return os.path.join(self._folder, "%d%s" % (os.getpid(), SUFFIX))


def _finalize(process: _Process) -> None:
    util: Any = sys.modules["multiprocessing.util"]
    util.Finalize(None, process.write_at_exit, exitpriority=-100)
