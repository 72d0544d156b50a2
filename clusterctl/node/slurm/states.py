"""The states of a run's parts as the login node can read them: from the shared folder, and from Slurm.

The agents write their states; no process of theirs is here. A part that did not end while the job is over has lost
its agent. Before the first part there is one in its place, named after the job's number.

Slurm stops a job to run another (preemption), when a node fails, or by `scontrol requeue`, and puts it back into the
queue with the same number. Every start is an attempt of the same run. The agents have recorded the end of theirs by
then, or are gone. In the queue the run is shown as SUBMITTED with the next attempt; its tasks then put the records of
the old start aside, each on its node.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, cast

from ...protocol.reasons import REQUEUED, STOP, STOPPED_BY_SLURM, TIME
from ...protocol.run_paths import ATTEMPT, RunPaths, WorkdirPaths, is_meant, part_name
from ...protocol.states import FAILED_SETUP, FINAL, LOST, PREPARING, STOPPED, SUCCEEDED, TIMEOUT
from ...protocol.untrusted import Untrusted
from ..runtime.stream import VerbError
from ..state.run_record import new_state, read_state, with_record, with_stop
from ..state.workdir import component, make_below, make_private, read_json
from .commands import ENDING, QueuedJob, query_queue, query_settings
from .job_files import PART, JobFiles, list_folder, newest_beat, newest_start, read_object

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptRecord, State
    from ...protocol.messages.verbs import SubmittedTemplate
    from .spec import Member


SILENT_AFTER = 15.0  # seconds without a sign of life of a task, of which there is one every 5 s
MAX_PARTS = 20_000  # of a gang's record
EARLIER = "earlier"  # the folder of parts whose nodes Slurm did not give again
TEMPORARY_FAILURE = 75  # of a task that Slurm has stopped: the job may start again (EX_TEMPFAIL)
STALE_AFTER = 45.0  # seconds without a sign of life; network file systems show one late


class SlurmJob(NamedTuple):
    """A run's job, and what is known of it; `queued` is None where Slurm was not asked or did not answer."""

    files: JobFiles
    number: str
    queued: Optional[QueuedJob] = None
    over: str = ""  # why nothing of it runs any more
    cluster: str = ""  # Slurm's name of its cluster, of a run that has it on record
    elsewhere: bool = False  # it is of another cluster than this login node, which knows nothing of it


def find_jobs(workdir: str, run_prefix: Optional[str]) -> Iterator[SlurmJob]:
    """Yield the jobs of the runs that a prefix or a short id means."""
    for run_id in list_folder(WorkdirPaths(workdir).runs):
        if not run_prefix or is_meant(run_id, run_prefix):
            job = read_job(JobFiles(WorkdirPaths(workdir).run(run_id, PART)))
            if job.number.isdecimal():
                yield job


def read_job(files: JobFiles) -> SlurmJob:
    """Read which job a run is."""
    job = read_object(files.job)
    return SlurmJob(files, job.text("job", 20), cluster=job.text("cluster", 200))


def find_job(workdir: str, run_id: str) -> SlurmJob:
    """Return the job of one run; VerbError if there is none."""
    workdir = os.path.realpath(os.path.expanduser(workdir))
    job = read_job(JobFiles(WorkdirPaths(workdir).run(component(run_id), PART)))
    if not job.number.isdecimal():
        raise VerbError("CC-RUN-011", f"no run {run_id} in {workdir}")
    return job


def query_jobs(jobs: List[SlurmJob]) -> List[SlurmJob]:
    """Add what Slurm knows of the jobs that may not be over, by one query for all; the others lose their secrets."""
    asked = {job.files.folder: job for job in query_states([job for job in jobs if not is_finished(job)])}
    judged = [asked.get(job.files.folder, job) for job in jobs]
    for job in judged:
        if job.over or job.files.folder not in asked:
            job.files.remove_secrets()  # a job that never started properly has left them
    return judged


def query_states(jobs: List[SlurmJob]) -> List[SlurmJob]:
    """Add what Slurm knows of jobs.

    Login nodes of several clusters may share a work directory, and numbers of jobs repeat: one that is not known here,
    or has another name, is judged only if it is known to be of this cluster.
    """
    queue, own = query_with_cluster(jobs)
    return [judge(job, queue, own) for job in jobs]


