"""The verb `slurm`: what is done on the login node of a Slurm cluster, in the place of the nodes themselves.

One node's part of a run is followed and stopped by the files that the login node shares with the node.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from ...protocol.run_paths import RunPaths
from ...protocol.states import FINAL, LOST
from ..logs.lines import LineReader
from ..runtime.stream import Stream, VerbError
from ..slurm.clean import clean
from ..slurm.commands import ENDING, run_program
from ..slurm.queue import check, submit, wait_in_queue
from ..slurm.states import (
    SlurmJob,
    can_requeue,
    describe_loss,
    describe_wait,
    find_job,
    find_jobs,
    is_stale,
    part_of,
    query_jobs,
    query_states,
    resolve,
    states_as_listed,
)
from ..state.run_files import read_spec
from ..state.run_record import read_state
from ..state.workdir import parse_dict, write_atomically
from .follow import RunFollower, answer_clock
from .stop import list_ended, read_ended

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SlurmRequest


CANCEL_INTERVAL = 0.5  # seconds between questions whether a job has ended by itself
QUESTION_INTERVAL = 20.0  # seconds between two questions to Slurm while no task gives a sign of life
POLL_INTERVAL = 0.1
SPARE_TIME = 15.0  # seconds beyond the grace: files arrive late, and memory is released


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


def follow(request: Any, stream: Stream) -> None:
    """Send what there is, then what comes, until this part has ended or the client is gone."""
    if request.get("clock"):
        answer_clock(stream)
    job = find_job(request["workdir"], request["run"])
    rundir = part_of(job, request["node"])
    if rundir is None:
        raise VerbError("CC-RUN-011", f"no run {request['run']} on {request['node']} in {request['workdir']}")
    PartFollower(job, rundir, request, stream).run()


class PartFollower(RunFollower):
    """One node's part; what it wrote and Slurm show whether it is over."""

    def __init__(self, job: SlurmJob, rundir: str, request: Any, stream: Stream) -> None:
        super().__init__(rundir, request, stream)
        self._job = job
        self._asked_at = float("-inf")

    def _resolve_state(self) -> Optional[Any]:
        now = time.monotonic()
        wants_answer = os.path.exists(self._job.files.ended) or is_stale(self._job.files)
        if not self._job.over and wants_answer and now - self._asked_at > QUESTION_INTERVAL:
            self._asked_at = now
            self._job = query_jobs([self._job])[0]
        return resolve(self._rundir, self._job)

    def _is_lingering(self, state: Any) -> bool:
        """Whether this part has ended, and the record of the whole end is still to come."""
        if state["state"] == LOST and describe_loss(self._rundir, self._job):
            return False  # nothing more is recorded there
        return bool(state.get("gang") is True and not state.get("gang_done") and not self._job.over)


def stop(request: Any, stream: Stream) -> None:
    """Leave the order, wait for the end of the part, and report what its agent ended."""
    job = find_job(request["workdir"], request["run"])
    rundir = part_of(job, request["node"])
    if rundir is None:
        stream.answer({"stopped": {"ended": [], "left": [], "state": None}})
        return
    paths, state, spec = RunPaths(rundir), read_state(rundir), read_spec(rundir)
    reader = LineReader(paths.events, os.path.getsize(paths.events) if os.path.exists(paths.events) else 0)
    lived = state is not None and state["state"] not in FINAL
    if lived:
        order = {"grace": request.get("grace"), "reason": request.get("reason")}
        write_atomically(paths.stop_request, json.dumps(order).encode("utf-8"))
    grace = float(spec["grace"] if spec else 0.0) if request.get("grace") is None else request["grace"]
    deadline = time.monotonic() + grace + SPARE_TIME
    while lived and time.monotonic() < deadline:
        state = read_state(rundir)
        if state is None or state["state"] in FINAL:
            break
        if stream.beat() and query_jobs([job])[0].over:
            break
        time.sleep(POLL_INTERVAL)
    ended = [one for line in reader.read()[1].splitlines() for one in read_ended(parse_dict(line) or {})]
    final = resolve(rundir, query_jobs([job])[0])
    if final is not None:
        ended = list_ended(final, {}, ended, [], "torchrun" if spec and spec.get("module") else "launcher")
    stream.answer({"stopped": {"ended": ended, "left": [], "state": final}})
