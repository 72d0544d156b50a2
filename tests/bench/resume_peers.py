"""What others do about a node that loses its power: rsync by hand, torchrun's own elasticity, LM Resiliency.

`rsync by hand`: each node copies its newest checkpoint to the next node every 2 s. At the moment of the loss
a script ends torchrun on all nodes, copies the newest checkpoint that has all its files to all nodes, and starts
torchrun again with the spare: no time passes until the loss is noticed. `torchrun --nnodes 2:4` is left to itself: its
nodes have only the files that they wrote.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measuring import Cell, Table, tell

from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node

LIMIT = 60.0  # seconds after the loss in which a step must be done
ARGUMENTS = "9999 256 0.15 5 0"
COLLECTIVE = re.compile(r"collective at (\S+)")
DAEMON = "[all]\npath = {home}/by-hand\nread only = no\nuse chroot = no\nuid = 0\ngid = 0\n"
COPY_LOOP = """cd ~/by-hand/out || exit
while sleep 2; do
  newest=$(ls -td step-* 2>/dev/null | head -1)
  [ -z "$newest" ] || rsync -a "$newest" rsync://{next}/all/mirror/
done
"""
TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node 1"


def compare_peers(lab: Lab, program: str) -> Table:
    """Lose node 0 and another node with each of the others."""
    rows: list[list[Cell]] = []
    ways = {"rsync by hand": lose_by_hand, "torchrun --nnodes 2:4, c10d": lose_elastic}
    for place in (2, 0):
        for name, lose in ways.items():
            rows.append([name, f"node {place}", *lose(lab, program, place)])
            tell(f"{rows[-1]}")
    if importlib.util.find_spec("lm_resiliency") is None:
        tell(
            "lm_resiliency is not installed and left out: pip install lm-resiliency, where torch is at most 2.13"
        )
    columns = ("way", "lost", "next collective, s", "went on after step", "what was seen last")
    note = "Seconds since the power was cut. By hand the loss is known at once, and the script is ready."
    return Table("Without clusterctl", columns, rows, note)


@contextmanager
def prepared(lab: Lab, program: str) -> Iterator[None]:
    """Put the program on all nodes; end everything and remove it afterwards."""
    for node in lab.nodes:
        node.run(
            ["sh", "-c", "mkdir -p ~/by-hand/out ~/by-hand/mirror && cat > ~/by-hand/train.py"], input=program
        )
    try:
        yield
    finally:
        for node in lab.nodes:
            heal_node(lab, node.name)
            end(node)
            node.run(["sh", "-c", "rm -rf ~/by-hand"])


def start(node: LabNode, flags: str, log: str, resume: str = "") -> None:
    """Start torchrun on a node, its group in a file."""
    env = f"CLUSTERCTL_OUTPUT_DIR=out GLOO_SOCKET_IFNAME={node.plan.training_nic}"
    env += f" CLUSTERCTL_RESUME={resume}" if resume else ""
    command = f"exec env OMP_NUM_THREADS=1 {env} {TORCHRUN} {flags} train.py {ARGUMENTS}"
    output = f"> {log} 2>&1 < /dev/null &"
    node.run(["sh", "-c", f"cd ~/by-hand && setsid sh -c '{command}' {output}"])


def end(node: LabNode, *, but: str = "no process") -> None:
    """End what runs on a node: ranks have sessions of their own."""
    pids = [str(process.pid) for process in node.list_processes() if but not in process.command]
    node.run(["kill", "-9", *pids], check=False)


def read_log(nodes: Sequence[LabNode], log: str) -> str:
    """Return what torchrun and the ranks of all nodes have printed."""
    return "\n".join(
        node.run(["sh", "-c", f"cat ~/by-hand/{log}"], check=False).stdout
        for node in nodes
        if node.read_state().is_on
    )


def wait_for_checkpoint(nodes: Sequence[LabNode]) -> None:
    """Wait until two checkpoints are written, and a little."""
    until = time.monotonic() + LIMIT
    while "step 11 " not in read_log(nodes, "first"):
        if time.monotonic() > until:
            raise SystemExit(f"no step: {read_log(nodes, 'first')[-2000:]}")
        time.sleep(0.5)
    time.sleep(3.0)


def wait_for_collective(nodes: Sequence[LabNode], log: str, struck: float) -> list[Cell]:
    """Return when the next attempt did its first collective, the step that it went on after, and its last line."""
    while time.time() < struck + LIMIT:
        text = read_log(nodes, log)
        later = [float(moment) for moment in COLLECTIVE.findall(text) if float(moment) > struck]
        begins = re.findall(r"begins after (\d+) of", text[text.rfind("collective at") :])
        if later and begins:
            return [round(later[0] - struck, 1), int(begins[0]), ""]
        time.sleep(0.3)
    lines = [line.strip() for line in read_log(nodes, log).splitlines() if "Error" in line or "step " in line]
    return [None, None, f"no collective in {LIMIT:g} s: {lines[-1][:100] if lines else 'nothing'}"]


def lose_elastic(lab: Lab, program: str, place: int) -> list[Cell]:
    """Leave it to torchrun, on the disks of the nodes: rank 0 looks for its newest checkpoint there."""
    nodes, hub = lab.nodes[:4], lab.nodes[0].plan.ip
    flags = f"--nnodes 2:4 --max-restarts 3 --rdzv-backend c10d --rdzv-id bench --rdzv-endpoint {hub}:29400"
    with prepared(lab, program):
        for rank, node in enumerate(nodes):
            is_host = f"--rdzv-conf is_host={int(rank == 0)} --local-addr {node.plan.ip}"
            start(node, f"{flags} {is_host}", "first")
        wait_for_checkpoint(nodes)
        struck = time.time()
        break_node(lab, nodes[place].name, "power")
        return wait_for_collective(nodes, "first", struck)


def lose_by_hand(lab: Lab, program: str, place: int) -> list[Cell]:
    """Copy by rsync, and start again with the spare."""
    nodes, spare = lab.nodes[:4], lab.nodes[4]
    home = lab.plan.account.home
    with prepared(lab, program):
        for node in lab.nodes:
            node.run(["sh", "-c", "cat > ~/by-hand/rsyncd.conf"], input=DAEMON.format(home=home))
            serve = "rsync --daemon --no-detach --config=$HOME/by-hand/rsyncd.conf"
            node.run(["sh", "-c", f"{serve} > /dev/null 2>&1&"])
        start_static(nodes, "first")
        for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
            loop = COPY_LOOP.format(next=following.plan.ip)
            node.run(["sh", "-c", f"({loop}) > /dev/null 2>&1 < /dev/null&"])
        wait_for_checkpoint(nodes)
        struck = time.time()
        break_node(lab, nodes[place].name, "power")
        left = [node for node in nodes if node is not nodes[place]]
        following = [spare if node is nodes[place] else node for node in nodes]
        for node in left:
            end(node, but="rsync --daemon")
        newest = collect_newest(left, following)
        start_static(following, "second", f"out/{newest}")
        return wait_for_collective(following, "second", struck)


def start_static(nodes: Sequence[LabNode], log: str, resume: str = "") -> None:
    """Start torchrun on all nodes, each with its rank."""
    for rank, node in enumerate(nodes):
        master = f"--master-addr {nodes[0].plan.ip} --master-port 29500"
        start(node, f"--nnodes 4 --node-rank {rank} {master}", log, resume)


def collect_newest(left: Sequence[LabNode], receivers: Sequence[LabNode]) -> str:
    """Bring the newest checkpoint that has the files of all ranks to all nodes; return its name."""
    found: dict[str, set[str]] = {}
    for node in left:
        listed = node.run(
            [
                "sh",
                "-c",
                "cd ~/by-hand && ls -d out/step-*/* mirror/step-*/* out/step-*/.metadata "
                "mirror/step-*/.metadata 2>/dev/null",
            ],
            check=False,
        ).stdout
        for path in map(Path, listed.split()):
            found.setdefault(path.parent.name, set()).add(path.name)
    whole = [name for name, files in found.items() if len(files) >= len(receivers) + 1]
    newest = max(whole, key=lambda name: int(name.rpartition("-")[2]))
    sources = [(node, folder) for node in left for folder in ("out", "mirror")]
    copies = " ; ".join(
        f"rsync -a rsync://{node.plan.ip}/all/{folder}/{newest} ~/by-hand/out/" for node, folder in sources
    )
    running = [subprocess.Popen(_inside(node, copies), stderr=subprocess.DEVNULL) for node in receivers]
    for process in running:
        process.wait()
    return newest


def _inside(node: LabNode, command: str) -> list[str]:
    return node.lab.ssh_command(node.name, [command])
