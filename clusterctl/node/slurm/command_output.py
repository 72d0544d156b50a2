"""What Slurm's own programs print, read within bounds; pure.

Only formats that are the same from 20.11 to 26.05 are read: `squeue -o` with fields of our choice, a line of `sbatch
--parsable`, and two of `scontrol show config`. The JSON of squeue changed with most versions.
"""

from __future__ import annotations

import re
import time
from typing import Dict, List, NamedTuple, Optional

# number, state, start (expected or real), nodes, name, reason: the last may hold anything
QUEUE_FORMAT = "%i|%T|%S|%N|%j|%r"
NAME_FORMAT = "%j|%i"
MOST_OUTPUT = 4 << 20  # characters
MOST_JOBS = 10_000
LONGEST_FIELD = 300
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
    for line in reversed(text[-MOST_OUTPUT:].splitlines()):
        number = line.strip().partition(";")[0]
        if _NUMBER.fullmatch(number):
            return number
    return None


def parse_queue(text: str) -> Dict[str, QueuedJob]:
    """Read the lines of `squeue -h -o QUEUE_FORMAT` by the number that sbatch gave; others are passed over.

    Of several parts of a job, such as an array's, one that is not over counts.
    """
    jobs: Dict[str, QueuedJob] = {}
    for line in text[:MOST_OUTPUT].splitlines()[:MOST_JOBS]:
        job = _parse_line(line)
        if job is not None and (job.job not in jobs or jobs[job.job].is_over):
            jobs[job.job] = job
    return jobs


def _parse_line(line: str) -> Optional[QueuedJob]:
    fields: List[str] = [field.strip() for field in line.split("|", 5)]
    number = _JOB.fullmatch(fields[0])
    if len(fields) != 6 or number is None:
        return None
    state, start, nodes, name, reason = (field[:LONGEST_FIELD] for field in fields[1:])
    if not _STATE.fullmatch(state):
        state = UNKNOWN  # Slurm writes ? for one that it has no word for; the job is there all the same
    reason = "" if reason == "None" else reason
    return QueuedJob(number.group(1), state, reason, parse_time(start), nodes, name)


def parse_numbers(text: str) -> Dict[str, str]:
    """Read the lines of `squeue -h -o NAME_FORMAT`: the numbers of jobs by name."""
    found: Dict[str, str] = {}
    for line in text[:MOST_OUTPUT].splitlines()[:MOST_JOBS]:
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
    kill_wait, cluster = _KILL_WAIT.search(text[:MOST_OUTPUT]), _CLUSTER.search(text[:MOST_OUTPUT])
    return Settings(float(kill_wait.group(1)) if kill_wait else None, cluster.group(1) if cluster else "")
