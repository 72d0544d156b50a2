"""A lab's directory: who holds it, whether that process still lives, and its removal."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    starttime: int
    boot_id: str

    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return self.boot_id == boot_id() and _stat(self.pid) == self.starttime

    def end(self, seconds: float = 10.0) -> bool:
        """Kill it and wait until it and all it held are gone; False if it outlives the wait."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return bool(select([descriptor], [], [], seconds)[0])
        except ProcessLookupError:
            return True
        finally:
            os.close(descriptor)


def identify(pid: int) -> Process:
    """The process of this number, as it is now; starttime is -1 if there is none."""
    return Process(pid, _stat(pid), boot_id())


def boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def holder_of(directory: Path) -> Process | None:
    """The process that the directory says holds the lab; None if it was never finished."""
    try:
        values: dict[str, Any] = json.loads((directory / "lab.json").read_text(encoding="utf-8"))
        return Process(**values["holder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_holder(directory: Path, holder: Process) -> None:
    """Declare the lab finished."""
    values = {"schema": 1, "holder": holder.__dict__}
    aside = directory / "lab.json.new"
    aside.write_text(json.dumps(values) + "\n", encoding="utf-8")
    aside.rename(directory / "lab.json")


def is_lab(directory: Path) -> bool:
    """Whether the directory was made by `lab up`: finished, crashed, or under way."""
    return (directory / "plan.json").is_file()


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Let one process at a time build or remove labs here."""
    descriptor = os.open(state_dir, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove(directory: Path) -> None:
    """Delete a lab's directory, also where a job left directories without write permission."""

    def allow(function: Callable[..., Any], path: str, _: object) -> None:
        parent = Path(path).parent
        for place in (parent, Path(path)):
            if place.is_dir() and not place.is_symlink():
                place.chmod(stat.S_IRWXU)
        if function is os.rmdir or not Path(path).is_dir():
            function(path)
        else:
            shutil.rmtree(path)

    if directory.exists():
        shutil.rmtree(directory, onerror=allow)
