"""The folder of a Slurm job as its submission leaves it, and a client of the login node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clusterctl.node.slurm.job_files import PART, JobFiles, write_object

RUN, NUMBER = "j-20261123T070000-abcd", "4711"


def make_job(workdir: Path, run: str = RUN, *, cluster: str = "", requeue: bool = False) -> JobFiles:
    """Make the folder of a job for two nodes that was submitted."""
    folder = workdir / "runs" / run / PART
    folder.mkdir(parents=True)
    files = JobFiles(str(folder))
    write_object(files.job, {"job": NUMBER, "cluster": cluster})
    write_object(files.template, {"requeue": requeue, "spec": make_spec("any", 0, run)})
    write_object(files.secrets, {})
    return files


def make_spec(node: str, slot: int, run: str = RUN) -> Any:
    """Return the part of a spec that a record begins with."""
    about = {"run": run, "job": "j", "nnodes": 2, "world_size": 2, "attempt": 1}
    return {**about, "node": node, "node_rank": slot}


class FakeStream:
    """A client that stays and keeps what is sent to it."""

    ended = False

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def read_available(self) -> list[Any]:
        """Return what it sends: nothing."""
        return []

    def answer(self, value: Any) -> None:
        """Keep an answer."""
        self.answers.append(value)

    def beat(self) -> bool:
        """Send none: the tests look at answers."""
        return False
