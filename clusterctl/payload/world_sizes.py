"""Which WORLD_SIZE the processes of a program were started with, where the program starts its workers itself.

Known is what stands in their environment from the start: torchrun, accelerate and deepspeed put it there. What a script
passes to `init_process_group` as an argument, as after `mp.spawn`, or sets in its own `os.environ`, cannot be seen.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Optional, Set

from .loop import Loop
from .processes import Identity, descendants, kernel_lists_children, read_stat

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
