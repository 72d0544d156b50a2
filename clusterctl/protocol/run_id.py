"""The name of a run, `JOB-20261122T071140-03b1`: the one form in which it may become part of a path or a command."""

from __future__ import annotations

import re
from typing import NewType

RunId = NewType("RunId", str)

# of jobs and nodes: no slash, no leading dot or dash, no shell character
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# In the name of a directory, where a node's name is in others: what belongs to a Slurm job as a whole.
ALLOCATION = ".slurm"
MAX_JOB_NAME = 64  # characters
_RUN_ID = re.compile(rf"({NAME_PATTERN})-[0-9]{{8}}T[0-9]{{6}}-[0-9a-f]{{4,16}}")


def parse_run_id(text: object) -> RunId | None:
    """Read a whole run id; None for anything else, such as a path or the beginning of a name."""
    match = _RUN_ID.fullmatch(text) if isinstance(text, str) else None
    return RunId(match[0]) if match and len(match[1]) <= MAX_JOB_NAME else None


def parse_job_name(text: object) -> str:
    """Read the name of a job; empty for anything else."""
    valid = isinstance(text, str) and len(text) <= MAX_JOB_NAME and re.fullmatch(NAME_PATTERN, text)
    return str(text) if valid else ""


def job_name_of(run_id: RunId) -> str:
    """Return the name of the job that a run belongs to."""
    match = _RUN_ID.fullmatch(run_id)
    return match[1] if match else ""
