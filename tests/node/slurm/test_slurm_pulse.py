"""How far the runs of a Slurm cluster are, as its login node reads it from the directory that it shares with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from slurm_jobs import NUMBER, RUN, FakeStream, make_job, make_spec

from clusterctl.node.slurm import states
from clusterctl.node.slurm.commands import QueuedJob
from clusterctl.node.slurm.job_files import write_object
from clusterctl.node.state.run_record import new_state
from clusterctl.node.verbs.machine import slurm_pulse
from clusterctl.protocol.run_paths import RunPaths


def test_the_first_node_of_a_run_has_its_steps_and_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of the others are not read: a login node answers for all."""
    job = make_job(tmp_path)
    for slot, node in enumerate(("gpu01", "gpu02")):
        paths = RunPaths(f"{job.run_folder}/{slot}-{node}")
        log = Path(paths.rundir) / "attempt-1" / "stdout.log"
        log.parent.mkdir(parents=True)
        log.write_text("step 1/9 loss=4.0\nstep 2/9 loss=2.0\n", encoding="utf-8")
        write_object(paths.spec, make_spec(node, slot))
        rank = {"pid": 1, "starttime": 1, "exit": None, "signal": None, "local_rank": 0}
        ranks = {str(slot): {**rank, "stdout": "attempt-1/stdout.log", "stderr": None}}
        write_object(paths.state, {**new_state(make_spec(node, slot)), "state": "SUCCEEDED", "ranks": ranks})
    monkeypatch.setattr(states, "query_queue", lambda _: {NUMBER: QueuedJob(NUMBER, "RUNNING")})
    stream: Any = FakeStream()
    slurm_pulse.run(cast("Any", {"workdir": str(tmp_path), "run": None, "limit": 9}), stream)
    (answer,) = stream.answers
    first, second = sorted(answer["runs"], key=lambda state: state["node_rank"])
    assert (first["run"], first["slurm_job"], second["slurm_job"]) == (RUN, NUMBER, NUMBER)
    assert first["progress"] == {"step": 2, "total": 9, "losses": [[4.0], [2.0]]}
    assert "progress" not in second
