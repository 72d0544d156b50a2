"""Every playbook as its README reports, on two nodes with two NICs each, and what comes out of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driving import cctl, leftovers, read_until, running_processes, said, start_cctl
from variants import VARIANT, first
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, break_node, heal_node

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
FEW = ("--points", "1200")
LOSS = re.compile(r"step (\d+)/\d+  (loss [\d.]+)")
EPOCH = re.compile(r"epoch (\d+)/\d+  (loss [\d.]+  accuracy [\d.]+%)")


@pytest.fixture(autouse=True)
def nothing_is_left(rented: Lab) -> Iterator[None]:
    """A playbook that has ended leaves no process on any node."""
    yield
    assert leftovers(rented) == {}


def launch(lab: Lab, job: str, *more: str) -> list[str]:
    """Launch a playbook to its end and give what its ranks reported."""
    result = cctl(lab, "launch", PLAYBOOKS / job, "--json", *more)
    assert result.code == 0, result.err + result.out
    return said(result.json_lines())


def accuracies(lines: list[str]) -> list[float]:
    """Give the percentages that were printed, in their order."""
    return [float(found[1]) for line in lines if (found := re.search(r"accuracy ([\d.]+)%", line))]


def test_hello_ranks(rented: Lab) -> None:
    """Each rank names its host and NIC; the sum shows that they reach each other."""
    lines = launch(rented, "hello-ranks/job.yaml", "--set", "start=fork")

    assert sorted(lines) == [
        "all_reduce over 2 ranks: 3, expected 3",
        "gpu01: node 0, rank 0 of 2, local rank 0, cpu, gloo over meth919",
        "gpu02: node 1, rank 1 of 2, local rank 0, cpu, gloo over meth917",
    ]


@VARIANT  # of test_hello_ranks, with the other launcher, which tests/node/supervise/test_run.py starts too
@pytest.mark.parametrize("job", first(1, ["job.yaml", "job-use-env.yaml"]))
def test_launch_legacy(rented: Lab, job: str) -> None:
    """Both scripts find the line, whether the local rank is an argument or a variable."""
    lines = launch(rented, f"launch-legacy/{job}", "--", "--steps", "60")

    assert sorted(line for line in lines if line.startswith("rank")) == [
        "rank 0 of 2, local rank 0: y = 2.00 x + 1.00",
        "rank 1 of 2, local rank 0: y = 2.00 x + 1.00",
    ]


@VARIANT
def test_mp_spawn(rented: Lab) -> None:
    """Two nodes with two workers of the script's own make a world of four, which learns and saves once."""
    lines = launch(rented, "mp-spawn/job.yaml", "--", "--epochs", "2")

    ranks = sorted(line for line in lines if line.startswith("rank"))
    assert ranks == [f"rank {2 * n + i} of 4: node {n}, worker {i}" for n in (0, 1) for i in (0, 1)]
    assert accuracies(lines)[-1] > 97
    assert [line.rpartition("/")[2] for line in lines if line.startswith("saved")] == ["model.pt"]


@VARIANT
def test_tcp_init_mnist(rented: Lab) -> None:
    """Both processes meet at the address that was filled in, make the same files and learn from them."""
    lines = launch(rented, "tcp-init-mnist/job.yaml", "--", "--epochs", "2")

    assert {"rank 0 of 2, cpu", "rank 1 of 2, cpu"} <= set(lines)
    assert len([line for line in lines if line.startswith("making small files in ")]) == 2
    assert len(accuracies(lines)) == 2
    assert accuracies(lines)[-1] > 90
    assert len([line for line in lines if re.match(r"epoch \d of 2 took [\d.]+ s", line)]) == 2


@VARIANT
def test_private_network(rented: Lab) -> None:
    """The data are put in place once; each node's own NIC is in all three variables."""
    made = launch(rented, "private-network/make-data.yaml")
    lines = launch(rented, "private-network/job.yaml", "--", "--epochs", "1")

    assert [line.partition(": ")[2] for line in made] == ["made small files in CIFAR-10's format"] * 2
    told = sorted(line for line in lines if "NCCL_SOCKET_IFNAME" in line)
    nics = {"gpu01": "meth919", "gpu02": "meth917"}
    assert told == [
        f"{host}: rank {rank}, cpu, NCCL_SOCKET_IFNAME=={nic}, GLOO_SOCKET_IFNAME={nic}, GLOO_IFACE={nic}"
        for rank, (host, nic) in enumerate(nics.items())
    ]
    assert accuracies(lines)[-1] > 95


@VARIANT
def test_allreduce_bench(rented: Lab, tmp_path: Path) -> None:
    """A row for every size, bars, and a picture and numbers that `pull` downloads."""
    lines = launch(rented, "allreduce-bench/job.yaml")
    pulled = cctl(rented, "pull", "--nodes", "0", cwd=tmp_path)

    assert lines[0] == "all_reduce of float32, 2 ranks on 2 nodes, gloo"
    assert [line.split()[0] for line in lines[2:9]] == ["1K", "4K", "16K", "64K", "256K", "1M", "4M"]
    assert len([line for line in lines if "█" in line]) >= 1
    assert pulled.code == 0, pulled.err
    numbers = json.loads(next(tmp_path.rglob("allreduce.json")).read_text())
    for one in numbers["sizes"]:
        assert one["algorithm"] == pytest.approx(one["size"] / one["median"])
        assert one["bus"] == pytest.approx(one["algorithm"])  # 2 (n - 1) / n is 1 for two ranks
    assert next(tmp_path.rglob("allreduce.svg")).read_text().count("<rect") == 1 + len(numbers["sizes"])


