"""Nodes without power and killed ranks: what a run goes on from and when, and what keeping its checkpoints costs.

    python -m tests.bench resume [--only PART ...] [--kills N] [--seed S] [--mib MIB] [--rate MBIT] [-r ROUNDS]

Each part builds a lab of its own, without a shared disk, and starts the same job: FSDP2 and DCP.

| part | what | on 2 cores |
|---|---|---|
| power | a node loses its power, node 0 or another, with a small and a large checkpoint, over slow NICs | 7 min |
| ranks | ranks killed at seeded moments, then a node's power: no other bits, nothing lost; without the key | 25 min |
| slower | the same training with and without the key, in turns | 5 min |
| smaller | two nodes lose their power one after the other, with `min_nodes` and no spare | 2 min |
| memory | what a keeper takes for a checkpoint of 1 GiB | 2 min |
| peers | rsync by hand, and torchrun's own elasticity (resume_peers.py) | 8 min |
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from driving import cctl, make_project, running_processes
from measuring import Bar, Cell, Table, options_for, report, tell
from resume_peers import compare_peers

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node

PROGRAM = (Path(__file__).parent / "resume_program.py").read_text(encoding="utf-8")
NODES, WIDTH = 4, 256
RANK_KILLS = 4  # of a run, before a node loses its power
RUN_LIMIT = 300.0  # seconds
LOSS = re.compile(r"step (\d+) loss (\S+)")
TOOK = re.compile(r"step \d+ loss \S+ took (\S+)")
SAVED = re.compile(r"saved in (\S+)")
BEGIN = re.compile(r"begins after (\d+) of")
COLLECTIVE = re.compile(r"collective at (\S+)")
FIRST_STEP = re.compile(r"step .* at (\S+)")
CHECKPOINTS = {"path": "${output_dir}/step-*", "complete": ".metadata"}
PRELOAD = ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"]
WARM_UP = 5  # steps that are not compared
Result = tuple[list[Table], list[Bar]]


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


@dataclass(frozen=True)
class Job:
    """What a run is made of."""

    steps: int = 80
    pause: float = 0.15
    every: int = 5
    mib: int = 0
    nodes: int = NODES
    spares: int = 1
    keep: bool = True
    min_nodes: int | None = None

    def write(self, folder: Path) -> Path:
        """Write script and job file."""
        return make_project(
            folder,
            PROGRAM,
            name=folder.name,
            nodes=self.nodes,
            args=[str(value) for value in (self.steps, WIDTH, self.pause, self.every, self.mib)],
            restart={"max": 20, "spares": self.spares},
            min_nodes=self.min_nodes,
            start="fork",
            preload=PRELOAD,
            env={"OMP_NUM_THREADS": "1"},
            checkpoints=CHECKPOINTS if self.keep else None,
        )


def main() -> int:
    """Run the parts that are asked for, and print what was found."""
    parts: dict[str, Callable[[Path, argparse.Namespace], Result]] = {
        "power": measure_power,
        "ranks": measure_ranks,
        "slower": measure_slower,
        "smaller": measure_smaller,
        "memory": measure_memory,
        "peers": measure_peers,
    }
    options = options_for(__doc__, rounds=3)
    options.add_argument("--only", nargs="+", choices=list(parts), default=list(parts), metavar="PART")
    options.add_argument("--kills", type=int, default=50, help="of the part `ranks`")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--mib", type=int, default=200, help="of the large checkpoint of the part `power`")
    options.add_argument("--rate", type=int, default=320, help="Mbit/s that a NIC sends there at most")
    asked = options.parse_args()
    tables: list[Table] = []
    bars: list[Bar] = []
    for name in asked.only:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cb-") as folder:
            os.environ["XDG_STATE_HOME"] = folder
            more_tables, more_bars = parts[name](Path(folder), asked)
        tell(f"{name}: {time.monotonic() - began:.0f} s in all")
        tables, bars = tables + more_tables, bars + more_bars
    return report("resume", tables, bars, asked)


@contextmanager
def lab_of(folder: Path, count: int, rate: int = 0) -> Iterator[Lab]:
    """Build a lab, whose NICs send at most so many Mbit/s, or as much as they can."""
    place = folder / "clusterctl" / "lab"
    lab = up(place, LabOptions(name="bench", count=count))
    try:
        for node in lab.nodes if rate else ():
            limit = (
                f"tc qdisc add dev {node.plan.training_nic} root tbf rate {rate}mbit burst 256kb latency 50ms"
            )
            node.run(limit.split())
        yield lab
    finally:
        labs.down(place)


# a node loses its power


def measure_power(folder: Path, asked: argparse.Namespace) -> Result:
    """Take the power of node 0 and of another one, each as the first failure of its run."""
    rows: list[list[Cell]] = []
    bars: list[Bar] = []
    for mib in (0, asked.mib):
        for place in (0, 2):
            with lab_of(folder, NODES + 1, asked.rate) as lab:
                row = time_power_loss(lab, folder / f"power-{mib}-{place}", Job(steps=9999, mib=mib), place)
            rows.append(row)
            wire = float(row[1] or 0) * 8.388608 / asked.rate
            what = f"{row[0]}, {row[1]} MiB: lost node to the next collective, less 1.2 x bytes / link"
            bars.append(Bar(what, float(row[-2] or 0) - 1.2 * wire, 10, "s"))
    columns = ("lost", "MiB", "noticed", "ended", "restored", "GO", "ranks", "collective", "first step")
    note = "Seconds since the power was cut; `restored`: on the node that took longest."
    return [Table(f"A lost node, {asked.rate} Mbit/s", columns, rows, note)], bars


def time_power_loss(lab: Lab, folder: Path, job: Job, place: int) -> list[Cell]:
    """Take the power of a node of a run that has a safe checkpoint; return when what followed had happened."""
    run = launch(lab, job.write(folder))
    while not newest_safe(read_status(lab, run)):
        time.sleep(0.5)
    victim, struck = lab.nodes[place], time.time()
    break_node(lab, victim.name, "power")
    if not wait_for_step(lab, run, 2):
        raise SystemExit(f"{run} ended: {read_status(lab, run)['run']}")
    events = read_events([node for node in lab.nodes if node != victim], run)
    text = cctl(lab, "logs", run, "--attempt", "2").out
    restored = [entry for entry in events if entry["event"] == "resume"]
    moments = [
        latest(events, name, struck)
        for name in ("stopping", "attempt_ended", "resume", "go_received", "workers")
    ]
    cctl(lab, "stop", run)
    wait_for_end(lab, run)
    size = max((entry["bytes"] for entry in restored), default=0) / (1 << 20)
    name = f"node {place}"
    for pattern in (COLLECTIVE, FIRST_STEP):
        found = pattern.search(text)
        moments.append(round(float(found[1]) - struck, 1) if found else None)
    tell(f"{name}, {size:.0f} MiB: {moments}")
    return [name, round(size, 1), *moments]


def read_events(nodes: Sequence[LabNode], run: str) -> list[dict[str, Any]]:
    """Return the journals of nodes."""
    texts = [node.run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"]).stdout for node in nodes]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def latest(events: Sequence[dict[str, Any]], name: str, struck: float) -> float | None:
    """Return how long after a moment the last node had an event."""
    times = [entry["time"] - struck for entry in events if entry["event"] == name and entry["time"] > struck]
    return round(max(times), 1) if times else None


# ranks


def measure_ranks(folder: Path, asked: argparse.Namespace) -> Result:
    """Kill ranks and take power at random moments; compare with an undisturbed run, and with one without the key."""
    chance, job = random.Random(asked.seed), Job()
    with lab_of(folder, NODES + 1) as lab:
        expected = read_losses(follow(lab, job.write(folder / "alone")))
        tell(f"undisturbed: {len(expected)} steps")
        without = strike(lab, Job(keep=False).write(folder / "without"), chance, expected, kills=0)
        runs: list[Seen] = []
        while sum(run.kills for run in runs) < asked.kills:
            name = f"run-{len(runs)}"
            runs.append(strike(lab, job.write(folder / name), chance, expected, kills=RANK_KILLS))
            tell(f"{name}: {runs[-1]}")
    bars = [
        Bar(
            "without the key: power losses that the training went on after",
            sum(map(bool, without.begins[1:])),
            0,
        ),
        Bar("runs that did not finish", sum(run.state != "SUCCEEDED" for run in runs), 0),
        Bar("steps with other bits than the undisturbed run", sum(run.wrong for run in runs), 0),
        Bar("attempts that began before the newest safe step", sum(run.lost for run in runs), 0),
    ]
    return [table_of(runs, without)], bars


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
            round(median(run.seconds), 1) if run.seconds else None,
        ]
        for name, run in [("without", without), *((str(count), run) for count, run in enumerate(runs, 1))]
    ]
    columns = (
        "run",
        "end",
        "kills",
        "safe step at each kill",
        "attempts began after",
        "other bits",
        "lost",
        "kill to step, s",
    )
    note = "Without the key rank 0 looks for the newest checkpoint on its own disk."
    return Table(f"{NODES} nodes and a spare, killed at random moments", columns, rows, note)


def strike(lab: Lab, job: Path, chance: random.Random, expected: dict[int, str], *, kills: int) -> Seen:
    """Run once: kill ranks, then take a node's power, and compare what each attempt printed."""
    run, seen = launch(lab, job), Seen()
    for victim in [*["rank"] * kills, "power"]:
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


