"""Removes runs from the folder that the login node and all nodes share: each as a whole, once its Slurm job is over.

The conversation is that of `clean`, see node/verbs/clean.py. One entry stands for all parts of a run.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ...protocol.run_paths import WorkdirPaths
from ...protocol.states import LIVE, NOT_SUCCEEDED, SUCCEEDED
from ..runtime.stream import Stream, VerbError
from ..verbs.clean import Cleaner, has_processes, serve
from .commands import query_numbers
from .job_files import PART, JobFiles, list_folder, newest_beat, read_object
from .states import STALE_AFTER, SlurmJob, describe_wait, judge, query_with_cluster, read_job, states_of

if TYPE_CHECKING:
    from ...protocol.messages.stored import CleanReport, Removal, StoredRun
    from ...protocol.messages.verbs import CleanRequest
    from .commands import QueuedJob

SUBMISSION = 600.0  # seconds after which a launch that has written no number is over; it has 90
CONTENT_PLACE = 3  # of a TreeEntry
MAX_FILES = 100_000
BY_SEVERITY = (*LIVE, *NOT_SUCCEEDED, SUCCEEDED)


def clean(request: Any, stream: Stream) -> None:
    """Serve one client."""
    serve(request, stream, SlurmCleaner)


class SlurmCleaner(Cleaner):
    """What can be removed of a work directory whose runs Slurm has started; the login node reports for all nodes."""

    def __init__(self, workdir: str, request: CleanRequest, step: Callable[[], None]) -> None:
        super().__init__(workdir, request, step)
        self._jobs: Dict[str, SlurmJob] = {}  # by folder, as Slurm reported them last

    def list_runs(self, tags: Set[str]) -> List[StoredRun]:
        """Describe every run, all of its parts together."""
        self._jobs = find_jobs_of_runs(self.workdir)
        return [self._describe_job(job, tags) for job in self._jobs.values()]

    def remove(self, request: Removal) -> CleanReport:
        """Remove the runs that are named: Slurm is asked again, and once for all."""
        self._jobs = find_jobs_of_runs(self.workdir)
        return super().remove(request)

    def remove_run(self, rundir: str, tags: Set[str]) -> int:
        """Take a run with all its parts out of sight."""
        job = self._jobs.get(rundir)
        if job is None:
            raise VerbError("CC-CLEAN-002", "it is not a run of this Slurm cluster")
        return self.remove_described(self._describe_job(job, tags), job.files.run_folder)

    def may_need_payload(self) -> bool:
        """Whether a job waits or runs: it starts with the payload of its launch."""
        return not all(job.over for job in self._jobs.values())

    def _contents(self) -> Iterator[Tuple[str, int]]:
        """Yield stored contents that have not been used for long, but those of which a job makes its environment."""
        waiting = [job.files for job in self._jobs.values() if not job.over]
        needed = {content for files in waiting for content in setup_contents(files)}
        for path, size in super()._contents():
            if os.path.basename(path) not in needed:
                yield path, size

    def _describe_job(self, job: SlurmJob, tags: Set[str]) -> StoredRun:
        blocked = describe_obstacle(job) or has_processes(job.files.part_folders(), tags)
        state = worst_state(job) if job.number else None
        return self.describe(job.files.folder, state, blocked, job.files.run_folder)


def setup_contents(files: JobFiles) -> List[str]:
    """Name the contents of the files that a job's `setup` reads: they stay in the store until the job begins."""
    setup = read_object(files.template).record("spec").record("setup")
    return [row.text(CONTENT_PLACE, 64) for row in setup.rows("rows", MAX_FILES)]


def find_jobs_of_runs(workdir: str) -> Dict[str, SlurmJob]:
    """Return what Slurm knows of every run's job, by its folder; those that are over lose their secrets."""
    paths = WorkdirPaths(workdir)
    folders = [paths.run(run_id, PART) for run_id in sorted(list_folder(paths.runs))]
    jobs = [read_job(JobFiles(folder)) for folder in folders if os.path.isdir(folder)]
    unknown = [job.files.run_id for job in jobs if not job.number.isdecimal()]
    named = query_numbers(unknown)  # of a launch that was killed before it wrote the number
    numbers = {run_id: (named or {}).get(run_id, "") for run_id in unknown}
    jobs = [job._replace(number=numbers.get(job.files.run_id, job.number)) for job in jobs]
    queue, own = query_with_cluster([job for job in jobs if job.number])
    judged = [judge_strictly(job, queue, own) if job.number else judge_unnumbered(job, named) for job in jobs]
    for job in judged:
        if not describe_obstacle(job):
            job.files.remove_secrets()
    return {job.files.folder: job for job in judged}


def judge_strictly(job: SlurmJob, queue: Optional[Dict[str, QueuedJob]], own: str) -> SlurmJob:
    """Decide whether a job is over, for which Slurm's own answer is needed: also a step that ended may start again."""
    if queue is None:
        return job
    judged = judge(job, queue, own)
    lives = judged.elsewhere or (judged.queued is not None and not judged.queued.is_over)
    return judged._replace(over="") if lives else judged


def judge_unnumbered(job: SlurmJob, named: Optional[Dict[str, str]]) -> SlurmJob:
    """Decide whether a launch was given up that has written no number."""
    is_over = named is not None and is_given_up(job.files)
    return job._replace(over="never submitted") if is_over else job


def is_given_up(files: JobFiles) -> bool:
    """Whether the launch that made this folder must have ended."""
    for path in (files.template, files.folder):  # the folder alone looks newer once its secrets are removed
        with suppress(OSError):
            return time.time() - os.stat(path).st_mtime > SUBMISSION
    return False


def describe_obstacle(job: SlurmJob) -> str:
    """Return why a run must stay whatever its parts have recorded; empty if its job is over."""
    if not job.over:
        if job.elsewhere:
            return describe_wait(job)
        if job.queued is None:
            return "Slurm did not report whether its job has ended"
        return f"Slurm job {job.number} is {job.queued.state}"
    beat = (
        newest_beat(job.files) if job.over == "forgotten" else None
    )  # perhaps another Slurm cluster has the job
    return "one of its tasks is running" if beat is not None and beat < STALE_AFTER else ""


def worst_state(job: SlurmJob) -> Any:
    """Return the state after which the whole run is named."""
    state = min(states_of(job), key=lambda one: severity(one["state"]))
    return {**state, "nnodes": 1}  # the login node has reported all of them


def severity(state: str) -> int:
    """Return the place of a state among all; what is not known may be live."""
    return BY_SEVERITY.index(state) if state in BY_SEVERITY else 0
