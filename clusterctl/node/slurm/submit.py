"""Writes the folder of a Slurm job and submits it."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, List

from ...protocol.run_paths import WorkdirPaths
from ..runtime.stream import Stream, VerbError
from ..state.workdir import make_below, make_private, open_workdir, workdir_id, write_atomically, write_new
from ..verbs.start import ensure_payload, with_byte_code
from .command_output import parse_submission
from .commands import SUBMIT_LIMIT, query_settings, run_program
from .job_files import PART, JobFiles, read_object, write_object

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SubmitRequest, SubmittedSecrets, SubmittedTemplate

UNDO_LIMIT = 5.0  # seconds; the client waits 90 for all


def submit(request: SubmitRequest, stream: Stream) -> None:
    """Write what the tasks need, hand the job to Slurm, and answer with its number."""
    files = submit_job(request, stream)
    stream.answer({"submitted": {"job": read_object(files.job).text("job", 20)}})


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
            run_program(["scancel", f"--name={files.run_id}"], UNDO_LIMIT)
        raise
    number = parse_submission(done.output) if done.status == 0 else None
    if number is None:
        error = "; ".join(filter(None, map(str.strip, done.error.splitlines())))
        raise VerbError("CC-SLURM-005", error or f"sbatch ended with status {done.status}")
    return number
