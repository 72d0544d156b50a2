"""What this machine itself adds to a check: the modes of key files, and what lies beside the job's script."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from clusterctl.plans.checks.check import Here
from clusterctl.specs.inventory import Node
from clusterctl.specs.job import Job

MOST_NAMES = 2000


def look_here(nodes: Sequence[Node], job: Job | None) -> Here:
    """Look at the keys that the inventory names and at the directory of the job's script; never raises."""
    keys = {node.ssh.key for node in nodes if node.ssh.key}
    modes = {path: mode for path in sorted(keys) if (mode := _mode(path)) & 0o077}
    return Here(modes, tuple(_beside_script(job)) if job is not None else ())


def _mode(path: str) -> int:
    with suppress(OSError, RuntimeError, ValueError):
        found = Path(path).expanduser().stat()
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else 0
    return 0


def _beside_script(job: Job) -> Iterator[str]:
    """Name the Python files, and the directories with Python files, in the directory that Python looks in first."""
    if job.script is None:
        return
    folder = Path(job.file).parent / job.sync.source / Path(job.script).parent
    with suppress(OSError), os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(MOST_NAMES), strict=False):
            if entry.name.endswith(".py"):
                yield entry.name
            elif (folder / entry.name / "__init__.py").is_file():
                yield f"{entry.name}/"
