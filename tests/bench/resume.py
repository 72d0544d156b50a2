"""Nodes without power and killed ranks at random moments: what a run goes on from, against an undisturbed one.

    python -m tests.bench resume [--kills N] [--seed S] [--width W]

Builds a lab of four nodes and a spare without a shared disk. One run is left alone; each of the others loses ranks at
seeded moments and then the power of a node, node 0 as often as any other. A run that goes on from another checkpoint
than the newest safe one, or with other bits, is counted. The same job without the key `checkpoints` is shown once.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from driving import cctl, make_project, running_processes
from measuring import Bar, Cell, Table, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, break_node, heal_node

PROGRAM = (Path(__file__).parent / "resume_program.py").read_text(encoding="utf-8")
NODES, STEPS, PAUSE = 4, 80, 0.15
RANK_KILLS = 4  # of a run, before a node loses its power
RUN_LIMIT = 300.0  # seconds
LOSS = re.compile(r"step (\d+) loss (\S+)")
BEGIN = re.compile(r"begins after (\d+) of")
CHECKPOINTS = {"path": "${output_dir}/step-*", "complete": ".metadata"}


@dataclass
class Seen:
    """What became of one run."""

    state: str = ""
    kills: int = 0
    begins: list[int] = field(default_factory=list)  # the step that each attempt began after
    safe: list[int] = field(default_factory=list)  # the newest safe step when each kill came
    wrong: int = 0  # steps with other bits than those of the undisturbed run
    lost: int = 0  # attempts that began before the newest safe step
    seconds: list[float] = field(default_factory=list)  # from a kill to the next attempt's first step


def main() -> int:
    """Run the undisturbed run and the others, and print what was found."""
    options = options_for(__doc__, rounds=1)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--width", type=int, default=256, help="of the network: 4 x WIDTH x WIDTH x 12 bytes"
    )
    asked = options.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        place = Path(folder) / "clusterctl" / "lab"
        lab = up(place, LabOptions(name="bench", count=NODES + 1))
        try:
            expected = run_alone(lab, Path(folder) / "alone", asked.width)
            tell(f"undisturbed: {len(expected)} steps")
            without = strike(lab, Path(folder) / "without", asked.width, chance, expected, keep=False)
            runs: list[Seen] = []
            while sum(run.kills for run in runs) < asked.kills:
                name = f"run-{len(runs)}"
                runs.append(strike(lab, Path(folder) / name, asked.width, chance, expected, keep=True))
                tell(f"{name}: {runs[-1]}")
        finally:
            labs.down(place)
    return report("resume", [table_of(runs, without)], bars_of(runs), asked)


def table_of(runs: list[Seen], without: Seen) -> Table:
    """Return a row for each run."""
    rows: list[list[Cell]] = [
        [
            name,
            run.state,
            run.kills,
            " ".join(map(str, run.safe)),
            " ".join(map(str, run.begins)),
            run.wrong,
            run.lost,
        ]
        for name, run in [("without", without), *((str(count), run) for count, run in enumerate(runs, 1))]
    ]
    columns = ("run", "end", "kills", "safe step at each kill", "attempts began after", "other bits", "lost")
    return Table(f"{NODES} nodes and a spare, FSDP2 and DCP, {STEPS} steps", columns, rows)


def bars_of(runs: list[Seen]) -> list[Bar]:
    """Return what must hold."""
    return [
        Bar("runs that did not finish", sum(run.state != "SUCCEEDED" for run in runs), 0),
        Bar("steps with other bits than the undisturbed run", sum(run.wrong for run in runs), 0),
        Bar("attempts that began before the newest safe step", sum(run.lost for run in runs), 0),
        Bar("from a kill to the next step, median", median(s for run in runs for s in run.seconds), 10, "s"),
    ]


def job_of(folder: Path, width: int, *, keep: bool) -> Path:
    """Write the job."""
    more: dict[str, Any] = {"checkpoints": CHECKPOINTS} if keep else {}
    return make_project(
        folder,
        PROGRAM,
        name=folder.name,
        nodes=NODES,
        args=[str(STEPS), str(width), str(PAUSE)],
        restart={"max": 20, "spares": 1},
        start="fork",
        env={"OMP_NUM_THREADS": "1"},
        **more,
    )


def run_alone(lab: Lab, folder: Path, width: int) -> dict[int, str]:
    """Return the loss of each step of a run that nothing happens to."""
    done = cctl(lab, "launch", job_of(folder, width, keep=True), timeout=RUN_LIMIT)
    if done.code:
        raise SystemExit(done.err)
    return {int(step): loss for step, loss in LOSS.findall(done.out)}


def strike(
    lab: Lab, folder: Path, width: int, chance: random.Random, expected: dict[int, str], *, keep: bool
) -> Seen:
    """Run once: kill ranks, then take a node's power, and compare what each attempt printed."""
    run, seen = launch(lab, job_of(folder, width, keep=keep)), Seen()
    victims = [*["rank"] * (RANK_KILLS if keep else 0), "power"]
    for victim in victims:
        time.sleep(chance.uniform(2.0, 8.0))
        status = read_status(lab, run)
        if status["run"]["state"] != "RUNNING":
            break
        seen.safe.append(newest_safe(status))
        node = chance.choice([entry["node"] for entry in status["nodes"] if entry["node_rank"] is not None])
        attempt, struck = status["run"]["attempt"], time.monotonic()
        kill_rank(lab, node, run) if victim == "rank" else break_node(lab, node, "power")
        seen.kills += 1
        if not wait_for_step(lab, run, attempt + 1):
            break
        seen.seconds.append(time.monotonic() - struck)
    wait_for_end(lab, run)
    for name in (entry.name for entry in lab.nodes):
        heal_node(lab, name)
    status = read_status(lab, run)
    seen.state = status["run"]["state"]
    compare_logs(lab, run, status["run"]["attempt"], expected, seen)
    return seen


def launch(lab: Lab, job: Path) -> str:
    """Launch without following; return the run's id."""
    done = cctl(lab, "launch", job, "--detach", "--json", timeout=RUN_LIMIT)
    if done.code:
        raise SystemExit(done.err)
    run: str = next(line["run"] for line in done.json_lines() if "run" in line)
    return run


def read_status(lab: Lab, run: str) -> dict[str, Any]:
    """Return what `status` knows of the run."""
    status: dict[str, Any] = json.loads(cctl(lab, "status", run, "--json").out)
    return status


def newest_safe(status: dict[str, Any]) -> int:
    """Return the step of the newest checkpoint that had all its copies; 0 if none had."""
    known = [entry for entry in status["run"].get("checkpoints") or () if entry["state"] == "safe"]
    return max((int(entry["name"].rpartition("-")[2]) for entry in known), default=0)


def kill_rank(lab: Lab, name: str, run: str) -> None:
    """Send SIGKILL to the rank of a node."""
    node = next(node for node in lab.nodes if node.name == name)
    state = json.loads(node.run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/state.json"]).stdout)
    for rank in state["ranks"].values():
        node.run(["kill", "-KILL", str(rank["pid"])])


def wait_for_step(lab: Lab, run: str, attempt: int) -> bool:
    """Wait until an attempt has done a step; False if the run has ended."""
    until = time.monotonic() + RUN_LIMIT
    while time.monotonic() < until:
        shown = cctl(lab, "logs", run, "--attempt", str(attempt))
        if LOSS.search(shown.out):
            return True
        if not running_processes(lab):
            return False
        time.sleep(0.2)
    raise SystemExit(f"{run}: attempt {attempt} did no step in {RUN_LIMIT:g} s")


def wait_for_end(lab: Lab, run: str) -> None:
    """Wait until nothing of a run lives."""
    until = time.monotonic() + RUN_LIMIT
    while running_processes(lab):
        if time.monotonic() > until:
            raise SystemExit(f"{run} did not end")
        time.sleep(0.5)


def compare_logs(lab: Lab, run: str, attempts: int, expected: dict[int, str], seen: Seen) -> None:
    """Count the steps that have other bits than they should, and the attempts that began too early."""
    for attempt in range(1, attempts + 1):
        text = cctl(lab, "logs", run, "--attempt", str(attempt)).out
        begin = BEGIN.search(text)
        seen.wrong += sum(expected[int(step)] != loss for step, loss in LOSS.findall(text))
        if begin:
            seen.begins.append(int(begin[1]))
            if attempt > 1 and int(begin[1]) < seen.safe[attempt - 2]:
                seen.lost += 1


if __name__ == "__main__":
    raise SystemExit(main())
