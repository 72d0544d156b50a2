"""A session's share of the machine (control groups), what dead processes left in /dev/shm, how text is read."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

from .probe_ask import read_int, read_text

CGROUPS = "/sys/fs/cgroup"
SHM = "/dev/shm"
MOST_FILES = 4000
STILL = 3600.0  # seconds; NCCL's files bear no pid: only old ones can be told from those in use
TORCH = re.compile(r"torch_(\d+)_")


def cgroup() -> dict[str, Any]:
    """Tell the tightest limits on the way from this session's control group to the root; None where there is none.

    Memory in bytes, `cpus` in processors, `pids_free` is how many more processes and threads may be made.
    """
    levels = list(_levels(_own_group()))
    pairs = [(level, read_int(level + "/pids.max")) for level in levels]
    memory = [(read_int(level + "/memory.max"), _memory_in_use(level)) for level in levels]
    bounded = [(most, used) for most, used in memory if most is not None]
    return {
        "memory": min([most for most, _ in bounded], default=None),
        "memory_free": min([most - used for most, used in bounded], default=None),
        "cpus": min(filter(None, map(_processors, levels)), default=None),
        "pids_free": min(
            [most - (read_int(level + "/pids.current") or 0) for level, most in pairs if most is not None],
            default=None,
        ),
    }


def _own_group() -> str:
    """Give the path of this process's group; of version 2 only, which all systems of the last years have."""
    for line in (read_text("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


def _levels(group: str) -> Any:
    while group.strip("/"):
        yield CGROUPS + group.rstrip("/")
        group = os.path.dirname(group.rstrip("/"))
    yield CGROUPS  # in a container this is the container's own


def _memory_in_use(level: str) -> int:
    """Give what is charged to a group without the cached files that the kernel drops before it kills anybody."""
    cached = re.search(r"^inactive_file (\d+)$", read_text(level + "/memory.stat") or "", re.MULTILINE)
    return max(0, (read_int(level + "/memory.current") or 0) - (int(cached[1]) if cached else 0))


def _processors(level: str) -> float | None:
    words = (read_text(level + "/cpu.max") or "").split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def shared_memory() -> dict[str, Any]:
    """Tell what this account's processes that are gone have left in /dev/shm: files and bytes."""
    files = size = 0
    with os.scandir(SHM) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_FILES:
                break
            left = _left_by_the_dead(entry)
            files, size = files + bool(left), size + left
    return {"files": files, "bytes": size}


def _left_by_the_dead(entry: os.DirEntry[str]) -> int:
    """Give the bytes that a file takes if nobody can need it any more, else 0."""
    made_by = TORCH.match(entry.name)
    if not made_by and not entry.name.startswith("nccl-"):
        return 0
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    if found.st_uid != os.getuid():
        return 0
    dead = (
        not os.path.exists("/proc/" + made_by.group(1)) if made_by else time.time() - found.st_mtime > STILL
    )
    return found.st_blocks * 512 if dead else 0


def text() -> dict[str, Any]:
    """Tell how Python reads and writes text here, and the variables that decide it."""
    names = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    named = ["%s=%s" % (name, os.environ[name][:60]) for name in names if os.environ.get(name)]
    return {"encoding": sys.getfilesystemencoding(), "variables": named}