# what it costs


def measure_slower(folder: Path, asked: argparse.Namespace) -> Result:
    """Train with and without the key in turns, with as many ranks as there are cores."""
    job = Job(steps=400, pause=0.0, every=100, mib=64, nodes=2, spares=0)
    steps: dict[bool, list[float]] = {True: [], False: []}
    sums: dict[bool, list[float]] = {True: [], False: []}
    with lab_of(folder, job.nodes) as lab:
        for turn in range(2 * asked.rounds):
            keep = turn % 4 in (0, 3)
            text = follow(lab, Job(**{**vars(job), "keep": keep}).write(folder / f"slower-{turn}"))
            took = [float(seconds) for seconds in TOOK.findall(text)][WARM_UP:]
            steps[keep] += took
            sums[keep].append(sum(took) + sum(map(float, SAVED.findall(text))))
            tell(f"{'with' if keep else 'without'}: step {median(took):.4f} s, all {sums[keep][-1]:.2f} s")
    rows: list[list[Cell]] = [
        [
            name,
            round(1000 * median(steps[keep]), 2),
            round(median(sums[keep]), 2),
            " ".join(f"{s:.2f}" for s in sums[keep]),
        ]
        for name, keep in (("without", False), ("with", True))
    ]
    columns = ("checkpoints", "step, ms", "steps and saves, s", "each run, s")
    bars = [
        Bar("a step with the key, x without", median(steps[True]) / median(steps[False]), 1.03),
        Bar("steps and saves with the key, x without", median(sums[True]) / median(sums[False]), 1.03),
    ]
    return [Table("2 nodes, a checkpoint of 67 MiB every 100 steps", columns, rows)], bars


