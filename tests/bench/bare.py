"""The faults that others are struck with too: torchrun by hand over ssh, torchrunx, DeepSpeed's launcher.

Each starts one plain worker on each of three nodes; it is not in a collective when the fault strikes (between two
of them, or while it loads data, saves or compiles), so that no broken connection sends the others of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from faulting import put
from measuring import HOW_TO_INSTALL, tell
from waiting import wait_until

from clusterctl.lab.labs import Lab, LabNode, break_node

LIMIT = 60.0  # seconds after which a peer that does not react is ended
START = 240.0  # seconds in which its workers must be there
NODES = 4  # three that work, and one from which torchrunx and DeepSpeed are started
FOLDER = "/tmp/peer"
WORKER = """
import os, sys, time

def work():
    with open("/tmp/peer/pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("/tmp/peer/pid.new", "/tmp/peer/pid")
    while not os.path.exists("/tmp/peer/order"):
        time.sleep(0.02)
    exec(open("/tmp/peer/order").read())

"""
TORCHRUNX = """
import logging, sys
import torchrunx
from pathlib import Path
logging.basicConfig(level=logging.INFO, stream=sys.stdout)  # what workers print comes as records
exec(Path("/tmp/peer/train.py").read_text().replace("\\nwork()", ""))
hosts = {hosts}
torchrunx.Launcher(hostnames=hosts, workers_per_host=1, backend="gloo").run(work)
"""
SSH_CONFIG = """Host *
  IdentityFile {home}/.ssh/id_peer
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
EXIT = "import ctypes; ctypes.string_at(0)"
FAULTS_OF_PEERS = (
    "worker-raises", "worker-killed", "worker-segfault", "torchrun-killed", "power-off-node-0", "power-off", "nic-down",
)  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """Another launcher: the command lines that start it, each with the place of the node on which it runs."""

    name: str
    lines: Callable[[Sequence[LabNode]], Sequence[tuple[int, str]]]


def peers_here(python: str | None) -> list[Peer]:
    """Give the peers that can be run; reports how to install the others."""
    found = [Peer("torchrun, static", static), Peer("torchrun, c10d", c10d)]
    for module in ("torchrunx", "deepspeed"):
        has = (
            python
            and not subprocess.run(
                [python, "-c", f"import {module}"], capture_output=True, check=False
            ).returncode
        )
        if not python or not has:
            tell(
                f"{module} is left out: {HOW_TO_INSTALL[module]} where torch is, and give its Python by --peers"
            )
        elif module == "torchrunx":
            found.append(Peer(module, lambda nodes: torchrunx(nodes, python)))
        else:
            found.append(Peer("DeepSpeed", lambda nodes: deepspeed(nodes, python)))
    return found


def torchrun_line(nodes: Sequence[LabNode], rank: int, flags: str) -> str:
    """Write one node's line as one would by hand."""
    nic = nodes[rank].plan.training_nic
    words = f"{sys.executable} -m torch.distributed.run --nnodes 3 --nproc-per-node 1 {flags}"
    return f"GLOO_SOCKET_IFNAME={nic} exec {words} {FOLDER}/train.py"


def static(nodes: Sequence[LabNode]) -> list[tuple[int, str]]:
    """Start torchrun with static rendezvous."""
    master = f"--master-addr {nodes[0].plan.ip} --master-port 29500"
    return [(rank, torchrun_line(nodes, rank, f"--node-rank {rank} {master}")) for rank in range(3)]


def c10d(nodes: Sequence[LabNode]) -> list[tuple[int, str]]:
    """Start torchrun with c10d rendezvous, hosted on node 0."""
    common = f"--rdzv-backend c10d --rdzv-id bench --rdzv-endpoint {nodes[0].plan.ip}:29400"
    return [
        (
            rank,
            torchrun_line(
                nodes,
                rank,
                f"{common} --local-addr {nodes[rank].plan.ip} --rdzv-conf is_host={int(rank == 0)}",
            ),
        )
        for rank in range(3)
    ]


def torchrunx(nodes: Sequence[LabNode], python: str) -> list[tuple[int, str]]:
    """Start torchrunx on the fourth node."""
    put(nodes[3], f"{FOLDER}/head.py", TORCHRUNX.replace("{hosts}", repr([node.name for node in nodes[:3]])))
    return [(3, f"cd {FOLDER} && exec {python} head.py")]


def deepspeed(nodes: Sequence[LabNode], python: str) -> list[tuple[int, str]]:
    """Start DeepSpeed's launcher on the fourth node, over pdsh."""
    put(nodes[3], f"{FOLDER}/hostfile", "".join(f"{node.name} slots=1\n" for node in nodes[:3]))
    master = f"--master_addr {nodes[0].plan.ip} --master_port 29500"
    flags = f"--hostfile {FOLDER}/hostfile --launcher pdsh --no_local_rank {master}"
    path = f"PATH={Path(python).parent}:$PATH DS_ACCELERATOR=cpu PDSH_RCMD_TYPE=ssh"
    return [
        (3, f"cd {FOLDER} && {path} exec {python} -m deepspeed.launcher.runner {flags} {FOLDER}/train.py")
    ]


def strike_peer(peer: Peer, lab: Lab, names: Sequence[str]) -> dict[str, float | None]:
    """Start the peer once for each fault, on nodes of its own; gives the seconds, None for more than the limit."""
    groups = {name: lab.nodes[NODES * n : NODES * n + NODES] for n, name in enumerate(names)}
    key = (lab.directory / "id_ed25519").read_text(encoding="ascii")
    with contextlib.ExitStack() as stack:
        for nodes in groups.values():
            prepare(lab, nodes, key)
            for rank, line in peer.lines(nodes):
                log = stack.enter_context((lab.directory / f"{nodes[rank].name}.peer").open("wb"))
                command = lab.ssh_command(nodes[rank].name, [line])
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                stack.callback(process.wait)
                stack.callback(process.kill)
            time.sleep(1.0)
        with ThreadPoolExecutor(len(groups)) as pool:
            late = {name: pool.submit(strike, name, lab, nodes) for name, nodes in groups.items()}
            return {name: seen.result() for name, seen in late.items()}


def prepare(lab: Lab, nodes: Sequence[LabNode], key: str) -> None:
    """Give the nodes the script, and the fourth a way into the others."""
    for node in nodes:
        put(node, f"{FOLDER}/train.py", WORKER + "work()\n")
    home = lab.plan.account.home
    put(nodes[3], f"{home}/.ssh/id_peer", key, "600")
    put(nodes[3], f"{home}/.ssh/config", SSH_CONFIG.replace("{home}", home), "600")


def strike(name: str, lab: Lab, nodes: Sequence[LabNode]) -> float | None:
    """Wait for the workers, strike, and wait for those of the other nodes to end."""
    place = 0 if name.endswith("node-0") else 1
    workers = {node.name: worker_of(lab, node) for node in nodes[:3]}
    others = [
        f"/proc/{node.read_state().pid}/root/proc/{workers[node.name]}"
        for node in nodes[:3]
        if node != nodes[place]
    ]
    pid = workers[nodes[place].name]
    STRIKES[name](lab, nodes[place], pid)
    began = time.monotonic()
    while any(map(os.path.exists, others)):
        if time.monotonic() > began + LIMIT:
            return None
        time.sleep(0.02)
    return time.monotonic() - began


def worker_of(lab: Lab, node: LabNode) -> int:
    """Wait for the worker on a node; gives its pid there."""
    pid = Path(f"/proc/{node.read_state().pid}/root{FOLDER}/pid")

    def logs() -> str:
        return "\n".join(path.read_text(errors="replace")[-600:] for path in lab.directory.glob("*.peer"))

    try:
        wait_until(pid.exists, "a worker")
    except AssertionError:
        raise SystemExit(f"no worker on {node.name}: {logs()}") from None
    return int(pid.read_text(encoding="ascii"))


def give(code: str) -> Callable[[Lab, LabNode, int], None]:
    """Let a worker do something."""
    return lambda _, node, __: put(node, f"{FOLDER}/order", code)


def kill(what: str) -> Callable[[Lab, LabNode, int], None]:
    """Kill a worker, or whoever started it."""
    return lambda _, node, pid: done(node.run(["sh", "-c", f"kill -9 {what.replace('PID', str(pid))}"]))


def cut(how: str) -> Callable[[Lab, LabNode, int], None]:
    """Break the node."""
    return lambda lab, node, _: done(break_node(lab, node.name, how))


def done(_: object) -> None:
    """Take a value that no one needs."""


STRIKES: Mapping[str, Callable[[Lab, LabNode, int], None]] = {
    "worker-raises": give("raise ValueError('failed on purpose')"),
    "worker-segfault": give(EXIT),
    "worker-killed": kill("PID"),
    "torchrun-killed": kill("$(awk '{print $4}' /proc/PID/stat)"),
    "power-off-node-0": cut("power"),
    "power-off": cut("power"),
    "nic-down": cut("nic-down"),
}
