"""Writes the folder of a Slurm job and submits it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from ...protocol.run_paths import WorkdirPaths
from ..runtime.stream import Stream, VerbError
from ..state.workdir import make_below, make_private, open_workdir, write_atomically, write_new
from ..verbs.start import ensure_payload, with_byte_code
from .commands import SUBMIT_LIMIT, query_kill_wait, run_program
from .job_files import PART, JobFiles, write_object
from .output import parse_submission

if TYPE_CHECKING:
    from ...protocol.messages.verbs import SubmitRequest, SubmittedSecrets, SubmittedTemplate


def submit(request: SubmitRequest, stream: Stream) -> None:
    """Write what the tasks need, hand the job to Slurm, and answer with its number."""
    workdir = open_workdir(request["workdir"])
    payload = with_byte_code(ensure_payload(workdir, request["payload"]["sha256"], stream))
    run_id = request["template"]["spec"]["run"]
    files = JobFiles(make_below(make_private(WorkdirPaths(workdir).runs), run_id, PART))
    template: SubmittedTemplate = {**request["template"], "kill_wait": query_kill_wait()}
    write_object(files.template, template)
    secrets: SubmittedSecrets = {"secrets": request["secrets"], "token": request["token"]}
    write_new(files.secrets, json.dumps(secrets).encode("utf-8"))  # mode 0600
    write_atomically(files.script, request["script"].encode("utf-8"))
    own = [f"--chdir={files.folder}", f"--output={files.output}"]
    argv = ["sbatch", "--parsable", *request["options"], *own, files.script, files.folder, payload]
    done = run_program(argv, SUBMIT_LIMIT)
    number = parse_submission(done.output) if done.status == 0 else None
    if number is None:
        shutil.rmtree(files.run_folder, ignore_errors=True)  # it never was a run
        error = "; ".join(filter(None, map(str.strip, done.error.splitlines())))
        raise VerbError("CC-SLURM-005", error or f"sbatch ended with status {done.status}")
    write_object(files.job, {"job": number})
    stream.answer({"submitted": {"job": number}})
