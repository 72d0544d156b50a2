"""The verb `slurm`: what is done on the login node of a Slurm cluster, in the place of the nodes themselves."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict

from ..runtime.stream import Stream, VerbError
from ..slurm.clean import clean
from ..slurm.commands import ENDING, run_program
from ..slurm.part import follow, stop
from ..slurm.queue import check, submit, wait_in_queue
from ..slurm.states import (
    can_requeue,
    describe_wait,
    find_job,
    find_jobs,
    query_jobs,
    query_states,
    states_as_listed,
)

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SlurmRequest

CANCEL_INTERVAL = 0.5  # seconds between questions whether a job has ended by itself


def run(request: SlurmRequest, stream: Stream) -> None:
    """Do what the request names."""
    actions: Dict[str, Callable[[Any, Stream], None]] = {
        "submit": submit,
        "check": check,
        "ps": list_runs,
        "queue": wait_in_queue,
        "follow": follow,
        "stop": stop,
        "cancel": cancel,
        "clean": clean,
    }
    actions[request["do"]](request, stream)


def list_runs(request: Any, stream: Stream) -> None:
    """Answer as `ps` does, with the parts of all nodes."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    jobs = query_jobs(list(find_jobs(workdir, request.get("run"))))
    stream.answer({"runs": states_as_listed(jobs, request.get("limit")), "time": time.time()})


def cancel(request: Any, stream: Stream) -> None:
    """Take a job out of Slurm, unless it ends by itself in a moment; answers whether it had to be."""
    job, deadline = find_job(request["workdir"], request["run"]), time.monotonic() + request["timeout"]
    while True:
        (job,) = query_states([job])  # also where all parts have recorded their end
        if job.elsewhere and not job.over:
            raise VerbError("CC-SLURM-010", describe_wait(job))
        if job.over or time.monotonic() >= deadline:
            break
        time.sleep(CANCEL_INTERVAL)
    is_ending = job.queued is not None and job.queued.state == ENDING
    if not job.over and (
        not is_ending or can_requeue(job.files)
    ):  # it may be about to go back into the queue
        done = run_program(["scancel", job.number])
        if done.status != 0 and not is_ending and "nvalid job id" not in done.error:
            raise VerbError("CC-SLURM-006", done.error or f"scancel ended with status {done.status}")
        job.files.remove_secrets()
        stream.answer({"cancelled": {"job": job.number}})
        return
    job.files.remove_secrets()
    stream.answer({"cancelled": {"job": ""}})