def query_with_cluster(jobs: List[SlurmJob]) -> Tuple[Optional[Dict[str, QueuedJob]], str]:
    """Return what Slurm knows of jobs, None if it does not answer, and its cluster's name where that is needed."""
    queue, own = query_queue(job.number for job in jobs), ""
    if queue is not None and any(job.cluster and not is_known(job, queue) for job in jobs):
        own = query_settings().cluster
        queue = queue if own else None
    return queue, own


def is_known(job: SlurmJob, queue: Dict[str, QueuedJob]) -> bool:
    """Whether this cluster has the job of this run."""
    return job.number in queue and queue[job.number].name == job.files.run_id


def parts_of_newest_start(files: JobFiles, paths: List[str]) -> List[str]:
    """Leave out parts of an earlier start: until the newest one has made its own, they show an attempt that is over."""
    start = newest_start(files)
    if not start or start.endswith(".0"):
        return paths  # there was no earlier one
    begun = list_folder(start)
    return [path for path in paths if f"part.{os.path.basename(path).partition('-')[0]}" in begun]


def is_finished(job: SlurmJob) -> bool:
    """Whether every part has recorded its end, so that Slurm has nothing to add but that it starts the job again."""
    parts = parts_of_newest_start(job.files, job.files.part_folders())
    states = [state for state in map(read_state, parts) if state is not None]
    return (
        bool(states)
        and len(states) >= states[0]["nnodes"]
        and all(state["state"] in FINAL for state in states)
        and not may_be_put_back(job, states)
    )


def can_requeue(files: JobFiles) -> bool:
    """Whether Slurm may start the job again."""
    return read_object(files.template).flag("requeue")


def awaits_next_start(job: SlurmJob, states: List[Any]) -> bool:
    """Whether these parts are of a start that Slurm has ended, and the job waits for its next one or begins it."""
    if job.over or job.queued is None or not states:
        return False
    return job.queued.is_pending or (job.queued.state != ENDING and were_stopped(job, states))


def is_being_stopped(job: SlurmJob, states: List[Any]) -> bool:
    """Whether Slurm still ends the processes of a start, after which the job may be back in the queue."""
    over = all(state["state"] in FINAL for state in states)
    return job.queued is not None and job.queued.state == ENDING and over and may_be_put_back(job, states)


def may_be_put_back(job: SlurmJob, states: List[Any]) -> bool:
    """Whether Slurm may have ended these parts to start the job again.

    Its signal reaches the ranks too, so that a part may have FAILED by it; but its script has not come to its end.
    """
    failed = any(state["state"] != SUCCEEDED for state in states)
    return failed and not os.path.exists(job.files.ended) and can_requeue(job.files)


def were_stopped(job: SlurmJob, states: List[Any]) -> bool:
    """Whether Slurm has ended these parts and may start the job again."""
    over = all(state["state"] in FINAL for state in states) and any(map(was_stopped_by_slurm, states))
    return over and can_requeue(job.files)


def judge(job: SlurmJob, queue: Optional[Dict[str, QueuedJob]], own: str = "") -> SlurmJob:
    """Decide whether a job is over; where Slurm does not answer, what the job itself wrote counts.

    `own` is the name of the cluster that was asked, needed for jobs that are not known there.
    """
    if queue is not None and job.cluster and job.cluster != own and not is_known(job, queue):
        job, queue = job._replace(elsewhere=True), None
    queued = queue.get(job.number) if queue is not None else None
    if queued is not None and queued.is_over:
        return job._replace(queued=queued, over=queued.state)
    if os.path.exists(job.files.ended) and not (queued is not None and queued.is_pending):
        return job._replace(queued=queued, over="COMPLETED")
    if queue is not None and queued is None:
        return job._replace(over="forgotten")
    return job._replace(queued=queued)


def is_stale(files: JobFiles) -> bool:
    """Whether no task has given a sign of life for a while: then Slurm is to be asked."""
    age = newest_beat(files)
    return age is not None and age > STALE_AFTER


def states_of(job: SlurmJob) -> List[Any]:
    """Return the states of all parts of a run, or of the one in their place while there is none."""
    paths = job.files.part_folders()
    current = parts_of_newest_start(job.files, paths)
    states = [state for path in current for state in [resolve(path, job)] if state is not None]
    if states and not awaits_next_start(job, states):
        return states
    earlier = states or [state for state in map(read_state, paths) if state is not None]
    return [placeholder(job, sorted(earlier, key=lambda state: state["attempt"]))]


