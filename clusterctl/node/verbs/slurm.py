"""The verb `slurm`: what is done on the login node of a Slurm cluster, in the place of the nodes themselves."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict

from ...protocol.states import SUBMITTED
from ..runtime.stream import Stream, VerbError
from ..slurm.clean import clean
from ..slurm.commands import query_queue, run_program
from ..slurm.follow import follow
from ..slurm.states import (
    find_job,
    find_jobs,
    judge,
    placeholder,
    query_jobs,
    queue_facts,
    states_as_listed,
)
from ..slurm.stop import stop
from ..slurm.submit import submit

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SlurmRequest

BEAT_INTERVAL = 2.0
LOOK_INTERVAL = 0.2  # seconds between looks at the folder
FIRST_QUESTIONS, LONGEST_PAUSE = 10, 30.0  # squeue is asked every second at first, then less and less often
CANCEL_INTERVAL = 0.5  # seconds between questions whether a job has ended by itself


def run(request: SlurmRequest, stream: Stream) -> None:
    """Do what the request names."""
    actions: Dict[str, Callable[[Any, Stream], None]] = {
        "submit": submit,
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


def wait_in_queue(request: Any, stream: Stream) -> None:
    """Report how a job waits, until all its nodes have begun or it is over."""
    asked, next_question, shown = 0, 0.0, None
    job, last_sent = find_job(request["workdir"], request["run"]), time.monotonic()
    while True:
        for _ in stream.read_available():
            pass
        if stream.ended:
            return
        now = time.monotonic()
        begun = len(job.files.part_folders()) >= request["count"]
        if begun or now >= next_question:
            job = query_jobs([job])[0]
            asked += 1
            next_question = now + (1.0 if asked < FIRST_QUESTIONS else min(LONGEST_PAUSE, asked - 8.0))
        state = placeholder(job)
        facts: Any = {**queue_facts(job), "waits": state["state"] == SUBMITTED, "reason": state["reason"]}
        if facts != shown or begun or job.over:
            shown, last_sent = facts, now
            facts_now: Any = {**facts, "begun": begun}
            stream.answer({"queue": facts_now})
        if begun or job.over:
            return
        if now - last_sent > BEAT_INTERVAL:
            last_sent = now
            stream.answer({"beat": int(now)})
        time.sleep(LOOK_INTERVAL)


def cancel(request: Any, stream: Stream) -> None:
    """Take a job out of Slurm, unless it ends by itself in a moment; answers whether it had to be."""
    job, deadline = find_job(request["workdir"], request["run"]), time.monotonic() + request["timeout"]
    while True:
        job = judge(job, query_queue([job.number]))  # also where all parts have recorded their end
        if job.over or time.monotonic() >= deadline:
            break
        time.sleep(CANCEL_INTERVAL)
    queued = job.queued
    if not job.over and not (queued is not None and queued.state == "COMPLETING"):
        done = run_program(["scancel", job.number])
        if done.status != 0 and "nvalid job id" not in done.error:
            raise VerbError("CC-SLURM-006", done.error or f"scancel ended with status {done.status}")
        job.files.remove_secrets()
        stream.answer({"cancelled": {"job": job.number}})
        return
    job.files.remove_secrets()
    stream.answer({"cancelled": {"job": ""}})
