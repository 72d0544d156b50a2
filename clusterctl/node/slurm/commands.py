"""Runs Slurm's programs on the login node, each within a time limit."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from ..runtime.stream import VerbError
from .command_output import (
    MOST_OUTPUT,
    NAME_FORMAT,
    QUEUE_FORMAT,
    QueuedJob,
    Settings,
    parse_numbers,
    parse_queue,
    parse_settings,
)

COMMAND_LIMIT = 20.0  # seconds; a controller that is busy answers late
SUBMIT_LIMIT = 60.0
MOST_NAMED = 200  # jobs in one question
LONGEST_ERROR = 2000  # characters of what a program printed
# They change what the programs print, what squeue lists (a job that it leaves out would count as forgotten), and what
# kind of job sbatch makes, where, and whether it waits for its end.
DROPPED_VARIABLES = ("SLURM_TIME_FORMAT", "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT")
DROPPED_PREFIX = "SQUEUE_"


class Finished(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    output: str
    error: str


def run_program(argv: List[str], limit: float = COMMAND_LIMIT) -> Finished:
    """Run one of Slurm's programs; VerbError if it is not there or does not end in time."""
    kept = (key for key in os.environ if key not in DROPPED_VARIABLES and not key.startswith(DROPPED_PREFIX))
    env = {key: os.environ[key] for key in kept}
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
    numbers = list(jobs)
    found: Dict[str, QueuedJob] = {}
    for begin in range(0, len(numbers), MOST_NAMED):
        output = _query(QUEUE_FORMAT, "-j", numbers[begin : begin + MOST_NAMED])
        if output is None:
            return None
        found.update(parse_queue(output))
    return found


def query_numbers(names: Sequence[str]) -> Optional[Dict[str, str]]:
    """Ask for the numbers of jobs by name; None if Slurm does not answer."""
    found: Dict[str, str] = {}
    for begin in range(0, len(names), MOST_NAMED):
        output = _query(NAME_FORMAT, "-n", names[begin : begin + MOST_NAMED])
        if output is None:
            return None
        found.update(parse_numbers(output))
    return found


def _query(columns: str, option: str, values: Sequence[str]) -> Optional[str]:
    try:
        done = run_program(
            ["squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", columns, option, ",".join(values)]
        )
    except VerbError:
        return None
    if done.status != 0 and "Invalid job id" not in done.error:
        return None  # the controller is away
    return (
        done.output if len(done.output) <= MOST_OUTPUT else None
    )  # a job that was cut off would count as forgotten


def query_settings() -> Settings:
    """Ask for the cluster's configuration."""
    try:
        return parse_settings(run_program(["scontrol", "show", "config"]).output)
    except VerbError:
        return Settings()
