"""How many files this process may have open: every node takes some, and 1024 are the usual soft limit."""

from __future__ import annotations

import errno
import resource
from contextlib import suppress

from clusterctl.errors import SystemRefusal

OWN = 128  # beside the nodes' connections
LEAST = 3  # of a node: its connection, and a bell's two ends for one conversation
USUAL = 6  # of a node with two conversations, with room
ENOUGH = 16384
SCARCE = (errno.EMFILE, errno.ENFILE)


def allow_files(nodes: int) -> None:
    """Raise the soft limit to what so many nodes take; SystemRefusal if not even the least fits below the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(ENOUGH, OWN + USUAL * nodes)
    if resource.RLIM_INFINITY != hard < wanted:
        if hard < OWN + LEAST * nodes:
            raise too_few_files(f"{nodes} nodes need {OWN + LEAST * nodes} at the least")
        wanted = hard
    if resource.RLIM_INFINITY != soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def too_few_files(evidence: str) -> SystemRefusal:
    """Say that this machine allows too few open files, and what can be done."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SystemRefusal(
        f"this machine allows {soft} open files, too few for so many nodes",
        code="CC-USE-080",
        evidence=evidence,
        fix="raise `nofile` in /etc/security/limits.conf here and log in again, or take fewer nodes: --nodes 0-499",
    )


def is_scarcity(error: BaseException) -> bool:
    """Tell whether something failed because too many files are open."""
    return isinstance(error, OSError) and error.errno in SCARCE
