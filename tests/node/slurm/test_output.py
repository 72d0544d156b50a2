"""What Slurm's programs print, in the formats that their manuals describe: no line may stop a verb."""

from __future__ import annotations

import time

import pytest

from clusterctl.node.slurm.output import (
    QueuedJob,
    parse_kill_wait,
    parse_queue,
    parse_submission,
    parse_time,
)

EXPECTED = time.mktime((2026, 11, 24, 7, 30, 0, 0, 0, -1))

# Written by hand in the documented format of `squeue -h -t all -o '%i|%T|%S|%N|%r'`, not recorded on a cluster; the lab
# test reads the output of a real Slurm.
QUEUE = """\
4711|PENDING|2026-11-24T07:30:00||Resources
4712|PENDING|N/A||(ReqNodeNotAvail, UnavailableNodes:gpu[01-04])
4713|RUNNING|2026-11-24T07:30:00|gpu[01-03]|None
4714|CANCELLED|2026-11-24T07:30:00||None
4715|NODE_FAIL|2026-11-24T07:30:00|gpu01|None
4716|PENDING|N/A||a | b
4717_3|RUNNING|N/A|gpu01|None
slurm_load_jobs error: Unable to contact slurm controller
4718|running|N/A|gpu01|None
|||||
"""


def test_a_queue_is_read() -> None:
    """Each whole line is a job; arrays, messages and damaged lines are passed over."""
    jobs = parse_queue(QUEUE)

    assert list(jobs) == ["4711", "4712", "4713", "4714", "4715", "4716"]
    assert jobs["4711"] == QueuedJob("4711", "PENDING", "Resources", EXPECTED, "")
    assert jobs["4712"].reason == "(ReqNodeNotAvail, UnavailableNodes:gpu[01-04])"
    assert jobs["4716"].reason == "a | b"
    assert [job for job, queued in jobs.items() if queued.is_pending] == ["4711", "4712", "4716"]
    assert [job for job, queued in jobs.items() if queued.is_over] == ["4714", "4715"]
    assert jobs["4713"].nodes == "gpu[01-03]"


@pytest.mark.parametrize("text", ["", "\n" * 100_000, "|" * 2_000_000, "1|" + "A" * 5_000_000 + "|||"])
def test_damaged_output_holds_no_job(text: str) -> None:
    """However long it is."""
    assert parse_queue(text) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4711\n", "4711"),
        ("4711;cluster2\n", "4711"),  # a federation
        ("sbatch: lua: job is charged to cs-ml\n4711\n", "4711"),
        ("", None),
        ("Submitted batch job 4711\n", None),  # without --parsable
    ],
)
def test_the_number_of_a_job_is_read(text: str, number: str | None) -> None:
    """Sites let sbatch print messages of their own."""
    assert parse_submission(text) == number


@pytest.mark.parametrize("text", ["N/A", "Unknown", "", "2026-13-01T00:00:00", "99999-01-01T00:00:00"])
def test_a_time_that_is_none(text: str) -> None:
    """As Slurm writes it where it does not know."""
    assert parse_time(text) is None


def test_kill_wait_is_read() -> None:
    """From the configuration as scontrol shows it."""
    assert parse_kill_wait("KillOnBadExit           = 0\nKillWait                = 30 sec\n") == 30.0
    assert parse_kill_wait("slurm_load_ctl_conf error") is None
