"""Runs Slurm's programs on the login node, each within a time limit."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, Iterable, List, NamedTuple, Optional

from ..runtime.stream import VerbError
from .output import QUEUE_FORMAT, QueuedJob, parse_kill_wait, parse_queue

COMMAND_LIMIT = 20.0  # seconds; a controller that is busy answers late
SUBMIT_LIMIT = 60.0
LONGEST_ERROR = 2000  # characters of what a program printed
# They change what the programs print.
FORMAT_VARIABLES = ("SLURM_TIME_FORMAT", "SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_STATES", "SQUEUE_USERS")


class Finished(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    output: str
    error: str


def run_program(argv: List[str], limit: float = COMMAND_LIMIT) -> Finished:
    """Run one of Slurm's programs; VerbError if it is not there or does not end in time."""
    env = {key: value for key, value in os.environ.items() if key not in FORMAT_VARIABLES}
    env["LC_ALL"] = "C"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, env=env, check=False
        )
    except FileNotFoundError:
        raise VerbError("CC-SLURM-003", f"{argv[0]} is not on the PATH of this machine") from None
    except subprocess.TimeoutExpired:
        raise VerbError("CC-SLURM-004", f"{argv[0]} did not end within {limit:g} s") from None
    output, error = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    return Finished(done.returncode, output, error.strip()[-LONGEST_ERROR:])


def query_queue(jobs: Iterable[str]) -> Optional[Dict[str, QueuedJob]]:
    """Ask for the states of jobs, ended ones included as long as Slurm remembers them; None if it does not answer."""
    numbers = ",".join(jobs)
    if not numbers:
        return {}
    try:
        done = run_program(["squeue", "-h", "-t", "all", "-o", QUEUE_FORMAT, "-j", numbers])
    except VerbError:
        return None
    if done.status != 0 and "Invalid job id" not in done.error:
        return None  # the controller is away
    return parse_queue(done.output)


def query_kill_wait() -> Optional[float]:
    """Ask how many seconds Slurm leaves between SIGTERM and SIGKILL; None if it does not say."""
    try:
        return parse_kill_wait(run_program(["scontrol", "show", "config"]).output)
    except VerbError:
        return None
