"""Follows one node's part of a run from the login node, by the files that it shares with the node."""

from __future__ import annotations

import time
from typing import Any, Optional

from ...protocol.states import LOST
from ..runtime.stream import Stream, VerbError
from ..verbs.follow import RunFollower, answer_clock
from .states import SlurmJob, describe_loss, find_job, is_stale, part_of, query_jobs, resolve

QUESTION_INTERVAL = 20.0  # seconds between two questions to Slurm while no task gives a sign of life


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
        import os

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
