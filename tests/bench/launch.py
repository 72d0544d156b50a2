"""From the command to the first collective: `clusterctl launch` against the same torchrun lines by hand over ssh.

    python tests/bench/launch.py [-n NODES] [-r ROUNDS]

Builds a lab of its own, alternates the two, and prints each round, the medians and their ratio. By hand means:
the code is on the nodes already, nothing is checked, and one `ssh` per node is started at the same moment.
clusterctl's time includes connecting, checks and code transfer. Not part of `./test`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusterctl.lab import labs
from clusterctl.lab.building import up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("FIRST COLLECTIVE", int(total.item()), flush=True)
dist.destroy_process_group()
"""
JOB = "{name: bench, script: train.py, nproc_per_node: 1, backend: gloo, grace: 2s}\n"
COMMAND = (sys.executable, "-m", "clusterctl")


def main() -> None:
    """Run the rounds and print what was measured."""
    options = argparse.ArgumentParser(description="launch to first collective")
    options.add_argument("-n", "--nodes", type=int, default=3)
    options.add_argument("-r", "--rounds", type=int, default=5)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        lab = up(
            Path(folder) / "clusterctl" / "lab",
            name="bench",
            count=asked.nodes,
            nics=DEFAULT_NICS,
            bound=True,
        )
        try:
            compare(lab, Path(folder), asked.rounds)
        finally:
            labs.down(Path(folder) / "clusterctl" / "lab")


def compare(lab: Lab, folder: Path, rounds: int) -> None:
    """Alternate the two ways, after one warm-up of each."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "job.yaml").write_text(JOB)
    lines = by_hand_lines(lab, project)
    times: dict[str, list[float]] = {"clusterctl": [], "by hand": []}
    for turn in range(rounds + 1):
        ours = time_clusterctl(lab, project)
        hand = time_by_hand(lab, lines, port=29500 + turn)
        print(
            f"{'warm-up' if turn == 0 else f'round {turn}'}: clusterctl {ours:.2f} s, by hand {hand:.2f} s",
            flush=True,
        )
        if turn:
            times["clusterctl"].append(ours)
            times["by hand"].append(hand)
    ours, hand = (statistics.median(times[way]) for way in ("clusterctl", "by hand"))
    print(f"median of {rounds}: clusterctl {ours:.2f} s, by hand {hand:.2f} s, ratio {ours / hand:.2f}")


def time_clusterctl(lab: Lab, project: Path) -> float:
    """Launch and wait for the last rank's line; gives seconds since the command was started."""
    command = [*COMMAND, "-i", str(lab.inventory), "launch", str(project / "job.yaml")]
    return _until_all_ranks([command], len(lab.nodes))


def time_by_hand(lab: Lab, lines: Sequence[str], port: int) -> float:
    """Start the torchrun lines over ssh at the same moment; a new port each time, as one would by hand."""
    commands = [
        lab.ssh_command(node.name, [line.replace("<port@node0>", str(port))])
        for node, line in zip(lab.nodes, lines, strict=True)
    ]
    return _until_all_ranks(commands, len(lab.nodes))


def _until_all_ranks(commands: Sequence[Sequence[str]], ranks: int) -> float:
    """Start commands into one pipe, read it until every rank has spoken, and wait for the commands to end."""
    read, write = os.pipe()
    began = time.monotonic()
    running = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    os.close(write)
    heard, seconds = 0, 0.0
    with os.fdopen(read, encoding="utf-8", errors="replace") as pipe:
        for line in pipe:
            heard += line.count("FIRST COLLECTIVE")  # two processes may write into one line
            if heard == ranks and not seconds:
                seconds = time.monotonic() - began
    codes = [process.wait() for process in running]
    if heard != ranks or any(codes):
        raise SystemExit(f"failed: {heard} of {ranks} ranks spoke, exit codes {codes}")
    return seconds


def by_hand_lines(lab: Lab, project: Path) -> list[str]:
    """Put the code on the nodes and give each node's shell line, as `--dry-run` shows it."""
    for node in lab.nodes:
        script = (project / "train.py").read_text()
        subprocess.run(
            lab.ssh_command(node.name, ["mkdir -p byhand && cat > byhand/train.py"]),
            input=script,
            text=True,
            check=True,
        )
    shown = subprocess.run(
        [*COMMAND, "-i", str(lab.inventory), "launch", "--dry-run", "--json", str(project / "job.yaml")],
        capture_output=True,
        text=True,
        check=True,
    )
    plan: dict[str, Any] = json.loads(shown.stdout)["plan"]
    return [_line(node) for node in plan["nodes"]]


def _line(node: dict[str, Any]) -> str:
    exports = [f"export {key}='{value}'" for key, value in node["env"].items()]
    words = [
        word.replace("<run_dir>/attempt-1", "logs").replace("<run_id>", "by-hand") for word in node["argv"]
    ]
    words = [word if flag != "--redirects" else "0" for flag, word in zip(["", *words], words, strict=False)]
    return "; ".join(["cd byhand", *exports, " ".join(words)])


if __name__ == "__main__":
    main()
