"""`clean` on the login node removes whole runs whose Slurm job is over, and nothing of one that waits or runs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from session import Session

from clusterctl.node.slurm.job_files import PART

DAY = 86400
# Slurm's answers are files: what it knows of each number, and of each name; without them it is away.
SQUEUE = """#!/bin/sh
for last; do :; done
case "$*" in *-n*) file=names ;; *) file=queue ;; esac
[ -e "$0.$file" ] || { echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
cat "$0.$file"
"""


class Cluster:
    """A work directory that the nodes of a Slurm cluster share, and an squeue of ours."""

    def __init__(self, folder: Path) -> None:
        self.workdir, self._programs = folder / "work", folder / "bin"
        for path in (self.workdir, self._programs):
            path.mkdir(mode=0o700)
        (self.workdir / "id").write_text("0123456789abcdef")
        (self._programs / "squeue").write_text(SQUEUE)
        (self._programs / "squeue").chmod(0o755)

    def slurm_knows(self, queue: str | None, names: str = "") -> None:
        """Let Slurm know these jobs; None: it is away."""
        for name, text in (("queue", queue), ("names", None if queue is None else names)):
            file = self._programs / f"squeue.{name}"
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)

    def run(self, name: str, number: str, *states: str, days: float = 9, alive: bool = False) -> Path:
        """Make the folder of a run: with a part of each node that has begun, by its state."""
        run_id = f"{name}-20261123T070000-abcd"
        folder = self.workdir / "runs" / run_id
        spec = {"run": run_id, "job": "digits", "nnodes": 2, "submitted": time.time() - days * DAY}
        parts = {f"{place}-gpu0{place}": state for place, state in enumerate(states)}
        files: dict[str, Any] = {f"{PART}/template.json": {"spec": spec}, f"{PART}/secrets.json": {"S": "v"}}
        if number:
            files[f"{PART}/job.json"] = {"job": number}
        if alive:
            files[f"{PART}/exchange/{number}.0/alive.0"] = {}
        for part, state in parts.items():
            node = {**spec, "node": part[2:], "node_rank": 0, "attempt": 1}
            files[f"{part}/spec.json"] = node
            record = {"state": state, "boot_id": "another", "agent": None, "guardian": None, "since": 0}
            files[f"{part}/state.json"] = {**node, **record, "reason": ""}
        for path, content in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))
            moment = time.time() - (0 if alive and "alive" in path else days * DAY)
            os.utime(file, (moment, moment))
        for path in (folder / PART, *(folder / part for part in parts), folder):
            os.utime(path, (time.time() - days * DAY,) * 2)
        return folder

    def clean(self, *runs: Path) -> dict[str, Any]:
        """Remove runs; gives what was found and what was removed."""
        asked = {"workdir": str(self.workdir), "node": "login", "unused": 7 * DAY, "payload": "f" * 64}
        env = {**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        with Session("slurm", {**asked, "do": "clean"}, env=env) as session:
            first = session.receive()
            assert first is not None
            session.send({"remove": {"runs": [[run.name, PART] for run in runs], "rest": True}})
            return {**first[0], **session.frames()[-2][0]}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Give a cluster without runs."""
    return Cluster(tmp_path)


def test_runs_go_as_a_whole_and_none_whose_job_waits_or_runs(cluster: Cluster) -> None:
    """Whatever is asked for; the secrets of a job that scancel ended in the queue go at once."""
    done = cluster.run("done", "1", "SUCCEEDED", "FAILED")
    waits, runs, cancelled = (
        cluster.run("waits", "2"),
        cluster.run("runs", "3", "RUNNING"),
        cluster.run("gone", "4"),
    )
    ending, odd = cluster.run("ending", "5", "SUCCEEDED", "SUCCEEDED"), cluster.run("odd", "6", "RUNNING")
    (ending / PART / "ended.json").write_text("{}")
    elsewhere = cluster.run("elsewhere", "7", "RUNNING", "RUNNING", alive=True)
    payload = cluster.workdir / "bin" / ("e" * 64) / "payload.zip"
    payload.parent.mkdir(parents=True)
    payload.write_text("x")
    os.utime(payload, (0, 0))
    cluster.slurm_knows(
        "2|PENDING|N/A||a|Priority\n3|RUNNING|N/A|gpu01|b|None\n4|CANCELLED|N/A||c|None\n5|COMPLETING|N/A|gpu01|d|None\n"
        "6|?|N/A|gpu01|e|None\n"
    )

    answer = cluster.clean(done, waits, runs, cancelled, ending, odd, elsewhere)

    found = {one["run"].partition("-")[0]: one for one in answer["found"]["runs"]}
    assert {name: one["state"]["state"] for name, one in found.items()} == {
        "done": "FAILED",
        "waits": "SUBMITTED",
        "runs": "RUNNING",
        "gone": "STOPPED",
        "ending": "SUCCEEDED",
        "odd": "RUNNING",
        "elsewhere": "LOST",
    }
    assert {one["node_dir"] for one in found.values()} == {PART}
    assert {name for name, one in found.items() if not one["blocked"]} == {"done", "gone"}
    assert answer["removed"]["runs"] == 2 and len(answer["removed"]["failed"]) == 5
    assert not done.exists() and not cancelled.exists()
    assert all((run / PART / "secrets.json").exists() for run in (waits, runs, odd, ending, elsewhere))
    assert payload.exists() and answer["found"]["payloads"]["contents"] == 0


def test_nothing_goes_while_slurm_is_away(cluster: Cluster) -> None:
    """A job may have been put back into the queue after all parts had ended."""
    run = cluster.run("done", "1", "SUCCEEDED", "SUCCEEDED")
    (run / PART / "ended.json").write_text("{}")
    cluster.slurm_knows(None)

    answer = cluster.clean(run)

    assert answer["removed"]["failed"] == [
        [f"{run.name}/{PART}", "Slurm did not report whether its job has ended"]
    ]
    assert (run / PART / "secrets.json").exists()


def test_a_launch_that_was_killed_before_it_wrote_the_number(cluster: Cluster) -> None:
    """Slurm may have its job: it has the run's name."""
    given_up, waits, fresh = cluster.run("up", ""), cluster.run("waits", ""), cluster.run("fresh", "", days=0)
    cluster.slurm_knows("8|PENDING|N/A||waits|Priority\n", f"{waits.name}|8\n")

    answer = cluster.clean(given_up, waits, fresh)

    states = {one["run"]: one["state"] and one["state"]["state"] for one in answer["found"]["runs"]}
    assert states == {given_up.name: None, waits.name: "SUBMITTED", fresh.name: None}
    assert not given_up.exists()
    assert (waits / PART / "secrets.json").exists() and (fresh / PART / "secrets.json").exists()


def test_what_is_no_run_of_slurm_is_left_alone(cluster: Cluster) -> None:
    """Runs over SSH may be in the same work directory."""
    other = cluster.workdir / "runs" / "over-ssh-20261123T070000-abcd" / "0-gpu01"
    other.mkdir(parents=True)
    cluster.slurm_knows("")
    answer = cluster.clean(other.parent)
    assert answer["found"]["runs"] == []
    assert answer["removed"]["failed"] == [
        [f"{other.parent.name}/{PART}", "it is not a run of this Slurm cluster"]
    ]
    assert other.exists()


def test_the_files_of_a_setup_stay_until_its_job_begins(cluster: Cluster) -> None:
    """However long it waits: without them its environment could not be made."""
    run = cluster.run("waits", "2")
    needed, spare = "a" * 64, "b" * 64
    template = json.loads((run / PART / "template.json").read_text())
    template["spec"]["setup"] = {"rows": [["requirements.txt", "file", 0o644, needed, 1]]}
    (run / PART / "template.json").write_text(json.dumps(template))
    stored = [cluster.workdir / "store" / sha[:2] / sha for sha in (needed, spare)]
    for path in stored:
        path.parent.mkdir(parents=True)
        path.write_text("x")
        os.utime(path, (0, 0))
    cluster.slurm_knows("2|PENDING|N/A||waits|Priority\n")

    answer = cluster.clean()

    assert answer["found"]["store"]["contents"] == answer["removed"]["contents"] == 1
    assert [path.exists() for path in stored] == [True, False]