def measure_memory(folder: Path, _: argparse.Namespace) -> Result:
    """Look at the keepers of two nodes after one checkpoint of 1 GiB is safe."""
    job = Job(steps=9999, every=20, mib=1024, nodes=2, spares=0)
    with lab_of(folder, job.nodes) as lab:
        run = launch(lab, job.write(folder / "memory"))
        while not newest_safe(read_status(lab, run)):
            time.sleep(0.5)
        keepers = [read_keeper(node) for node in lab.nodes]
        cctl(lab, "stop", run)
        wait_for_end(lab, run)
    rows: list[list[Cell]] = [[node.name, *keeper] for node, keeper in zip(lab.nodes, keepers, strict=True)]
    columns = ("keeper on", "peak, MiB", "processor, s", "of the run's seconds")
    bars = [Bar("peak of a keeper, MiB", max(keeper[0] for keeper in keepers), 100)]
    return [Table("A checkpoint of 1 GiB: each hashes and takes 512 MiB", columns, rows)], bars


def read_keeper(node: LabNode) -> tuple[float, float, float]:
    """Return the peak of a keeper's memory in MiB, its processor seconds, and its age."""
    pid = next(one.pid for one in node.list_processes() if " keeper " in one.command)
    read = f"grep VmHWM /proc/{pid}/status; cat /proc/{pid}/stat /proc/uptime"
    peak, stat, uptime = node.run(["sh", "-c", read]).stdout.splitlines()
    fields, tick = stat.rpartition(")")[2].split(), os.sysconf("SC_CLK_TCK")
    age = float(uptime.split()[0]) - int(fields[19]) / tick
    return round(int(peak.split()[1]) / 1024, 1), (int(fields[11]) + int(fields[12])) / tick, round(age, 1)


