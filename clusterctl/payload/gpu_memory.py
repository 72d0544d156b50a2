"""GPU memory in use, and by whom: reading what nvidia-smi answers, and whose processes those are."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, List

BUSY = 512  # MiB; an idle GPU uses less
USED = ["--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
APPS = ["--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"]
MOST = 64  # processes told

Process = Dict[str, Any]


def read_used(text: str) -> Dict[str, int]:
    """Read the answer to USED: MiB in use by UUID; a line that is no answer is skipped."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def read_apps(text: str) -> List[Process]:
    """Read the answer to APPS, and look up whose processes these are."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    found = [row for row in rows if len(row) == 3 and row[1].isdigit()]
    return [
        {"gpu": uuid, "memory": int(memory) if memory.isdigit() else None, **describe(int(pid))}
        for uuid, pid, memory in found[:MOST]
    ]


def describe(pid: int) -> Process:
    """Tell account and command of a process; empty where it is in another container, or gone."""
    user, command = "", ""
    with suppress(OSError):
        uid = os.stat("/proc/%d" % pid).st_uid
        user = _name_of(uid)
        with open("/proc/%d/cmdline" % pid, "rb") as source:
            command = source.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return {"pid": pid, "user": user, "command": command[:200]}


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid
