"""From GO to the first collective: workers with a new interpreter each, against forked ones (`start` of a job).

    python -m tests.bench start [-n NODES] [-w WORKERS] [-r ROUNDS]

Builds a lab of its own and lets the two ways take turns. GO is when node 0's gate gets it, the collective when the
last rank has left it. Beside it: a worker's own processor time until then, and its memory that it shares with no one.
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

from measuring import Bar, Sample, Table, Way, alternate, options_for, ratio, report, wall_of

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

SCRIPT = """
import json, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
now = time.time()
with open("/proc/self/smaps_rollup") as source:
    rows = dict(line.split(":") for line in source.read().splitlines()[1:])
private = sum(int(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024
used = os.times()
print("MET", json.dumps({"at": now, "cpu": used.user + used.system, "private": private}), flush=True)
dist.destroy_process_group()
"""
JOB = "{name: bench, script: train.py, nproc_per_node: %d, nodes: %d, backend: gloo, grace: 2s}\n"
METHODS = ("exec", "fork")
MOST = 0.4  # of the time with exec


def main() -> None:
    """Run the rounds and print what was measured."""
    options = options_for(__doc__, rounds=5)
    options.add_argument("-n", "--nodes", type=int, default=3)
    options.add_argument("-w", "--workers", type=int, default=1)
    asked = options.parse_args()
    workers: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        place = Path(folder) / "clusterctl" / "lab"
        lab = up(place, LabOptions(name="bench", count=asked.nodes, nics=DEFAULT_NICS, bound=True))
        try:
            job = make_project(Path(folder) / "project", asked.workers, asked.nodes)
            ways = [
                Way(method, lambda method=method: measure(lab, job, method, workers[method]))  # type: ignore[misc]  # a default binds the loop's value
                for method in METHODS
            ]
            seen = alternate(ways, asked.rounds)
        finally:
            labs.down(place)
    bar = Bar("GO to the first collective", wall_of(seen["fork"]) / wall_of(seen["exec"]), MOST, "x exec")
    sys.exit(report("start", [table(seen, workers)], [bar], asked))


def make_project(folder: Path, workers: int, nodes: int) -> Path:
    """Write the job and its script."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text(JOB % (workers, nodes))
    return folder / "job.yaml"


def measure(lab: Lab, job: Path, method: str, workers: list[dict[str, float]]) -> Sample:
    """Launch once; `workers` gets what each of them reports."""
    base = [sys.executable, "-m", "clusterctl", "-i", str(lab.inventory)]
    command = [*base, "launch", str(job), "--json", "--set", f"start={method}"]
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    met = [json.loads(text[4:]) for line in lines if (text := str(line.get("line", ""))).startswith("MET ")]
    if done.returncode or not met:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    start, methods = read_journals(lab, next(line["run"] for line in lines if "run" in line))
    if methods != ({"fork"} if method == "fork" else set()):
        raise SystemExit(f"the workers were started by {methods}, not by {method}")
    workers += met
    last = max(worker["at"] for worker in met)
    return Sample(last - start, last - began)


def read_journals(lab: Lab, run: str) -> tuple[float, set[str]]:
    """Read when node 0 got GO, and how workers were started."""
    events: list[dict[str, Any]] = []
    for node in lab.nodes:
        content = node.run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"])
        events += [json.loads(line) for line in content.stdout.splitlines()]
    started = {event["method"] for event in events if event["event"] == "start_method"}
    return min(event["time"] for event in events if event["event"] == "go_received"), started


def table(seen: dict[str, list[Sample]], workers: dict[str, list[dict[str, float]]]) -> Table:
    """Put the medians together; the second column of a sample is the whole launch."""
    base = {name: statistics.median(sample.cpu for sample in samples) for name, samples in seen.items()}
    rows = [
        [
            name,
            round(wall_of(samples), 2),
            ratio(wall_of(samples), wall_of(seen["exec"])),
            round(base[name], 2),
            ratio(base[name], base["exec"]),
            round(statistics.median(worker["cpu"] for worker in workers[name]), 2),
            round(statistics.median(worker["private"] for worker in workers[name]), 1),
            " ".join(f"{sample.wall:.2f}" for sample in samples),
        ]
        for name, samples in seen.items()
    ]
    heads = ("start", "GO to collective, s", "x exec", "launch to it, s", "x exec", "worker CPU, s")
    return Table("From GO to the first collective", (*heads, "its own memory, MB", "all, s"), rows)


if __name__ == "__main__":
    main()
