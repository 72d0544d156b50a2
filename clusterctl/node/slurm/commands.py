"""Runs Slurm's programs on the login node, each within a time limit, and reads what they print within bounds.

Only formats that are the same from 20.11 to 26.05 are read: `squeue -o` with fields of our choice, a line of `sbatch
--parsable`, and two of `scontrol show config`. The JSON of squeue changed with most versions.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from ..runtime.stream import VerbError

COMMAND_LIMIT = 20.0  # seconds; a controller that is busy answers late
SUBMIT_LIMIT = 60.0
MAX_NAMED = 200  # jobs in one question
MAX_ERROR = 2000  # characters of what a program printed
# They change what the programs print, what squeue lists (a job that it leaves out would count as forgotten), and what
# kind of job sbatch makes, where, and whether it waits for its end.
DROPPED_VARIABLES = ("SLURM_TIME_FORMAT", "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT")
DROPPED_PREFIX = "SQUEUE_"
# number, state, start (expected or real), nodes, name, reason: the last may hold anything
QUEUE_FORMAT = "%i|%T|%S|%N|%j|%r"
NAME_FORMAT = "%j|%i"
MAX_OUTPUT = 4 << 20  # characters
MAX_JOBS = 10_000
MAX_FIELD = 300  # characters
PENDING_STATES = (
    *("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
    "EXPEDITING",  # since 25.11: requeued, and first in the queue
)
ENDING = "COMPLETING"  # its processes are being ended; then it is over, or waits again
FINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
UNKNOWN = "UNKNOWN"  # a state that cannot be read: neither waiting nor over
_NUMBER = re.compile(r"[0-9]{1,18}")
# 4711, one element or the rest of an array (4711_3, 4711_[4-9%2], 4711_[...]), one component of a heterogeneous job
_JOB = re.compile(r"([0-9]{1,18})(?:_[0-9]{1,9}|_\[[0-9.,%:-]{1,4096}\]|\+[0-9]{1,9})?")
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]{1,6})\s*sec", re.MULTILINE)
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S{1,200})\s*$", re.MULTILINE)
_STATE = re.compile(r"[A-Z_]{1,40}")


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
    return Finished(done.returncode, output, error.strip()[-MAX_ERROR:])


def query_queue(jobs: Iterable[str]) -> Optional[Dict[str, QueuedJob]]:
    """Ask for the states of jobs, ended ones included as long as Slurm remembers them; None if it does not answer."""
    numbers = list(jobs)
    found: Dict[str, QueuedJob] = {}
    for begin in range(0, len(numbers), MAX_NAMED):
        output = _query(QUEUE_FORMAT, "-j", numbers[begin : begin + MAX_NAMED])
        if output is None:
            return None
        found.update(parse_queue(output))
    return found


def query_numbers(names: Sequence[str]) -> Optional[Dict[str, str]]:
    """Ask for the numbers of jobs by name; None if Slurm does not answer."""
    found: Dict[str, str] = {}
    for begin in range(0, len(names), MAX_NAMED):
        output = _query(NAME_FORMAT, "-n", names[begin : begin + MAX_NAMED])
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
        done.output if len(done.output) <= MAX_OUTPUT else None
    )  # a job that was cut off would count as forgotten


def query_settings() -> Settings:
    """Ask for the cluster's configuration."""
    try:
        return parse_settings(run_program(["scontrol", "show", "config"]).output)
    except VerbError:
        return Settings()


class QueuedJob(NamedTuple):
    """One job as squeue has it; `start` is in seconds since 1970, expected for one that waits; `name` is the run's."""

    job: str
    state: str
    reason: str = ""
    start: Optional[float] = None
    nodes: str = ""
    name: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and nothing will."""
        return self.state in FINAL_STATES

    @property
    def is_pending(self) -> bool:
        """Whether it waits for nodes."""
        return self.state in PENDING_STATES


def parse_submission(text: str) -> Optional[str]:
    """Read the job's number from the output of `sbatch --parsable`, which a site's own messages may precede."""
    for line in reversed(text[-MAX_OUTPUT:].splitlines()):
        number = line.strip().partition(";")[0]
        if _NUMBER.fullmatch(number):
            return number
    return None


def parse_queue(text: str) -> Dict[str, QueuedJob]:
    """Read the lines of `squeue -h -o QUEUE_FORMAT` by the number that sbatch gave; others are passed over.

    Of several parts of a job, such as an array's, one that is not over counts.
    """
    jobs: Dict[str, QueuedJob] = {}
    for line in text[:MAX_OUTPUT].splitlines()[:MAX_JOBS]:
        job = _parse_line(line)
        if job is not None and (job.job not in jobs or jobs[job.job].is_over):
            jobs[job.job] = job
    return jobs


def _parse_line(line: str) -> Optional[QueuedJob]:
    fields: List[str] = [field.strip() for field in line.split("|", 5)]
    number = _JOB.fullmatch(fields[0])
    if len(fields) != 6 or number is None:
        return None
    state, start, nodes, name, reason = (field[:MAX_FIELD] for field in fields[1:])
    if not _STATE.fullmatch(state):
        state = UNKNOWN  # Slurm writes ? for one that it has no word for; the job is there all the same
    reason = "" if reason == "None" else reason
    return QueuedJob(number.group(1), state, reason, parse_time(start), nodes, name)


def parse_numbers(text: str) -> Dict[str, str]:
    """Read the lines of `squeue -h -o NAME_FORMAT`: the numbers of jobs by name."""
    found: Dict[str, str] = {}
    for line in text[:MAX_OUTPUT].splitlines()[:MAX_JOBS]:
        name, _, number = line.strip().rpartition("|")
        if _NUMBER.fullmatch(number):
            found[name] = number
    return found


def parse_time(text: str) -> Optional[float]:
    """Read a local time such as 2026-11-23T07:00:00; None for N/A, Unknown and anything else."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


class Settings(NamedTuple):
    """What is needed of a cluster's configuration; None and empty where that is not known."""

    kill_wait: Optional[float] = None  # seconds between Slurm's SIGTERM and SIGKILL
    cluster: str = ""


def parse_settings(text: str) -> Settings:
    """Read `KillWait = 30 sec` and `ClusterName = hpc` in the output of `scontrol show config`."""
    kill_wait, cluster = _KILL_WAIT.search(text[:MAX_OUTPUT]), _CLUSTER.search(text[:MAX_OUTPUT])
    return Settings(float(kill_wait.group(1)) if kill_wait else None, cluster.group(1) if cluster else "")