# with fewer nodes


def measure_smaller(folder: Path, _: argparse.Namespace) -> Result:
    """Take the power of two nodes, one after the other; the second one is node 0."""
    job = Job(steps=150, spares=0, min_nodes=2)
    with lab_of(folder, NODES) as lab:
        run = launch(lab, job.write(folder / "smaller"))
        for attempt, place in ((1, 2), (2, 0)):
            known = newest_safe(read_status(lab, run))
            while newest_safe(read_status(lab, run)) <= known:
                time.sleep(0.5)
            break_node(lab, lab.nodes[place].name, "power")
            if not wait_for_step(lab, run, attempt + 1):
                break
        wait_for_end(lab, run)
        for node in lab.nodes:  # the logs of a lost node count too
            heal_node(lab, node.name)
        whole = read_status(lab, run)
        status = whole["run"]
        texts = [
            cctl(lab, "logs", run, "--attempt", str(number)).out for number in range(1, status["attempt"] + 1)
        ]
    begins = [int(found[1]) for found in map(BEGIN.search, texts) if found]
    steps = [[int(step) for step, _ in LOSS.findall(text)] for text in texts]
    gaps = sum(
        done != list(range(begin + 1, begin + 1 + len(done)))
        for begin, done in zip(begins, steps, strict=False)
    )
    is_whole = status["state"] == "SUCCEEDED" and len(begins) == 3 and steps[-1][-1:] == [job.steps]
    row: list[Cell] = [
        status["state"],
        sum(entry["node_rank"] is not None for entry in whole["nodes"]),
        " ".join(map(str, begins)),
        steps[-1][-1] if steps[-1] else 0,
    ]
    bars = [
        Bar("4 to 3 to 2 nodes: did not finish", int(not is_whole), 0),
        Bar("4 to 3 to 2 nodes: attempts with a gap", gaps, 0),
    ]
    return [
        Table("Two nodes lost, min_nodes: 2", ("end", "nodes", "attempts began after", "last step"), [row])
    ], bars


# others


def measure_peers(folder: Path, _: argparse.Namespace) -> Result:
    """Lose a node without clusterctl."""
    with lab_of(folder, NODES + 1) as lab:
        return [compare_peers(lab, PROGRAM)], []


# a run in the lab


def follow(lab: Lab, job: Path) -> str:
    """Run to the end; return what it printed."""
    done = cctl(lab, "launch", job, timeout=RUN_LIMIT)
    if done.code:
        raise SystemExit(done.err)
    return done.out


def read_losses(text: str) -> dict[int, str]:
    """Return the loss of each step."""
    return {int(step): loss for step, loss in LOSS.findall(text)}


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


if __name__ == "__main__":
    raise SystemExit(main())
