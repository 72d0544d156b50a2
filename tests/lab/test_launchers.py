"""Every launcher for real: what is launched by hand elsewhere runs here unchanged, on three nodes."""

from __future__ import annotations

import json
from pathlib import Path

from driving import cctl, leftovers, make_project, read_until, said, start_cctl
from ruamel.yaml import YAML
from variants import VARIANT
from waiting import HANG

from clusterctl.lab.labs import Lab

# The shape of a script from before torchrun, as its users still have it.
OLD = """
import argparse, os
import torch, torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", type=int, default=-1)
parser.add_argument("--epochs", type=int)
parser.add_argument("--run")  # to torchrun, half of its own --run-path
args = parser.parse_args()
dist.init_process_group("gloo", init_method="env://")
total = torch.ones(1)
dist.all_reduce(total)
print(dist.get_rank(), args.local_rank, os.environ["LOCAL_RANK"], args.epochs, int(total.item()))
dist.destroy_process_group()
"""

# One process per node that starts its workers itself, which find the others by what it is told. With torch it is the
# playbook mp-spawn; here the ranks meet at a socket.
SPAWN = """
import argparse, os, socket, time
from multiprocessing import get_context
from urllib.parse import urlsplit

def meet(place, rank, world):
    if rank == 0:
        door = socket.create_server((place.hostname, place.port))
        guests = [door.accept()[0] for _ in range(world - 1)]
        for guest in guests:
            guest.sendall(b"%d" % world)
        return world
    for _ in range(600):
        try:
            with socket.create_connection((place.hostname, place.port)) as call:
                return int(call.recv(9))
        except OSError:
            time.sleep(0.05)

def worker(local_rank, args):
    rank = args.node_rank * args.nproc + local_rank
    total = meet(urlsplit(args.init_method), rank, args.nnodes * args.nproc)
    print(rank, total, os.environ["GLOO_SOCKET_IFNAME"], flush=True)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--init-method")
    for name in ("--node-rank", "--nnodes", "--nproc"):
        parser.add_argument(name, type=int)
    args = parser.parse_args()
    started = [get_context("spawn").Process(target=worker, args=(n, args)) for n in range(args.nproc)]
    for one in started:
        one.start()
    for one in started:
        one.join()
"""


# nvidia-smi as a script on the node's PATH: two GPUs, and none of them is real.
SIMULATED = """
PATH=/tmp/simulated:$PATH
[ -x /tmp/simulated/nvidia-smi ] || {
  mkdir -p /tmp/simulated
  echo '#!/bin/sh' > /tmp/simulated/nvidia-smi
  for i in 0 1; do
    echo "echo $i, GPU-$i, Simulated, 560.35.03, 80000, 4, Default, 00000000:1$i:00.0, 9.0, Disabled, 0"
  done >> /tmp/simulated/nvidia-smi
  chmod +x /tmp/simulated/nvidia-smi
}
"""


def with_gpus(lab: Lab, counts: list[int]) -> str:
    """Give the lab's inventory with what its nodes lend."""
    inventory = YAML(typ="safe").load(lab.inventory.read_text())
    for node, count in zip(inventory["nodes"], counts, strict=False):
        node["gpus"] = count
    return json.dumps(inventory)


@VARIANT
def test_an_old_script_on_nodes_that_lend_different_numbers_of_gpus(cluster: Lab, tmp_path: Path) -> None:
    """torch.distributed.launch passes --local-rank; one worker here and two there make a world of three."""
    job = make_project(
        tmp_path,
        OLD,
        launcher="launch",
        nproc_per_node="gpu",
        nodes=2,
        args=["--epochs", 3, "--run", "x"],
        activate=SIMULATED,
    )
    lent = tmp_path / "inventory.yaml"
    lent.write_text(with_gpus(cluster, [1, 2]))

    result = cctl(cluster, "-i", lent, "launch", job, "--ignore-checks", "--json")

    assert result.code == 0, result.err
    assert sorted(said(result.json_lines())) == ["0 0 0 3 3", "1 0 0 3 3", "2 1 1 3 3"]
    assert "CC-GPU-008" in result.err
    assert leftovers(cluster) == {}


