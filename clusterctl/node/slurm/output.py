"""What Slurm's own programs print, read within bounds; pure.

Only formats that are the same from 20.11 to 25.x are read: `squeue -o` with fields of our choice, and the first line
of `sbatch --parsable`. The JSON of squeue changed with most versions.
"""

from __future__ import annotations

import re
import time
from typing import Dict, List, NamedTuple, Optional

# number, state, reason, start (expected or real), nodes; the reason may hold anything but comes before two last fields
QUEUE_FORMAT = "%i|%T|%S|%N|%r"
MOST_OUTPUT = 1 << 20  # bytes
MOST_JOBS = 10_000
LONGEST_FIELD = 300
PENDING_STATES = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
ENDING = "COMPLETING"  # its processes are being ended; then it is over, or waits again
FINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
_NUMBER = re.compile(r"[0-9]{1,18}")
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]{1,6})\s*sec", re.MULTILINE)
_STATE = re.compile(r"[A-Z_]{1,40}")


class QueuedJob(NamedTuple):
    """One job as squeue has it; `start` is in seconds since 1970, expected for one that waits."""

    job: str
    state: str
    reason: str = ""
    start: Optional[float] = None
    nodes: str = ""

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
    """Read the lines of `squeue -h -o QUEUE_FORMAT`; what is none of them is passed over."""
    jobs: Dict[str, QueuedJob] = {}
    for line in text[:MOST_OUTPUT].splitlines()[:MOST_JOBS]:
        job = _parse_line(line)
        if job is not None:
            jobs[job.job] = job
    return jobs


def _parse_line(line: str) -> Optional[QueuedJob]:
    fields: List[str] = [field.strip()[:LONGEST_FIELD] for field in line.split("|", 4)]
    if len(fields) != 5 or not _NUMBER.fullmatch(fields[0]) or not _STATE.fullmatch(fields[1]):
        return None
    number, state, start, nodes, reason = fields
    return QueuedJob(number, state, "" if reason == "None" else reason, parse_time(start), nodes)


def parse_time(text: str) -> Optional[float]:
    """Read a local time such as 2026-11-23T07:00:00; None for N/A, Unknown and anything else."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def parse_kill_wait(text: str) -> Optional[float]:
    """Read `KillWait = 30 sec` in the output of `scontrol show config`."""
    found = _KILL_WAIT.search(text[:MOST_OUTPUT])
    return float(found.group(1)) if found else None
