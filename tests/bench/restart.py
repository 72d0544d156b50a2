"""From a loss to the first collective of the next attempt: a run on two nodes with a spare, no one's help.

    python -m tests.bench restart [-r ROUNDS] [--start exec|fork]

Builds a lab of its own. Each round launches a run, and once its ranks have met, kills a worker, or cuts the power
of node 1, or of node 0, which leads. Measured: until the nodes have ended the attempt, from there to the first
collective of the next one (a pause of 1 s is in it), and both together. Not part of `./test`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import Bar, Table, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, break_node, heal_node
from clusterctl.lab.layout import DEFAULT_NICS

SCRIPT = """
import os, signal, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("met", time.time(), flush=True)
while os.environ["CLUSTERCTL_ATTEMPT"] == "1":
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
    if os.path.exists("/tmp/die"):
        os.remove("/tmp/die")
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""
JOB = """
name: bench
script: train.py
nproc_per_node: 1
backend: gloo
nodes: 2
restart: {spares: 1}
start: %s
"""
MOST_KILLED, MOST_LOST = 1.5, 10.0  # seconds
FAULTS = {"a worker is killed": None, "node 1 has no power": 1, "node 0 has no power": 0}


def main() -> None:
    """Run the rounds and print what was measured."""
    options = options_for(__doc__, rounds=3)
    options.add_argument("--start", choices=("exec", "fork"), default="fork")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        place = Path(folder) / "clusterctl" / "lab"
        lab = up(place, LabOptions(name="bench", count=3, nics=DEFAULT_NICS, bound=True))
        try:
            job = make_project(Path(folder) / "project", asked.start)
            seen = {name: [measure(lab, job, name) for _ in range(asked.rounds)] for name in FAULTS}
        finally:
            labs.down(place)
    sys.exit(report("restart", [table(seen)], bars(seen), asked))


def make_project(folder: Path, start: str) -> Path:
    """Write the job and its script; `start` says whether workers are forked."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text(JOB % start)
    return folder / "job.yaml"


def measure(lab: Lab, job: Path, fault: str) -> tuple[float, float]:
    """Let the fault happen once; gives seconds to the attempt's end, and from there to the next collective."""
    command = [sys.executable, "-m", "clusterctl", "-i", str(lab.inventory), "launch", str(job), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        lines = map(json.loads, launcher.stdout)
        if not any(str(line.get("line", "")).startswith("met") for line in lines):
            raise SystemExit(launcher.stderr.read() if launcher.stderr else "")
        time.sleep(0.5)
        began = time.time()
        node = FAULTS[fault]
        if node is None:
            lab.nodes[1].run(["touch", "/tmp/die"])
        else:
            break_node(lab, lab.nodes[node].name, "power")
        rest = list(lines)
    if node is not None:
        heal_node(lab, lab.nodes[node].name)
    ended, met = read_story(rest)
    tell(f"{fault}: ended after {ended - began:.2f} s, {met - ended:.2f} s to the next collective")
    return ended - began, met - ended


def read_story(lines: list[dict[str, Any]]) -> tuple[float, float]:
    """Find when the first attempt had ended and when the ranks of the second had met; the lab has one clock."""
    result = lines[-1]["verdict"]
    if result["state"] != "SUCCEEDED" or result["attempt"] != 2:
        raise SystemExit(f"not what was to happen: {result}")
    words = [str(line["line"]) for line in lines[:-1] if line["attempt"] == 2]
    met = [float(word.split()[1]) for word in words if word.startswith("met")]
    return float(result["attempts"][0]["ended"]), max(met)


def table(seen: dict[str, list[tuple[float, float]]]) -> Table:
    """Put the medians together."""
    rows = [
        [fault, *(round(value, 2) for value in medians(times)), " ".join(f"{sum(one):.1f}" for one in times)]
        for fault, times in seen.items()
    ]
    heads = ("fault", "attempt ended after, s", "next collective after that, s", "together, s", "all, s")
    return Table("a run on two nodes with one spare", heads, rows)


def medians(times: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Give the medians of both spans, and of their sum."""
    ends, starts = zip(*times, strict=True)
    return statistics.median(ends), statistics.median(starts), statistics.median(map(sum, times))


def bars(seen: dict[str, list[tuple[float, float]]]) -> list[Bar]:
    """Hold what the design promises from a killed worker, or a lost node, to the next collective."""
    return [
        Bar(f"{fault}: next collective", medians(times)[2], MOST_KILLED if node is None else MOST_LOST, "s")
        for (fault, times), node in zip(seen.items(), FAULTS.values(), strict=True)
    ]


if __name__ == "__main__":
    main()
