"""Namespaces, mounts, process trees."""

from __future__ import annotations

import ctypes
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


NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_NOATIME, _NODIRATIME, _RELATIME = 0x400, 0x800, 0x200000
_SET_NAME = 15  # PR_SET_NAME
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_ST_RELATIME = 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """Put this process (for NEWPID: its next child) into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def become(inside_uid: int, inside_gid: int, outside_uid: int, outside_gid: int) -> None:
    """Enter a new user namespace with one user and one group in it; ids outside are those of the parent."""
    unshare(NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{inside_uid} {outside_uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{inside_gid} {outside_gid} 1", encoding="ascii")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    options = None if data is None else data.encode()
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options), f"mount {target}")


def keep_mounts_private() -> None:
    """Let no later mount of this namespace be seen outside, nor the other way round."""
    _mount("none", "/", None, _REC | _PRIVATE, None)


def mount_new(kind: str, target: str, options: str | None = None, *, devices: bool = False) -> None:
    """Mount a fresh file system of a kind (tmpfs, proc, sysfs, devpts) without setuid programs."""
    strict = _NOEXEC if kind in ("proc", "sysfs", "devpts") else 0
    _mount(kind, target, kind, _NOSUID | strict | (0 if devices else _NODEV), options)


def bind(source: int | str, target: str, *, read_only: bool = False) -> None:
    """Show a file or directory (a path, or a descriptor opened before it was covered) at another path."""
    where = f"/proc/self/fd/{source}" if isinstance(source, int) else source
    _mount(where, target, None, _BIND | _REC, None)
    if read_only:
        _mount("none", target, None, _REMOUNT | _BIND | _READ_ONLY | _kept_flags(target), None)


def _kept_flags(target: str) -> int:
    """The flags that the mount has: an ordinary user may not drop them, nor leave them out."""
    has = os.statvfs(target).f_flag
    flags = has & (_NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME)
    return flags | (_RELATIME if has & _ST_RELATIME else 0)


def set_name(name: str) -> None:
    """Name this process as `ps -o comm` shows it."""
    _libc.prctl(_SET_NAME, name.encode()[:15], 0, 0, 0)


def become_subreaper() -> None:
    """Let orphans below this process become its children."""
    _check(_libc.prctl(_SUBREAPER, 1, 0, 0, 0), "become a subreaper")
