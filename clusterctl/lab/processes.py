"""Processes by descent and by tag: who belongs to a node that has no namespace of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

TAG = "CLUSTERCTL_LAB"  # in the environment of every process of such a lab: the lab's directory
_SECONDS = 10.0


def descendants(pid: int) -> list[int]:
    """The living processes below a process, parents first."""
    families: dict[int, list[int]] = {}
    for number in _all():
        parent = _parent(number)
        if parent:
            families.setdefault(parent, []).append(number)
    found: list[int] = []
    waiting = families.get(pid, [])
    while waiting:
        found += waiting
        waiting = [child for number in waiting for child in families.get(number, [])]
    return found


def end_below(pid: int) -> None:
    """Kill all that descends from a process, until nothing does; a process that forks meanwhile is found too."""
    _end(lambda: descendants(pid))


def end_lab(directory: Path) -> None:
    """Kill what still bears the tag of a lab: its holder died and took its nodes' memory of them along."""
    wanted = f"{TAG}={directory}".encode(errors="surrogateescape")
    _end(lambda: [pid for pid in _all() if pid != os.getpid() and wanted in _environment(pid)])


def _end(find: Callable[[], Iterable[int]]) -> None:
    deadline = time.monotonic() + _SECONDS
    while (found := list(find())) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (names are all it needs)


def _parent(pid: int) -> int:
    """The parent's number; 0 if there is no such process or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[1])


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
