"""A lab's directory: who holds it, whether that process still runs, and its removal."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.interrupts import INTERRUPTS
from clusterctl.node.runtime.processes import Identity, boot_id, read_stat, send_signal

if TYPE_CHECKING:
    from clusterctl.lab.messages import HolderRecord, LabFile

MARKER_FILES = ("plan.json", "lab.json")  # of a lab's directory: the first file in it, and the last
REMOVED_PREFIX = ".removed-"  # how a directory is called from the moment when its removal begins


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    starttime: int
    boot_id: str

    def is_alive(self) -> bool:
        """Return whether it still runs; a zombie does not, nor does one that had ended when it was identified."""
        return self.starttime >= 0 and self.starttime == _starttime(self.pid) and self.boot_id == _boot_id()

    def terminate(self, seconds: float = 10.0) -> bool:
        """Send SIGTERM, on which it ends what it holds and itself, and wait; False if it does not end."""
        return self._signal_until_gone(signal.SIGTERM, seconds, 0.01)

    def kill(self, seconds: float = 10.0) -> bool:
        """Kill it and wait until it and all its processes have ended; False if they have not."""
        return self._signal_until_gone(signal.SIGKILL, seconds, 0.002)

    def _signal_until_gone(self, number: int, seconds: float, pause: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            send_signal(Identity(self.pid, self.starttime), number)
            INTERRUPTS.sleep(pause)
        return True


def identify(pid: int) -> Process:
    """The process of this number as it is now."""
    return Process(pid, _starttime(pid), _boot_id())


def _boot_id() -> str:
    """This boot alone: a lab's file may be read in another PID namespace, where its holder is not found anyway."""
    return boot_id().partition(" ")[0]


def _starttime(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 if there is none or it is a zombie."""
    stat = read_stat(pid)
    return stat.starttime if stat is not None and stat.running else -1


def read_holder(directory: Path) -> Process | None:
    """The process that holds the lab according to its directory; None if the lab was never finished."""
    try:
        values: LabFile = json.loads((directory / "lab.json").read_text(encoding="utf-8"))
        return Process(**values["holder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_holder(directory: Path, holder: Process, started_from: str) -> None:
    """Declare the lab finished."""
    record: HolderRecord = {"pid": holder.pid, "starttime": holder.starttime, "boot_id": holder.boot_id}
    values: LabFile = {"schema": 1, "holder": record, "started_from": started_from}
    temporary = directory / "lab.json.new"
    temporary.write_text(json.dumps(values) + "\n", encoding="utf-8")
    temporary.rename(directory / "lab.json")


@dataclass(frozen=True)
class Origin:
    """Where a lab was started, empty where that is not known, and when, in seconds since 1970."""

    directory: str
    since: float


def read_origin(directory: Path) -> Origin:
    """Where and when the lab of a directory was started; the file of an older version does not hold where."""
    file = directory / "lab.json"
    try:
        values: LabFile = json.loads(file.read_text(encoding="utf-8"))
        directory_text = values.get("started_from")
        return Origin(directory_text if isinstance(directory_text, str) else "", file.stat().st_mtime)
    except (OSError, ValueError, AttributeError):
        return Origin("", time.time())


def list_lab_directories(state_dir: Path) -> list[Path]:
    """Every directory that `lab up` made here: of running labs, of dead ones, and of those being built."""
    if not state_dir.is_dir():
        return []
    directories = (path for path in state_dir.iterdir() if not path.name.startswith("."))
    return sorted(path for path in directories if any((path / name).is_file() for name in MARKER_FILES))


@contextmanager
def hold_lock(state_dir: Path) -> Iterator[None]:
    """Allow one process at a time to build or remove labs here."""
    descriptor = os.open(state_dir, os.O_RDONLY | os.O_CLOEXEC)
    try:
        INTERRUPTS.call(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX))
        yield
    finally:
        os.close(descriptor)


def remove_directory(directory: Path) -> None:
    """Delete a lab's directory; after an interruption the name is free, and the next lab command removes the rest."""
    leftover = directory.with_name(f"{REMOVED_PREFIX}{directory.name}-{secrets.token_hex(4)}")
    try:
        directory.rename(leftover)
    except FileNotFoundError:
        return
    _delete(leftover)


def list_leftovers(state_dir: Path) -> list[Path]:
    """What interrupted removals did not delete."""
    return sorted(state_dir.glob(f"{REMOVED_PREFIX}*")) if state_dir.is_dir() else []


def remove_leftovers(state_dir: Path) -> None:
    """Delete what interrupted removals did not delete."""
    for leftover in list_leftovers(state_dir):
        _delete(leftover)


def _delete(directory: Path) -> None:
    """Delete a directory, also where a job made some without write permission."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except PermissionError:
        _make_writable(directory)
        shutil.rmtree(directory)


def _make_writable(directory: Path) -> None:
    for folder, names, _ in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(stat.S_IRWXU)