def resolve(rundir: str, job: SlurmJob) -> Optional[Any]:
    """Return the state of one part: as recorded, or how it ended if nothing can be running."""
    state = read_state(rundir)
    if state is None or state["state"] in FINAL:
        return with_record(rundir, state) if state is not None else None
    is_pending = job.queued is not None and job.queued.is_pending
    if is_pending or not parts_of_newest_start(job.files, [rundir]):
        # its agent did not outlive the end of that start
        put_back: Any = {
            "state": LOST,
            "reason": f"{STOPPED_BY_SLURM}: job {job.number} is back in the queue",
        }
        return with_record(rundir, {**state, **put_back})
    if not job.over:
        why = describe_loss(rundir, job)
        lost: Any = {**state, "state": LOST, "reason": why}
        return lost if why else with_stop(rundir, state)
    ended: Any = {**state, **infer_end(job, lost=True)}
    return with_record(rundir, ended)


def describe_loss(rundir: str, job: SlurmJob) -> str:
    """Return why the other nodes lost this one, if its task is silent too; Slurm itself may take minutes to notice."""
    paths = RunPaths(rundir)
    slot = os.path.basename(rundir).partition("-")[0]
    age = newest_beat(job.files, int(slot)) if slot.isdecimal() else None
    if age is None or age < SILENT_AFTER:
        return ""
    for other in job.files.part_folders():
        for part in read_object(RunPaths(other).gang_record).records("parts", MAX_PARTS):
            if part.text("state", 40) == LOST and part.text("node", 128) == paths.node:
                return part.text("reason", 300) or "the other nodes lost it"
    return ""


def infer_end(job: SlurmJob, *, lost: bool) -> Dict[str, Any]:
    """Return how a part ended whose end is not recorded."""
    ended = {"CANCELLED": (STOPPED, STOP), "TIMEOUT": (TIMEOUT, TIME), "DEADLINE": (TIMEOUT, TIME)}
    state, kind = ended.get(job.over) or (LOST if lost else FAILED_SETUP, "")
    return {"state": state, "reason": describe_end(job), "stop_kind": kind}


def describe_end(job: SlurmJob) -> str:
    """Return why a job is over, as its tasks or Slurm reported it."""
    failure = first_failure(job.files)
    if failure:
        return failure
    if job.over == "forgotten":
        return f"Slurm no longer knows job {job.number}"
    if job.over == "COMPLETED":
        tail = last_output(job.files)
        why = f": {tail}" if tail else ""
        return f"Slurm job {job.number} ended before all nodes had written their final state{why}"
    # of a cancelled job Slurm keeps why it waited
    reason = job.queued.reason if job.queued is not None and job.over != "CANCELLED" else ""
    return f"Slurm job {job.number}: {job.over}{f' ({reason})' if reason else ''}"


def first_failure(files: JobFiles) -> str:
    """Return what the first task wrote that could not start, all of them if no node is named; empty if none did."""
    message = read_object(os.path.join(newest_start(files), "failed"))
    node, text = message.text("node", 128), message.text("text", 1000)
    return f"{node}: {text}" if node else text


