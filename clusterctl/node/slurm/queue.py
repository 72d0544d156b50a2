"""From the submission of a job through the queue to its workers, as the login node sees it.

`submit` writes the job's folder and calls sbatch, `report_queue` reports to a client that waits. `check` submits a job
that gathers facts, and perhaps runs a test job on its nodes (`check --deep`), and takes it out of Slurm again when they
have come or the client is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Set, cast

from ...protocol.run_paths import WorkdirPaths
from ...protocol.states import SUBMITTED
from ...protocol.untrusted import Untrusted
from ..runtime.stream import Stream, VerbError
from ..state.payload import ensure_payload, with_byte_code
from ..state.workdir import (
    make_below,
    make_private,
    open_workdir,
    read_json,
    workdir_id,
    write_atomically,
    write_new,
)
from .commands import SUBMIT_LIMIT, parse_submission, query_settings, run_program
from .job_files import PART, JobFiles, list_folder, newest_start, read_object, write_object
from .states import (
    SlurmJob,
    can_requeue,
    find_job,
    is_being_stopped,
    placeholder,
    query_states,
    queue_facts,
    read_job,
    states_of,
)

if TYPE_CHECKING:
    from ...protocol.messages.allocation import NodeFacts
    from ...protocol.messages.verbs import (
        QueueRequest,
        SubmitRequest,
        SubmittedSecrets,
        SubmittedTemplate,
    )

LOOK_INTERVAL = 0.2  # seconds between looks at the folder
FIRST_QUESTIONS, MAX_PAUSE = 10, 30.0  # squeue is asked every second at first, then less and less often
MAX_ADDRESSES = 64
CANCEL_LIMIT = 5.0  # seconds; the client waits 90 for all of a submission
REMOVAL_TRIES = 10


class Start(NamedTuple):
    """What the tasks of the newest start of a job have left in their folder: the names of their messages."""

    folder: str
    names: Set[str]

    def count_files(self, kind: str) -> int:
        """Count the tasks that have left this message."""
        return sum(name.startswith(f"{kind}.") and name.rpartition(".")[2].isdecimal() for name in self.names)

    def read(self, name: str) -> Untrusted:
        """Read a message; an empty one where there is none."""
        return read_object(os.path.join(self.folder, name)) if name in self.names else Untrusted({})

    def read_step(self) -> str:
        """Return the command of `setup` or `before` that the first node runs that is not ready."""
        waiting = sorted(name for name in self.names if name.startswith("doing."))
        for name in waiting:
            if name.replace("doing.", "ready.") not in self.names:
                message = self.read(name)
                return f"{message.text('node', 128)}: {message.text('text', 1000)}"
        return ""


def read_newest_start(files: JobFiles) -> Start:
    """Look at the newest start of a job."""
    folder = newest_start(files)
    return Start(folder, set(list_folder(folder)) if folder else set())


def submit(request: SubmitRequest, stream: Stream) -> None:
    """Write what the tasks need, hand the job to Slurm, and answer with its number."""
    files = submit_job(request, stream)
    stream.answer({"submitted": {"job": read_job(files).number}})


def submit_job(request: SubmitRequest, stream: Stream) -> JobFiles:
    """Write what the tasks need and hand the job to Slurm; its number is recorded in its folder."""
    workdir = open_workdir(request["workdir"])
    workdir_id(workdir)  # makes the mark without which `clean` removes nothing
    payload = with_byte_code(ensure_payload(workdir, request["payload"]["sha256"], stream))
    judge = ""
    if request["judge"] is not None:
        judge = with_byte_code(ensure_payload(workdir, request["judge"]["sha256"], stream, "judge"))
    run_id = request["template"]["spec"]["run"]
    files = JobFiles(make_below(make_private(WorkdirPaths(workdir).runs), run_id, PART))
    settings = query_settings()
    template: SubmittedTemplate = {**request["template"], "kill_wait": settings.kill_wait, "judge": judge}
    write_object(files.template, template)
    secrets: SubmittedSecrets = {"secrets": request["secrets"], "token": request["token"]}
    write_new(files.secrets, json.dumps(secrets).encode("utf-8"))  # mode 0600
    try:
        write_atomically(files.script, request["script"].encode("utf-8"))
        number = call_sbatch(request["options"], files, payload)
        write_object(files.job, {"job": number, "cluster": settings.cluster})
    except BaseException:
        # It never was a run. Slurm may have taken the job of an sbatch that timed out: without its folder the batch
        # script ends at once.
        shutil.rmtree(files.run_folder, ignore_errors=True)
        raise
    return files


def call_sbatch(options: List[str], files: JobFiles, payload: str) -> str:
    """Submit the job and give its number; VerbError if Slurm does not take it."""
    own = [f"--chdir={files.folder}", f"--output={files.output}"]
    argv = ["sbatch", "--parsable", *options, *own, files.script, files.folder, payload]
    try:
        done = run_program(argv, SUBMIT_LIMIT)
    except VerbError:
        with suppress(VerbError):  # Slurm may have taken the job, and even started it; its name is the run's
            run_program(["scancel", f"--name={files.run_id}"], CANCEL_LIMIT)
        raise
    number = parse_submission(done.output) if done.status == 0 else None
    if number is None:
        error = "; ".join(filter(None, map(str.strip, done.error.splitlines())))
        raise VerbError("CC-SLURM-005", error or f"sbatch ended with status {done.status}")
    return number


def wait_in_queue(request: QueueRequest, stream: Stream) -> None:
    """Report how a job waits, until all its nodes have begun or it is over."""
    job = find_job(request["workdir"], request["run"])
    template: Any = read_json(job.files.template) or {}
    has_setup = bool(cast("SubmittedTemplate", template).get("spec", {}).get("setup"))

    def has_begun(start: Start) -> bool:
        return start.count_files("part") >= request["count"] and ("go" in start.names or not has_setup)

    report_queue(job, has_begun, stream)


def report_queue(
    job: SlurmJob, has_begun: Callable[[Start], bool], stream: Stream, *, has_parts: bool = True
) -> bool:
    """Report how a job waits whenever that changes, until it has begun or is over; False if the client is gone."""
    asked, next_question, shown, seen = 0, 0.0, None, (False, False)
    requeue, old_start = can_requeue(job.files), ""
    while True:
        for _ in stream.read_available():
            pass
        if stream.ended:
            return False
        now, start = time.monotonic(), read_newest_start(job.files)
        arrived = has_begun(start)
        found = (arrived, os.path.exists(job.files.ended))
        if now >= next_question or found != seen:
            # also one whose parts have all ended
            (job,), seen = query_states([job]), found
            if job.queued is not None and job.queued.is_pending:
                # Slurm has put the job back: its next start has a folder of its own. An answer from before that start
                # does not show its folder.
                old_start = start.folder
            if job.over:
                job.files.remove_secrets()
            asked += 1
            next_question = now + (1.0 if asked < FIRST_QUESTIONS else min(MAX_PAUSE, asked - 8.0))
        states = states_of(job)
        # else these are parts of a start that has begun, or a check, which has none
        waits = has_parts and bool(states[0].get("queue"))
        begun = arrived and not waits and not is_being_stopped(job, states)
        facts: Any = {
            **_read_job(job, states[0] if waits else placeholder(job)),
            **_read_start(start if start.folder != old_start else Start("", set())),
            "requeue": requeue,
        }
        if facts != shown or begun or job.over:
            shown = facts
            facts_now: Any = {**facts, "begun": begun}
            stream.answer({"queue": facts_now})
        if begun or job.over:
            return True
        stream.beat()
        time.sleep(LOOK_INTERVAL)


def _read_job(job: SlurmJob, state: Any) -> Dict[str, Any]:
    return {**queue_facts(job), "waits": state["state"] == SUBMITTED, "reason": state["reason"]}


def _read_start(start: Start) -> Dict[str, Any]:
    """Return what the tasks report before the workers start."""
    messages = {
        key: read_json(os.path.join(start.folder, name)) if name in start.names else None
        for key, name in (("check", "checked"), ("failure", "failed"))
    }
    return {**messages, "doing": start.read_step()}


def check(request: SubmitRequest, stream: Stream) -> None:
    """Submit a job that gathers facts, send them, and leave nothing of it."""
    files = submit_job(request, stream)
    job = read_job(files)
    count = request["template"]["spec"]["nnodes"]
    try:
        if report_queue(job, lambda start: start.count_files("facts") >= count, stream, has_parts=False):
            start = read_newest_start(files)
            send_facts(start, count, stream)
            if not request["template"]["check"]["only"] and start.count_files("facts") >= count:
                wait_for_client(stream)
    finally:
        with suppress(VerbError):
            run_program(["scancel", job.number], CANCEL_LIMIT)
        remove_folder(files.run_folder)


def wait_for_client(stream: Stream) -> None:
    """Keep the job until the client has seen what it runs after the check, by other sessions, and leaves."""
    while not stream.ended:
        for _ in stream.read_available():
            pass
        stream.beat()
        time.sleep(LOOK_INTERVAL)


def remove_folder(folder: str) -> None:
    """Remove the folder of a job that was cancelled; a task that still writes there ends in a moment."""
    for _ in range(REMOVAL_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(LOOK_INTERVAL)


def send_facts(start: Start, count: int, stream: Stream) -> None:
    """Send what each node reported, where it has."""
    for slot in range(count):
        member = start.read(f"member.{slot}")
        if f"facts.{slot}" in start.names:
            facts: NodeFacts = {
                "member": {
                    "node": member.text("node", 128),
                    "address": member.text("address", 15),
                    "nics": list(member.texts("nics", MAX_ADDRESSES, 64)),
                },
                "facts": start.read(f"facts.{slot}").unread("facts"),
            }
            stream.answer(facts)
