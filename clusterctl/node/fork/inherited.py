"""What a process inherits and cannot always change: a run must have that of its own login."""

from __future__ import annotations

import os
import re
from typing import List

STATUS = re.compile(
    r"^(?:Umask|Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap\w+|Cpus_allowed_list|Mems_allowed_list):.*$",
    re.MULTILINE,
)
LOGIN = re.compile(r"/(?:session-\w+|run-\w+)\.scope")  # systemd gives each login one, with the user's limits
FILES = ("limits", "cgroup", "oom_score_adj", "personality", "attr/current")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def read_inherited() -> List[str]:
    """Describe this process's limits, CPUs, control group, rights and namespaces, one text for each."""
    texts = ["%s %s" % (name, LOGIN.sub("", _read(name))) for name in FILES]
    texts += STATUS.findall(_read("status"))
    for name in NAMESPACES:
        try:
            texts.append(os.readlink("/proc/self/ns/" + name))
        except OSError:
            continue
    texts.append("priority %d" % os.getpriority(os.PRIO_PROCESS, 0))
    texts.append("scheduler %d" % os.sched_getscheduler(0))
    return texts


def _read(name: str) -> str:
    try:
        with open("/proc/self/" + name, encoding="utf-8", errors="replace") as source:
            return source.read().strip("\0\n")
    except OSError:
        return ""