def last_output(files: JobFiles) -> str:
    """Return the last line that srun or the batch script printed."""
    try:
        with open(files.output, "rb") as source:
            lines = source.read()[-4096:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def placeholder(job: SlurmJob, old_states: Sequence[Any] = ()) -> Any:
    """Make a state for a run of which no node has begun: it waits, begins, or was ended in the queue.

    `old_states` are those of its parts where Slurm has put it back into the queue.
    """
    template = cast("SubmittedTemplate", read_json(job.files.template) or {})
    spec: Any = {**(template.get("spec") or {}), "node": f"slurm-{job.number}", "node_rank": 0}
    if old_states:
        earlier = earlier_of(old_states[0], job.number)
        spec.update({"attempt": earlier.attempt + 1, "earlier": earlier.attempts})
    state: Any = {**new_state(spec), "since": spec.get("submitted") or 0.0, "queue": queue_facts(job)}
    if job.over:
        return {**state, **infer_end(job, lost=False)}
    if job.queued is not None and not job.queued.is_pending:
        return {**state, "state": PREPARING, "reason": f"starting on {job.queued.nodes}"}
    return {**state, "reason": describe_wait(job)}


def describe_wait(job: SlurmJob) -> str:
    """Return why a job waits."""
    if job.elsewhere:
        return f"Slurm job {job.number} belongs to the Slurm cluster {job.cluster}, not to that of this login node"
    reason = job.queued.reason if job.queued is not None else ""
    return f"Slurm job {job.number} waits in the queue{f': {reason}' if reason else ''}"


def queue_facts(job: SlurmJob) -> Dict[str, Any]:
    """Return what the client shows of a job."""
    queued = job.queued
    facts = queued._asdict() if queued is not None else {"state": ""}
    return {**facts, "job": job.number, "over": job.over}


def part_of(job: SlurmJob, node: str) -> Optional[str]:
    """Find the directory of a node's part."""
    for path in job.files.part_folders():
        if RunPaths(path).node == node:
            return path
    return None


def states_as_listed(jobs: List[SlurmJob], limit: Optional[int]) -> List[Any]:
    """Return the parts of the newest runs, each with the number of its job."""
    listed = [[{**state, "slurm_job": job.number} for state in states_of(job)] for job in jobs]
    listed.sort(key=lambda states: Untrusted(states[0]).moment("submitted") or 0.0, reverse=True)
    return [state for states in listed[:limit] for state in states]


class Earlier(NamedTuple):
    """What is known of earlier starts: the number of their last attempt, 0 without one, and all that have ended."""

    attempt: int
    attempts: List[AttemptRecord]


def was_stopped_by_slurm(state: State) -> bool:
    """Whether this part ended by Slurm's own signal."""
    return state["state"] in FINAL and STOPPED_BY_SLURM in state["reason"]


def read_earlier(files: JobFiles, own: str, number: str) -> Earlier:
    """Read of a part's own directory, or of the first one, which attempts there were before this start."""
    paths = files.part_folders()
    chosen = os.path.join(files.run_folder, own)
    for path in [chosen] if chosen in paths else paths[:1]:
        state = read_state(path)
        if state is not None:
            return earlier_of(state, number, own=path == chosen)
    return Earlier(0, [])


def earlier_of(state: State, number: str, *, own: bool = True) -> Earlier:
    """Return the attempts up to the one that Slurm has ended; ranks and files only of a part's own."""
    attempts = [*(state.get("attempts") or []), interrupted_attempt(state, number)]
    if not own:
        attempts = [cast("AttemptRecord", {**one, "ranks": {}}) for one in attempts]
    return Earlier(state["attempt"], attempts)


def interrupted_attempt(state: State, number: str) -> AttemptRecord:
    """Record the attempt that was under way when Slurm took the nodes away."""
    return {
        "attempt": state["attempt"],
        "began": state["began"],
        "ended": state["since"] if state["state"] in FINAL else None,
        "node_rank": state["node_rank"],
        "state": state["state"],
        "reason": state["reason"],
        "cause_reason": REQUEUED,
        "node": state["node"],
        "text": f"Slurm stopped job {number} and put it back into the queue",
        "progress": None,
        "ranks": state["ranks"],
    }


def archive_old_parts(files: JobFiles, key: str, own: Member, members: List[Member]) -> None:
    """Move the records of the old start away: a part's own beside its logs, by node 0 those of nodes that are gone."""
    rundir = os.path.join(files.run_folder, part_name(own.slot, own.node))
    state = read_state(rundir)
    if state is not None:
        keep_with_attempt(rundir, state["attempt"])
    if own.slot != 0:
        return
    current = {part_name(member.slot, member.node) for member in members}
    for path in files.part_folders():
        if os.path.basename(path) not in current:
            folder = make_below(make_private(os.path.join(files.folder, EARLIER)), key)
            with suppress(OSError):
                os.rename(path, os.path.join(folder, os.path.basename(path)))


def keep_with_attempt(rundir: str, attempt: int) -> None:
    """Move what an agent wrote to the folder of its last attempt, so that the next agent begins without it."""
    paths = RunPaths(rundir)
    folder = make_below(rundir, f"{ATTEMPT}{attempt}")
    for path in (
        paths.spec,
        paths.events,
        paths.gang_record,
        paths.stop_request,
        paths.agent_log,
        paths.state,
    ):
        with suppress(FileNotFoundError):
            os.rename(path, os.path.join(folder, os.path.basename(path)))
