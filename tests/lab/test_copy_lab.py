"""`cp` on real nodes: to them, from them, among them, and the parts of a checkpoint before a resume."""

from __future__ import annotations

import json
import os
from pathlib import Path

from driving import cctl, make_project, run_id
from routes import behind
from variants import VARIANT

from clusterctl.lab.labs import Lab

# Saves with one file per rank if there is no checkpoint yet, else loads what all ranks have saved.
RESUMES = """
import os
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import distribute_tensor, init_device_mesh, Shard

dist.init_process_group("gloo")
folder = os.path.join(os.environ["CLUSTERCTL_OUTPUT_DIR"], "step-1")
mesh = init_device_mesh("cpu", (2,))
saved = os.path.isdir(folder)
whole = torch.zeros(8) if saved else torch.arange(8.0)
state = {"weights": distribute_tensor(whole, mesh, [Shard(0)])}
(dcp.load if saved else dcp.save)(state, checkpoint_id=folder)
print("weights", state["weights"].full_tensor().sum().item(), "loaded" if saved else "saved")
dist.destroy_process_group()
"""


def test_files_to_from_and_among_nodes(cluster: Lab, tmp_path: Path) -> None:
    """What is sent to two nodes comes back from both, each under its name; the third gets it from the second."""
    first, second, third = [node.name for node in cluster.nodes]
    data = os.urandom(2_000_000)
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "data/sub/model.pt").write_bytes(data)
    (tmp_path / "data/note").write_text("of this machine")
    (tmp_path / "data/note").chmod(0o755)

    sent = cctl(cluster, "cp", "data", f"{second},{first}:copied-in/", cwd=tmp_path)
    assert sent.code == 0, sent.err
    among = json.loads(
        cctl(cluster, "cp", f"{second}:copied-in/data", f"{third}:copied-on/", "--json", cwd=tmp_path).out
    )
    assert [(entry["node"], entry["files"], entry["sent"]) for entry in among["sent"]] == [(third, 2, 0)]
    (tmp_path / "data/note").write_text("changed since")
    kept = cctl(cluster, "cp", "data", f"{first}:copied-in/", cwd=tmp_path)
    assert (kept.code, "exists with other content" in kept.err) == (5, True)
    back = cctl(
        cluster,
        "cp",
        f"{first},{second}:copied-in/data",
        f"{second}:copied-in/data/note",
        "here/",
        cwd=tmp_path,
    )
    assert back.code == 0, back.err
    for name in (first, second):
        assert (tmp_path / "here" / name / "data/sub/model.pt").read_bytes() == data
        assert (tmp_path / "here" / name / "data/note").read_text() == "of this machine"
        assert os.access(tmp_path / "here" / name / "data/note", os.X_OK)
    assert not (tmp_path / "here/.clusterctl").exists()
    absent = cctl(cluster, "cp", f"{third}:copied-in/data", "here", cwd=tmp_path)
    assert (absent.code, "CC-COPY-002" in absent.err) == (1, True)


@VARIANT
def test_the_parts_of_a_checkpoint_are_gathered_through_a_bastion(cluster: Lab, tmp_path: Path) -> None:
    """Without a shared disk loading fails, and names what helps; after that the same job resumes."""
    inventory = behind(cluster, tmp_path)
    job = make_project(tmp_path / "job", RESUMES, name="resumes", nodes=2)
    given = ("-i", inventory)
    assert cctl(None, *given, "launch", job).code == 0
    failed = cctl(None, *given, "launch", job)
    assert "CC-DISK-010" in failed.err
    assert (failed.code, "CC-JOB-064" in failed.err, "cp --run" in failed.err) == (1, True, True), failed.err
    run = run_id(failed.err)
    gathered = cctl(None, *given, "cp", "--run", run, "--gather", "all:${output_dir}/step-1")
    assert gathered.code == 0, gathered.err
    resumed = cctl(None, *given, "launch", job)
    assert (resumed.code, "weights 28.0 loaded" in resumed.out) == (0, True), resumed.err
    assert "CC-DISK-010" not in resumed.err