def test_a_script_that_spawns_its_own_workers(cluster: Lab, tmp_path: Path) -> None:
    """One process per node, one log per node, and the workers of all nodes meet at the address that was filled in."""
    args = ["--init-method", "tcp://${master_addr}:${master_port}", "--node-rank", "${node_rank}"]
    args += ["--nnodes", "${nnodes}", "--nproc", "${nproc_per_node}"]
    job = make_project(tmp_path, SPAWN, launcher="python", nproc_per_node=1, nodes=2, args=args)

    result = cctl(cluster, "launch", job, "--json")

    assert result.code == 0, result.err
    lines = [
        (entry["node"], entry["rank"], entry["line"]) for entry in result.json_lines() if "line" in entry
    ]
    nics = [node.plan.training_nic for node in cluster.nodes]
    names = [node.name for node in cluster.nodes]
    assert sorted(line for line in lines if line[2][0].isdigit()) == [
        (names[n], n, f"{n} 2 {nics[n]}") for n in (0, 1)
    ]
    status = json.loads(cctl(cluster, "status", "--json").out)
    assert [[rank["rank"] for rank in node["ranks"]] for node in status["nodes"]] == [[0], [1]]
    assert leftovers(cluster) == {}


def test_a_shell_script_that_calls_torchrun_itself(cluster: Lab, tmp_path: Path) -> None:
    """`command` has the placeholders and variables; what activate exports and puts on PATH is there for it too."""
    script = """\
        #!/bin/sh -e
        tool "$FROM_ACTIVATE" "$1"
        exec $CLUSTERCTL_PYTHON -m torch.distributed.run --nnodes "$NNODES" --node-rank "$NODE_RANK" \\
            --nproc-per-node 2 --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" hello.py
        """
    job = make_project(
        tmp_path,
        "",
        script=None,
        launcher="command",
        nodes=2,
        nproc_per_node=2,
        command=["./train.sh", "node ${node_rank} of ${nnodes}"],
        activate='export FROM_ACTIVATE=prepared PATH="$HOME/tools:$PATH"',
    )
    for node in cluster.nodes:
        text = "mkdir -p ~/tools; printf '#!/bin/sh\\necho \"$1: $2\" >&2\\n' > ~/tools/tool; chmod +x ~/tools/tool"
        cluster.ssh(node.name, f"{text}")
    (tmp_path / "hello.py").write_text(
        "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], flush=True)"
    )
    (tmp_path / "train.sh").write_text("\n".join(line.strip() for line in script.splitlines()) + "\n")
    (tmp_path / "train.sh").chmod(0o755)

    checked = cctl(cluster, "check", "-v", job)
    result = cctl(cluster, "launch", job, "--json")
    lines = [(entry["node"], entry["line"]) for entry in result.json_lines() if "line" in entry]

    assert result.code == 0, result.err
    assert "environment of `activate` on gpu[01-02]:" in checked.out
    assert "/tools:" in checked.out
    names = [node.name for node in cluster.nodes[:2]]
    assert [(name, f"prepared: node {n} of 2") in lines for n, name in enumerate(names)] == [True] * 2
    ranks = [
        (entry["node"], entry["rank"], entry["line"]) for entry in result.json_lines() if "line" in entry
    ]
    hellos = sorted(entry for entry in ranks if entry[2].endswith(" 4"))
    assert hellos == [(names[n // 2], n, f"{n} 4") for n in range(4)]
    status = json.loads(cctl(cluster, "status", "--json").out)
    assert [[rank["rank"] for rank in node["ranks"]] for node in status["nodes"]] == [[0, 1], [2, 3]]
    assert [rank["exit"] for node in status["nodes"] for rank in node["ranks"]] == [0] * 4
    assert cctl(cluster, "logs", "--rank", "3").out.count("3 4") == 1
    assert leftovers(cluster) == {}


@VARIANT
def test_a_rank_of_a_nested_torchrun_is_the_cause(cluster: Lab, tmp_path: Path) -> None:
    """Its exception and its exit code, as if its torchrun were ours."""
    script = "import os, time\nif os.environ['RANK'] == '3':\n    raise ValueError('no such batch')\ntime.sleep(60)\n"
    (tmp_path / "train.py").write_text(script)
    words = [
        *("python", "-m", "torch.distributed.run", "--nnodes", "${nnodes}", "--node-rank", "${node_rank}")
    ]
    words += ["--nproc-per-node", "2", "--master-addr", "${master_addr}", "--master-port", "${master_port}"]
    command = ["bash", "-c", '"$CLUSTERCTL_PYTHON" "$@"', *words, "train.py"]
    job = make_project(
        tmp_path, script, script=None, launcher="command", nodes=2, nproc_per_node=2, command=command
    )

    result = cctl(cluster, "launch", job)

    assert result.code == 1
    assert "rank 3 on gpu02: ValueError: no such batch" in result.err
    status = json.loads(cctl(cluster, "status", "--json").out)
    ends = {
        rank["rank"]: (rank["exit"], rank["signal"]) for node in status["nodes"] for rank in node["ranks"]
    }
    assert ends[3] == (1, None)
    assert leftovers(cluster) == {}


@VARIANT
def test_a_head_and_its_workers_end_with_the_head(cluster: Lab, tmp_path: Path) -> None:
    """As with Ray: the worker on the other node exits with 1 when it loses the head; the run has succeeded."""
    script = """
        import os, socket, time
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["NODE_RANK"] == "0":
            with socket.create_server(place) as door:
                door.accept()[0].recv(1)
                time.sleep(0.3)
                print("world", os.environ["WORLD_SIZE"], flush=True)
            os._exit(0)
        while True:
            try:
                call = socket.create_connection(place)
            except OSError:
                time.sleep(0.05)
                continue
            raise SystemExit(1)
    """
    job = make_project(tmp_path, script, launcher="python", nproc_per_node=1, nodes=2, ends_with="node 0")

    result = cctl(cluster, "launch", job, "--json")

    assert result.code == 0, result.err
    assert "world 2" in said(result.json_lines())
    status = json.loads(cctl(cluster, "status", "--json").out)
    assert [node["state"] for node in status["nodes"]] == ["SUCCEEDED"] * 2
    assert leftovers(cluster) == {}


@VARIANT  # of test_of_two_launches_at_once_one_gets_the_gpus in test_locks_lab.py
def test_two_runs_share_the_nodes_on_different_gpus(cluster: Lab, tmp_path: Path) -> None:
    """Each sees its own GPU and has its own port and directories; a GPU that is not there is refused."""
    script = """
        import os, time
        print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MASTER_PORT"], os.environ["NPROC_PER_NODE"], os.getcwd())
        while os.path.exists("/tmp/go-on"):
            time.sleep(0.05)
    """
    more = {"launcher": "python", "nproc_per_node": "gpu", "nodes": 2, "activate": SIMULATED}
    more |= {"script": None, "module": "train"}
    jobs = [make_project(tmp_path / f"gpu{n}", script, name=f"gpu{n}", gpus=[n], **more) for n in (0, 1, 2)]
    for node in cluster.nodes:
        cluster.ssh(node.name, "touch /tmp/go-on")

    refused = cctl(cluster, "launch", jobs[2])
    first, second = (start_cctl(cluster, "launch", job, "--ignore-checks", "--json") for job in jobs[:2])
    lines = [[read_until(run, "/code").split() for _ in range(2)] for run in (first, second)]
    for node in cluster.nodes:
        cluster.ssh(node.name, "rm /tmp/go-on")
    ends = [run.communicate(timeout=HANG) for run in (first, second)]

    assert refused.code == 3
    assert "CC-GPU-018" in refused.err
    assert [run.returncode for run in (first, second)] == [0, 0], ends
    seen = [[json.loads(" ".join(words))["line"].split() for words in both] for both in lines]
    assert [{line[0] for line in both} for both in seen] == [{"0"}, {"1"}]
    assert len({line[1] for both in seen for line in both}) == 2, "a port for each run"
    assert {line[2] for both in seen for line in both} == {"1"}
    assert leftovers(cluster) == {}
