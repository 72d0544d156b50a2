"""Drive clusterctl as a user does: as a command, with a project of a job file and a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import run_command
from waiting import HANG

from clusterctl.lab.labs import Lab, NodeProcess

COMMAND = (sys.executable, "-m", "clusterctl")

# The environment of a job for which torch is not the point: its nodes start it in no time.
STUBBED = {"PYTHONPATH": str(Path(__file__).parents[1] / "stub")}

# A guardian or its agent, often a fork of it; what else runs from the payload, as torchrun does, is a leftover.
GUARDIAN = re.compile(r"/payload\S*\.zip (guardian|agent) ")

# Every rank says who and where it is, and proves that it reaches the others.
HELLO = """
import json, os, socket
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "NCCL_SOCKET_IFNAME",
         "GLOO_SOCKET_IFNAME", "GLOO_IFACE", "TP_SOCKET_IFNAME", "CLUSTERCTL_OUTPUT_DIR")
print(json.dumps({"host": socket.gethostname(), "sum": total.item(), **{name: os.environ.get(name) for name in names}}))
dist.destroy_process_group()
"""

# Without torch (`launcher: python`, two nodes): a rank that the other one leaves fails with the error of Gloo.
LINKED = """
import os, socket, time
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
link = None
if os.environ["NODE_RANK"] == "0":
    with socket.create_server(place) as server:
        link = server.accept()[0]
while link is None:
    try:
        link = socket.create_connection(place)
    except OSError:
        time.sleep(0.05)
print("linked", flush=True)
link.recv(1)
raise RuntimeError("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
"""


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str
    seconds: float

    def json_lines(self) -> list[dict[str, Any]]:
        """Read stdout as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def verdict(self) -> dict[str, Any]:
        """Read the last line of stdout, of a run that was followed to its end; a launch that failed before has none."""
        verdict: dict[str, Any] = self.json_lines()[-1]["verdict"]
        assert "cause" in verdict, (verdict, self.err)
        return verdict


def environment(lab: Lab | None, **more: str) -> dict[str, str]:
    """Give the environment of a command: the lab's inventory, no colours, an English locale."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("CLUSTERCTL_", "NO_COLOR"))
    }
    where = {"CLUSTERCTL_INVENTORY": str(lab.inventory)} if lab else {}
    return {**clean, **where, **more}


def cctl(
    lab: Lab | None, *args: str | Path, timeout: float = 5 * HANG, cwd: Path | None = None, **env: str
) -> Result:
    """Run `clusterctl ARGS` to its end."""
    began = time.monotonic()
    done = run_command(list(map(str, args)), cwd=cwd, env=environment(lab, **env), timeout=timeout)
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def start_cctl(lab: Lab, *args: str | Path, **env: str) -> subprocess.Popen[str]:
    """Start `clusterctl ARGS` and leave it running, in a session of its own."""
    return subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(lab, **env),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def make_project(folder: Path, source: str, **job: Any) -> Path:
    """Write train.py and job.yaml; gives the job file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(source), encoding="utf-8")
    text = {"name": "t", "script": "train.py", "nproc_per_node": 1, "backend": "gloo", "grace": "2s", **job}
    text = {key: value for key, value in text.items() if value is not None}
    (folder / "job.yaml").write_text(json.dumps(text, ensure_ascii=False), encoding="utf-8")
    return folder / "job.yaml"


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read a command's stdout up to the line that holds a text, and give that line."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(
        f"{text!r} was never printed; stderr: {process.stderr.read() if process.stderr else ''}"
    )


def tagged(lab: Lab, run: str = "") -> dict[str, list[NodeProcess]]:
    """List the processes that belong to runs, by node; empty when nothing is left."""
    found = {
        node.name: [
            process for process in node.list_processes() if process.run_id.startswith(run) and process.run_id
        ]
        for node in lab.nodes
    }
    return {name: processes for name, processes in found.items() if processes}


def leftovers(lab: Lab) -> dict[str, list[str]]:
    """List what a run has left on the nodes; a guardian and its agent, which exit after they reported, have time to."""
    deadline = time.monotonic() + HANG
    while True:
        found = running_processes(lab)
        exiting = all(GUARDIAN.search(command) for commands in found.values() for command in commands)
        if not found or not exiting or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def running_processes(lab: Lab) -> dict[str, list[str]]:
    """List everything on the nodes that a session does not explain: workers, agents, stray children."""
    found = {
        node.name: [
            process.command
            for process in node.list_processes()
            if process.run_id
            or any(word in process.command for word in ("payload", "train.py", "sleep", "torch"))
        ]
        for node in lab.nodes
    }
    return {name: commands for name, commands in found.items() if commands}


def wait_until_gone(lab: Lab) -> None:
    """Wait until nothing is left on the nodes; fails with what is."""
    deadline = time.monotonic() + HANG
    while found := running_processes(lab):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def kill_leftovers(lab: Lab) -> None:
    """End what a failed test has left on the nodes, guardians first; a clean test leaves nothing to end."""
    for node in lab.nodes:
        ours = [
            process for process in node.list_processes() if process.run_id or "/payload" in process.command
        ]
        if ours:
            node.run(["kill", "-9", *(str(process.pid) for process in ours)], check=False)


def run_id(text: str) -> str:
    """Find the run's name in what `launch` said."""
    return next(line.split()[1].rstrip(":") for line in text.splitlines() if line.startswith("run "))


def said(entries: Sequence[Mapping[str, Any]], stream: str = "stdout") -> list[str]:
    """Give the log lines of one stream from `launch --json` or `logs --json`."""
    return [
        entry["line"] for entry in entries if entry.get("stream") == stream and entry.get("rank") is not None
    ]
