"""Runs under a real mpirun (Open MPI), on two nodes without SSH between them; skipped where it is not installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Bed
from driving import cctl, leftovers, make_project, read_until, start_cctl
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, break_node
from clusterctl.lab.layout import SLURM_INVENTORY

pytestmark = [
    VARIANT,
    pytest.mark.skipif(
        not (shutil.which("mpirun") and shutil.which("orted")), reason="no Open MPI on this machine"
    ),
]

# MPI without mpi4py: the handles are symbols of the library.
ALLREDUCE = """
import ctypes, os, pathlib, sys, time
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, value, total, size = handle("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(value))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(value), ctypes.byref(total), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"), world)
print("up", value.value, size.value, total.value, os.environ["RANK"], os.environ["LOCAL_RANK"],
      os.environ["OMPI_MCA_btl_tcp_if_include"], flush=True)
{end}
mpi.MPI_Finalize()
"""

# Each rank saves a file of its own, and the first one `done` when all have; the next attempt prints what it finds.
SAVING = """
folder = pathlib.Path(os.environ['CLUSTERCTL_OUTPUT_DIR'], 'step-10')
resume = os.environ['CLUSTERCTL_RESUME']
assert sys.argv[1] == resume and resume in ('', str(folder)), sys.argv
if resume:
    print('from', sorted(os.listdir(resume)), flush=True)
else:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(value.value)).touch()
    mpi.MPI_Barrier(world)
    if value.value == 0:
        (folder / 'done').touch()
    time.sleep(600)
"""


def left_in_memory(lab: Lab) -> list[str]:
    """List what runs have left in /tmp and /dev/shm of the nodes."""
    found = [line for node in lab.nodes for line in lab.ssh(node.name, "ls /tmp /dev/shm").split()]
    return [line for line in found if "cc-run" in line or "vader" in line or "ompi" in line]


def test_ranks_on_two_nodes_reduce_over_their_own_nics(cluster: Lab, tmp_path: Path) -> None:
    """Node 0's ranks come first; each has the variables of its node, and of torch."""
    job = make_project(tmp_path, ALLREDUCE.format(end=""), launcher="mpirun", nodes=2, nproc_per_node=2)

    result = cctl(cluster, "launch", job, "--json")

    assert result.code == 0, result.err
    written = [entry["line"] for entry in result.json_lines() if entry.get("stream") == "stdout"]
    lines = sorted(line.split()[1:] for line in written if line.startswith("up"))
    assert [line[:5] for line in lines] == [[str(n), "4", "6", str(n), str(n % 2)] for n in range(4)]
    assert len({line[5] for line in lines[:2]}) == len({line[5] for line in lines[2:]}) == 1
    assert lines[0][5] != lines[2][5]
    assert leftovers(cluster) == {}
    assert left_in_memory(cluster) == []


def test_ranks_on_a_slurm_cluster(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """mpirun takes the run's nodes, not the allocation, in which it would find no room; ranks know their Slurm job."""
    if shutil.which("slurmctld", path="/usr/sbin:/sbin") is None:
        pytest.skip("slurmctld is not installed: apt-get install --no-install-recommends slurm-wlm")
    slurm = make_lab(n=2, slurm=True)
    source = ALLREDUCE.format(end="print('job', os.environ['SLURM_JOB_ID'], flush=True)")
    job = make_project(tmp_path, source, launcher="mpirun", nodes=2, nproc_per_node=2)

    result = cctl(slurm, "-i", slurm.directory / SLURM_INVENTORY, "launch", job, "--json")

    assert result.code == 0, result.out + result.err
    written = [entry["line"] for entry in result.json_lines() if entry.get("stream") == "stdout"]
    assert sorted(line.split()[1:4] for line in written if line.startswith("up")) == [
        [str(rank), "4", "6"] for rank in range(4)
    ]
    assert [line for line in written if line.startswith("job")] == ["job 1"] * 4
    assert left_in_memory(slurm) == []


def test_a_failed_rank_and_a_killed_daemon_are_named(cluster: Lab, tmp_path: Path) -> None:
    """On the other node: the exception of the rank; then orted, killed. Nothing is left of either run."""
    end = "if value.value == 3: raise ValueError('bad batch')\ntime.sleep(600)"
    failing = make_project(
        tmp_path / "a", ALLREDUCE.format(end=end), launcher="mpirun", nodes=2, nproc_per_node=2
    )
    failed = cctl(cluster, "launch", failing, "--ignore-checks")
    waiting = make_project(
        tmp_path / "b", ALLREDUCE.format(end="time.sleep(600)"), launcher="mpirun", nodes=2, nproc_per_node=1
    )
    process = start_cctl(cluster, "launch", waiting, "--ignore-checks")
    read_until(process, "| up ")
    cluster.ssh("gpu02", "kill -9 $(pgrep -x orted)")
    out, err = process.communicate(timeout=HANG)

    assert failed.code == 1
    assert "rank 3 on gpu02: ValueError: bad batch" in failed.err
    assert process.returncode == 1
    assert "clusterctl: orted on gpu02 ended: -9" in out + err
    assert "CC-JOB-068" in out + err
    assert leftovers(cluster) == {}
    assert left_in_memory(cluster) == []


def test_a_stop_leaves_nothing(cluster: Lab, tmp_path: Path) -> None:
    """The run counts as cancelled on both nodes."""
    job = make_project(
        tmp_path, ALLREDUCE.format(end="time.sleep(600)"), launcher="mpirun", nodes=2, nproc_per_node=1
    )
    process = start_cctl(cluster, "launch", job, "--ignore-checks")
    read_until(process, "| up ")
    assert cctl(cluster, "stop", "-y").code == 0
    process.communicate(timeout=HANG)

    status = json.loads(cctl(cluster, "status", "--json").out)
    assert [node["state"] for node in status["nodes"]] == ["STOPPED"] * 2
    assert leftovers(cluster) == {}
    assert left_in_memory(cluster) == []


def test_a_lost_node_leaves_fewer_ranks(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """With min_nodes mpirun starts as many ranks as the nodes that are left have, from the checkpoint of all."""
    lab = make_lab(n=3)
    last = lab.nodes[2].name
    size = {"nodes": 3, "min_nodes": 2, "nproc_per_node": 2, "restart": {"max": 2}}
    checkpoints = {"path": "${output_dir}/step-*", "complete": "done"}
    source = ALLREDUCE.format(end=SAVING)
    job = make_project(
        tmp_path, source, launcher="mpirun", args=["${resume}"], checkpoints=checkpoints, **size
    )
    launcher = start_cctl(lab, "launch", job, "--json")
    run = json.loads(read_until(launcher, "up 5 6 15"))["run"]
    wait_until(lambda: '"safe"' in cctl(lab, "status", run, "--json").out, "the checkpoint has its copies")
    break_node(lab, last, "power")
    out, notices = launcher.communicate(timeout=HANG)
    verdict = json.loads(out.splitlines()[-1])["verdict"]
    assert (verdict["state"], verdict["smaller"]) == ("SUCCEEDED", {"nodes": 2, "of": 3}), (verdict, notices)
    printed = [line.partition("| ")[2].split()[1:4] for line in cctl(lab, "logs", run).out.splitlines()]
    assert sorted(line for line in printed if line[1:] == ["4", "6"]) == [
        [str(n), "4", "6"] for n in range(4)
    ]
    began = [line.partition("| ")[2] for line in cctl(lab, "logs", run).out.splitlines()]
    assert began.count("from ['0', '1', '2', '3', '4', '5', 'done']") == 4, began
