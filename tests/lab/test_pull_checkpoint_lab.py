"""One checkpoint is downloaded whole, also when a node that wrote a part of it has no power."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from driving import cctl, leftovers, make_project, read_until, running_processes, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node

WRITING = """
import os, pathlib, time
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"]) / "step-10"
folder.mkdir(parents=True)
(folder / f"{rank}.pt").write_bytes(bytes([rank]) * 100_000)
dist.barrier()
if rank == 0:
    (folder / "done").touch()
print("written", flush=True)
time.sleep(float(os.environ["STAY"]))
"""


def test_a_checkpoint_is_downloaded_from_the_nodes_that_are_left(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """The copies of a neighbour take the place of the files of the node that is away."""
    lab = make_lab(n=2)
    checkpoints = {"path": "${output_dir}/step-*", "complete": "done"}
    job = make_project(
        tmp_path, WRITING, nodes=2, restart={"max": 1}, checkpoints=checkpoints, env={"STAY": "3600"}
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "written"))["run"]
    wait_until(lambda: '"safe"' in cctl(lab, "status", run, "--json").out, "step-10 has its copies")
    cctl(lab, "stop", run)
    launcher.communicate()
    wait_until(lambda: running_processes(lab) == {}, "the run ends")
    for place, broken in (("all", None), ("left", lab.nodes[0].name)):
        if broken:
            break_node(lab, broken, "power")
        pulled = cctl(lab, "pull", run, tmp_path / place, "--checkpoint")
        found = {path.name: path.read_bytes() for path in (tmp_path / place / "step-10").iterdir()}
        assert found == {"0.pt": bytes(100_000), "1.pt": b"\1" * 100_000, "done": b""}, pulled
        if broken:
            heal_node(lab, broken)
    assert leftovers(lab) == {}


def test_what_is_written_last_is_a_checkpoint_too(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A run that succeeds ends once its last checkpoint is sealed, and that is downloaded whole."""
    lab = make_lab(n=2)
    checkpoints = {"path": "${output_dir}/step-*", "complete": "done"}
    job = make_project(
        tmp_path, WRITING, nodes=2, restart={"max": 1}, checkpoints=checkpoints, env={"STAY": "0"}
    )
    launched = cctl(lab, "launch", job, "--json")
    run = json.loads(launched.out.splitlines()[0])["run"]
    shown = cctl(lab, "status", run)
    assert "step-10: 2/2 nodes" in shown.out, shown
    pulled = cctl(lab, "pull", run, tmp_path / "last", "--checkpoint")
    found = {path.name: path.read_bytes() for path in (tmp_path / "last" / "step-10").iterdir()}
    assert found == {"0.pt": bytes(100_000), "1.pt": b"\1" * 100_000, "done": b""}, pulled
    assert leftovers(lab) == {}
