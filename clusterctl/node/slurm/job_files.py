"""The folder of one Slurm job, on the file system that the login node and all nodes of the job share.

runs/<run>/0-.slurm/        beside the parts of the nodes; a dot begins no node's name
  job.json                  the job's number and its cluster, written when sbatch has taken it
  template.json             the spec of every node, as far as it is the same
  secrets.json              values of the job's secrets and the gang's token, 0600; removed when every task has read it,
                            or, if Slurm may start the job again, when the job is over
  batch.sh batch.out        what sbatch runs, and what it and srun print
  task.<slot>.out           what a task prints: a file each, since srun waits for all who hold a shared one
  code/ manifest            the code, which all nodes work in
  ended.json                the step is over; written by batch.sh
  earlier/<job>.<restart>/  parts of an earlier start whose nodes Slurm did not give again, see states.py
  exchange/<job>.<restart>/     what the tasks send each other: hello.<slot>, member.<slot>, facts.<slot>, checked,
                            part.<slot>, doing.<slot>, hub, listener.<slot>, ready.<slot>, go, and the first failure;
                            alive.<slot> is touched every few seconds
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, List, Mapping, Optional

from ...protocol.run_id import ALLOCATION
from ...protocol.run_paths import RunPaths, part_name
from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..state.workdir import read_bytes, write_atomically

MAX_FILE = 16 << 20  # bytes; a template with the environment of a job is far smaller
PART = part_name(0, ALLOCATION)


class JobFiles:
    """Paths of one Slurm job's folder, and how JSON is read and written there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.job = os.path.join(folder, "job.json")
        self.template = os.path.join(folder, "template.json")
        self.secrets = os.path.join(folder, "secrets.json")
        self.script = os.path.join(folder, "batch.sh")
        self.output = os.path.join(folder, "batch.out")
        self.ended = os.path.join(folder, "ended.json")
        self.exchanges = os.path.join(folder, "exchange")

    @property
    def run_id(self) -> str:
        """Name the run."""
        return RunPaths(self.folder).run_id

    @property
    def run_folder(self) -> str:
        """Return the directory that holds the parts of all nodes."""
        return os.path.dirname(self.folder)

    @property
    def workdir(self) -> str:
        """Return the work directory."""
        return os.path.dirname(os.path.dirname(self.run_folder))

    def remove_secrets(self) -> None:
        """Remove the secrets, once nothing will read them any more."""
        with suppress(OSError):
            os.unlink(self.secrets)

    def part_folders(self) -> List[str]:
        """List the directories of the nodes' parts."""
        names = list_folder(self.run_folder)
        return sorted(os.path.join(self.run_folder, name) for name in names if name != PART)


def read_object(path: str) -> Untrusted:
    """Read a JSON object that another machine wrote; an empty one where there is none."""
    try:
        return parse_object(read_bytes(path) or b"", MAX_FILE)
    except (MalformedError, OSError):
        return Untrusted({})


def write_object(path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object that others find whole or not at all."""
    write_atomically(path, json.dumps(value).encode("utf-8"))


def newest_start(files: JobFiles) -> str:
    """Return the folder in which the tasks of the newest start of a job meet; empty while there is none."""
    keys = [key for key in list_folder(files.exchanges) if key.rpartition(".")[2].isdecimal()]
    newest = max(keys, key=lambda key: int(key.rpartition(".")[2]), default="")
    return os.path.join(files.exchanges, newest) if newest else ""


def newest_beat(files: JobFiles, slot: Optional[int] = None) -> Optional[float]:
    """Return the age in seconds of the newest sign of life of any task, or of one; None without one."""
    beats = "alive." if slot is None else f"alive.{slot}"
    times = []
    for key in list_folder(files.exchanges):
        folder = os.path.join(files.exchanges, key)
        for name in list_folder(folder):
            if name == beats or (slot is None and name.startswith(beats)):
                with suppress(OSError):
                    times.append(os.stat(os.path.join(folder, name)).st_mtime)
    return time.time() - max(times) if times else None


def list_folder(folder: str) -> List[str]:
    """List a folder; nothing where it cannot be read, as for a moment on a network file system (ESTALE, EIO)."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
