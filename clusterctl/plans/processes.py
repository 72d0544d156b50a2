"""Processes on a node, as it names them."""

from __future__ import annotations

from clusterctl.protocol.untrusted import Untrusted

MOST = 1000
LONGEST_NAME = 100  # characters; the kernel keeps 15
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux


def render_processes(raw: Untrusted, key: str) -> tuple[str, ...]:
    """Name the processes of a list: `python (pid 4711)`."""
    return tuple(render_process(one) for one in raw.records(key, MOST))


def render_process(raw: Untrusted) -> str:
    """Name one process."""
    pid = raw.integer("pid", 1, LARGEST_PID)
    return f"{raw.text('name', LONGEST_NAME) or '?'} (pid {'?' if pid is None else pid})"