@VARIANT  # of test_a_resumed_training_goes_on_as_if_it_had_run_through in tests/test_playbooks.py
def test_torchrun_ddp_goes_on_after_an_interruption_as_if_there_had_been_none(
    rented: Lab, tmp_path: Path
) -> None:
    """Stopped in the middle and resumed, a training prints the losses of one that ran through on one machine."""
    job, cut_name = PLAYBOOKS / "torchrun-ddp" / "job.yaml", ("--set", "name=cut")
    cut = start_cctl(rented, "launch", job, "--json", *cut_name, "--", *FEW, "--epochs", "999")
    read_until(cut, "epoch 2/999")
    stopped = cctl(rented, "stop", "-y", "--grace", "1")
    rest, _ = cut.communicate(timeout=HANG)

    assert stopped.code == 0, stopped.err
    assert cut.returncode == 1
    reached = max([2, *(int(number) for number in re.findall(r"epoch (\d+)/999", rest))])
    until = (*FEW, "--epochs", str(reached + 3))
    resumed = launch(rented, "torchrun-ddp/job.yaml", *cut_name, "--", "--resume", *until)
    whole = train_here(tmp_path, *until)
    assert len(epochs(whole)) == reached + 3
    done = int(next(line for line in resumed if line.startswith("resumed after epoch")).split()[-1])
    assert done in (reached, reached + 1)
    assert epochs(resumed) == epochs(whole)[done:]
    proven = next(line for line in whole if "no_sync" in line)
    assert float(proven.split()[-1]) < 1e-6


@VARIANT
def test_fsdp2_dcp_resumes_on_nodes_without_a_shared_disk(rented: Lab) -> None:
    """Each node has fetched the parts that it lacks; what follows the checkpoint is as if nothing had ended."""
    job = "stacks/fsdp2-dcp/job.yaml"
    whole = launch(rented, job, "--", "--steps", "30")
    cut = launch(rented, job, "--set", "name=cut", "--", "--steps", "20")
    gathered = cctl(rented, "cp", "--run", "cut", "--gather", "all:${output_dir}/step-20")
    resumed = launch(rented, job, "--set", "name=cut", "--", "--resume", "--steps", "30")

    assert gathered.code == 0, gathered.err
    parts = sorted(line for line in whole if line.startswith("rank"))
    assert [line.split(":")[0] for line in parts] == [f"rank {rank} of 4" for rank in range(4)]
    assert "resumed after step 20" in resumed
    printed = [losses(lines) for lines in (whole, cut, resumed)]
    assert [step for step, _ in printed[0]] == ["10", "20", "30"]
    assert printed[1] + printed[2] == printed[0]


@VARIANT  # of test_a_node_has_no_power_and_a_spare_goes_on_from_its_checkpoint, with what DCP writes and reads
@pytest.mark.parametrize(
    ("sizes", "parts"),  # of the checkpoint, one for each rank of the first attempt
    [(("nodes=2", "restart.spares=1"), 4), (("nodes=3", "min_nodes=2"), 6)],
    ids=["spare", "fewer"],
)
def test_fsdp2_dcp_goes_on_after_a_lost_node(
    make_lab: Callable[..., Lab], tmp_path: Path, sizes: tuple[str, ...], parts: int
) -> None:
    """The ranks of the next attempt load the last safe checkpoint, and continue as if no node had been lost."""
    lab = make_lab(n=3)
    job, every = PLAYBOOKS / "stacks/fsdp2-dcp/job.yaml", ("--save-every", "50")
    options = [word for one in sizes for word in ("--set", one)]
    launcher = start_cctl(lab, "launch", job, "--json", *options, "--", "--steps", "999999", *every)
    run = json.loads(read_until(launcher, "step 50/"))["run"]
    wait_until(lambda: '"safe"' in cctl(lab, "status", run, "--json").out, "a checkpoint has its copies")
    break_node(lab, lab.nodes[1].name, "power")
    step = int(json.loads(read_until(launcher, "resumed after step"))["line"].split()[-1])
    continued = read_until(launcher, f"step {step + 50}/")
    resumed = json.loads(cctl(lab, "status", run, "--json").out)["run"]
    stopped = cctl(lab, "stop", "-y", "--grace", "1", run)
    launcher.communicate(timeout=HANG)
    heal_node(lab, lab.nodes[1].name)
    pulled = cctl(lab, "pull", run, tmp_path, "--checkpoint", f"step-{step}")
    wait_until(lambda: running_processes(lab) == {}, "no process is left")

    assert stopped.code == 4, stopped.err  # a node has no power
    assert (resumed["attempt"], resumed["resumed"], resumed["world_size"]) == (2, f"step-{step}", 4)
    assert len(list(tmp_path.glob(f"step-{step}/*.distcp"))) == parts, pulled.err
    if "nodes=2" in sizes:  # another number of ranks draws other samples
        whole = ("--set", "name=whole", "--set", "nodes=2", "--", "--steps", str(step + 50), *every)
        expected = losses(launch(lab, "stacks/fsdp2-dcp/job.yaml", *whole))
        assert losses([json.loads(continued)["line"]]) == expected[-1:]
    assert leftovers(lab) == {}


def train_here(output: Path, *options: str) -> list[str]:
    """Run the script by hand, as two ranks of this machine alone, and give what it wrote."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, PLAYBOOKS / "torchrun-ddp" / "train.py", "--output", output, *options],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def epochs(lines: list[str]) -> list[str]:
    """Give what was printed of every epoch, without how many there were to be."""
    return [f"{found[1]} {found[2]}" for line in lines if (found := EPOCH.match(line))]


def losses(lines: list[str]) -> list[tuple[str, ...]]:
    """Return step and loss of each line that reports them."""
    return [found.groups() for line in lines if (found := LOSS.match(line))]
