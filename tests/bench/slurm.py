"""Faults of a job on a real Slurm: launched by clusterctl, and beside it by srun --kill-on-bad-exit with torchrun.

    python tests/bench/slurm.py [-r ROUNDS] [--only CASE ...] [--write FILE]

Builds a lab of three nodes with three NIC names and its own Slurm (`slurm-wlm`; KillWait 5 s and SlurmdTimeout 10 s in
place of the defaults 30 and 300). Seconds are counted from the fault until no worker is left on the other nodes, and
until the job is over for its user; what is not over after LIMIT is ended. Every case uses the same job file, which is
also launched over SSH and exported for sbatch and bash. Not part of `./test`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from driving import cctl, make_project, start_cctl
from measuring import Bar, Cell, Table, describe_machine, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node
from clusterctl.lab.layout import DEFAULT_NICS, SLURM_INVENTORY
from clusterctl.lab.netns.init import SLURM_CONF

LIMIT = 60.0  # seconds
START = 180.0  # seconds in which workers must have met
AWAY = 5.0  # seconds without the login node
LOGIN, FAILING, LOST = 0, 1, 2  # nodes
SCRIPT = """
import os, subprocess, sys, time, traceback
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("met", time.time(), flush=True)
dist.barrier()
while "once" not in sys.argv:
    time.sleep(0.05)
    if os.path.exists("/tmp/order"):
        with open("/tmp/order") as file:
            order = file.read()
        os.remove("/tmp/order")
        if order == "child":
            subprocess.Popen(["sleep", "3600"], start_new_session=True)
        if order == "say":
            print("here", time.time(), flush=True)
        else:
            try:
                raise ValueError("no such sample")
            except ValueError:
                traceback.print_exc()
                os._exit(1)  # at once: torch takes seconds of its own to leave a busy machine
"""
BATCH = """#!/bin/bash
#SBATCH --job-name=plain --nodes=3 --ntasks-per-node=1 --exclusive --output=%x-%j.out
export MASTER={master}
srun --kill-on-bad-exit=1 bash -c 'exec {python} -m torch.distributed.run --nnodes=3 --nproc-per-node=1 \\
    --node-rank=$SLURM_NODEID --master-addr=$MASTER --master-port=29500 train.py'
"""
BLOCKER = "sbatch --parsable -N3 --exclusive --output=/dev/null --wrap 'srun sleep 3600'"
WORKERS = ("train.py", "sleep 3600")  # words of their commands, and of torchrun's
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "")


class Took(NamedTuple):
    """Seconds until the job was over for its user, and until no worker was left; None: more than the limit."""

    over: float | None
    workers: float | None = None


@dataclass
class Bench:
    """The lab, the job, and how Slurm's programs are run on its login node."""

    lab: Lab
    folder: Path
    job: Path

    @property
    def inventory(self) -> str:
        """The inventory by which jobs go to Slurm."""
        return str(self.lab.directory / SLURM_INVENTORY)

    @property
    def home(self) -> Path:
        """The home of all nodes, as this machine sees it."""
        return Path(self.lab.plan.home_directory(self.lab.plan.nodes[0]))

    def slurm(self, command: str, folder: str = "") -> str:
        """Run a command of Slurm's on the login node."""
        place = f"cd {folder or '.'} && " if folder else ""
        line = f"cd; {place}export SLURM_CONF={SLURM_CONF}; {command}"
        return self.lab.nodes[LOGIN].run(["sh", "-c", line], check=False).stdout.strip()

    def leftovers(
        self, nodes: Sequence[LabNode], named: Sequence[str] = (*WORKERS, "payload")
    ) -> list[tuple[LabNode, int]]:
        """List the processes of jobs on nodes."""
        return [
            (node, process.pid)
            for node in nodes
            for process in node.list_processes()
            if any(word in process.command for word in named)
        ]

    def clear(self) -> None:
        """End everything, and wait until Slurm has all nodes again."""
        self.slurm("scancel --signal=KILL $(squeue -h -o %i); scancel $(squeue -h -o %i)")
        for node, pid in self.leftovers(self.lab.nodes):
            node.run(["kill", "-9", str(pid)], check=False)
        for node in self.lab.nodes:
            node.run(["rm", "-f", "/tmp/order"])
        wait(lambda: self.slurm("squeue -h") == "" and self.slurm("sinfo -h -o %T") == "idle", START)


def wait(condition: Callable[[], Any], limit: float, every: float = 0.05) -> float | None:
    """Wait for something; gives the seconds, None beyond the limit."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit:
            return None
        time.sleep(every)
    return time.monotonic() - began


class OurJob:
    """A job launched by clusterctl, with a follower."""

    def __init__(self, bench: Bench, *words: str) -> None:
        self._bench, self._lines = bench, list[dict[str, Any]]()
        self.process = start_cctl(bench.lab, "-i", bench.inventory, "launch", bench.job, "--json", *words)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(json.loads(line))

    @property
    def run(self) -> str:
        """The run's id."""
        return str(next((line["run"] for line in self._lines if "run" in line), ""))

    def count(self, word: str) -> int:
        """Count the lines of workers that begin with a word."""
        return sum(str(line.get("line", "")).startswith(word) for line in list(self._lines))

    def is_over(self) -> bool:
        """Whether the user has the end."""
        return self.process.poll() is not None

    def describe_wait(self) -> str:
        """Give what is shown while it waits."""
        wait(lambda: self.run, START)
        found = cctl(None, "-i", self._bench.inventory, "status", self.run, "--json")
        return str(json.loads(found.out)["nodes"][0]["reason"])

    def stop(self) -> None:
        """Stop it as its user does."""
        cctl(None, "-i", self._bench.inventory, "stop", self.run, "-y")

    def output(self) -> str:
        """Give the last lines of its output."""
        return "\n".join(str(line.get("line", line)) for line in self._lines[-20:])

    def number(self) -> str:
        """Give Slurm's number of the job."""
        return str(next(line["slurm_job"] for line in self._lines if "slurm_job" in line))

    def result(self) -> str:
        """Give what its user is shown of the end."""
        wait(lambda: any("verdict" in line for line in list(self._lines)), 5.0)
        verdict = next((line["verdict"] for line in self._lines if "verdict" in line), {})
        cause, state = verdict.get("cause") or {}, verdict.get("state", "no end")
        if cause.get("rank") is not None:
            return (
                f"{state}: rank {cause['rank']} on {cause['node']}: {cause['exception'] or cause['ending']}"
            )
        if cause:
            return f"{state}: {cause['node']}: {cause['ending']}"
        return ": ".join([state, *list(verdict.get("reasons", {}).values())[:1]])


class PlainJob:
    """The same script submitted as many clusters recommend it."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._folder = bench, bench.home / "plain"
        self._folder.mkdir(exist_ok=True)
        (self._folder / "train.py").write_text(SCRIPT)
        master = bench.lab.plan.nodes[0].ip
        (self._folder / "job.sbatch").write_text(BATCH.format(master=master, python=sys.executable))
        self._number = bench.slurm("sbatch --parsable job.sbatch", "plain")

    def count(self, word: str) -> int:
        """Count the lines of workers that begin with a word."""
        file = self._folder / f"plain-{self._number}.out"
        return (
            len(re.findall(rf"^{word}", file.read_text(errors="replace"), re.MULTILINE))
            if file.exists()
            else 0
        )

    def is_over(self) -> bool:
        """Whether Slurm shows that the job is over."""
        return self._bench.slurm(f"squeue -h -t all -o %T -j {self._number}") in FINAL

    def describe_wait(self) -> str:
        """Give what is shown while it waits."""
        wait(lambda: self._bench.slurm(f"squeue -h -o %r -j {self._number}") not in ("None", ""), 10)
        return self._bench.slurm(f"squeue -h -o '%T (%r)' -j {self._number}")

    def stop(self) -> None:
        """Stop it as its user does."""
        self._bench.slurm(f"scancel {self._number}")

    def output(self) -> str:
        """Give the last lines of its output."""
        file = self._folder / f"plain-{self._number}.out"
        return file.read_text(errors="replace")[-3000:] if file.exists() else ""

    def number(self) -> str:
        """Give Slurm's number of the job."""
        return self._number

    def result(self) -> str:
        """Give what Slurm has on record of the end."""
        words = self._bench.slurm(f"scontrol show job -o {self._number}").split()
        return " ".join(word for word in words if word.startswith(("JobState=", "ExitCode=")))


Job = OurJob | PlainJob
WAYS: Mapping[str, Callable[[Bench], Job]] = {"clusterctl": OurJob, "srun": PlainJob}


@dataclass
class Seen:
    """What was measured of one case in one way; None stands for more than the limit."""

    over: list[float | None] = field(default_factory=list)
    workers: list[float | None] = field(default_factory=list)
    text: str = ""


def begin(bench: Bench, way: str) -> Job:
    """Start a job, and wait until its workers have met."""
    job = WAYS[way](bench)
    met = len(bench.lab.nodes)
    if wait(lambda: job.count("met") >= met or job.is_over(), START, 0.2) is None or job.count("met") < met:
        raise SystemExit(f"{way}: the workers have not met: {job.result()}\n{job.output()}")
    return job


def until_over(bench: Bench, job: Job, without: int | None = None) -> Took:
    """Wait until no worker is left on the nodes that live, and then until the job is over and nothing of it is left."""
    nodes = [node for place, node in enumerate(bench.lab.nodes) if place != without]
    began = time.monotonic()
    workers = wait(lambda: not bench.leftovers(nodes, WORKERS), LIMIT)
    if wait(lambda: not bench.leftovers(nodes) and job.is_over(), LIMIT - (time.monotonic() - began)) is None:
        return Took(None, workers)
    return Took(time.monotonic() - began, workers)


def order(bench: Bench, text: str, place: int = FAILING) -> None:
    """Let the worker of a node do something."""
    bench.lab.nodes[place].run(["sh", "-c", f"printf {text} >/tmp/order.new && mv /tmp/order.new /tmp/order"])


def launch(bench: Bench, way: str) -> tuple[Took, str]:
    """From the command to the last worker's first collective."""
    began = time.monotonic()
    job = begin(bench, way)
    took = time.monotonic() - began
    job.stop()
    return Took(took), "the interface of each node is found" if way == "clusterctl" else ""


def failing(what: str) -> Callable[[Bench, str], tuple[Took, str]]:
    """Let the rank of node 1 fail."""

    def case(bench: Bench, way: str) -> tuple[Took, str]:
        job = begin(bench, way)
        order(bench, what)
        took = until_over(bench, job)
        return took, job.result()

    return case


def lost_node(bench: Bench, way: str) -> tuple[Took, str]:
    """Cut the power of node 2."""
    job, name = begin(bench, way), bench.lab.nodes[LOST].name
    break_node(bench.lab, name, "power")
    try:
        took = until_over(bench, job, LOST)
        return took, job.result()
    finally:
        heal_node(bench.lab, name)


def stopped(bench: Bench, way: str) -> tuple[Took, str]:
    """Stop it as its user does: `clusterctl stop`, `scancel`."""
    job = begin(bench, way)
    threading.Thread(target=job.stop).start()
    took = until_over(bench, job)
    return took, job.result()


def cancelled(bench: Bench, way: str) -> tuple[Took, str]:
    """Cancel it by scancel, from outside."""
    job = begin(bench, way)
    bench.slurm(f"scancel {job.number()}")
    took = until_over(bench, job)
    return took, job.result()


def pending(bench: Bench, way: str) -> tuple[Took, str]:
    """Let it wait behind another job; seconds from the end of that to the first collective."""
    blocker = bench.slurm(BLOCKER)
    wait(lambda: "RUNNING" in bench.slurm(f"squeue -h -o %T -j {blocker}"), START)
    job = WAYS[way](bench)
    text = job.describe_wait()
    bench.slurm(f"scancel {blocker}")
    took = wait(lambda: job.count("met") >= len(bench.lab.nodes), LIMIT)
    job.stop()
    return Took(took), text


def login_away(bench: Bench, way: str) -> tuple[Took, str]:
    """Take the sshd of the login node away for some seconds; then seconds to the next line that its user sees."""
    job, name = begin(bench, way), bench.lab.nodes[LOGIN].name
    tail = None
    if isinstance(job, PlainJob):
        command = bench.lab.ssh_command(name, [f"tail -F plain/plain-{job.number()}.out"])
        tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(1.0)
    for process in bench.lab.nodes[LOGIN].list_processes():
        if process.command.startswith("sshd"):  # sessions that are open: the machine restarts
            bench.lab.nodes[LOGIN].run(["kill", "-9", str(process.pid)], check=False)
    break_node(bench.lab, name, "sshd")
    time.sleep(AWAY)
    heal_node(bench.lab, name)
    order(bench, "say")
    if tail is not None:
        ended = wait(lambda: tail.poll() is not None, 10.0) is not None
        tail.kill()
        tail.communicate()
        job.stop()
        return (
            Took(None),
            "`ssh login tail -F` has ended; the job goes on" if ended else "`ssh login tail -F` goes on",
        )
    took = wait(lambda: job.count("here"), LIMIT)
    job.stop()
    return Took(took), "follows again by itself"


AWAY_CASE = "login node away for 5 s"
CASES: Mapping[str, Callable[[Bench, str], tuple[Took, str]]] = {
    "launch: command to first collective": launch,
    "a rank raises": failing("raise"),
    "a rank raises, its child holds stdout": failing("child"),
    "a node loses power": lost_node,
    "stop": stopped,
    "scancel from outside": cancelled,
    "pending, until the first collective": pending,
    AWAY_CASE: login_away,
}
ENDS = (
    "a rank raises",
    "a rank raises, its child holds stdout",
    "a node loses power",
    "stop",
    "scancel from outside",
)
ENDED_BY_US = {"a rank raises": 2.0, "a rank raises, its child holds stdout": 2.0, "a node loses power": 25.0}


def main() -> int:
    """Measure, and print the table."""
    options = options_for(__doc__, rounds=1)
    options.add_argument("--only", nargs="+", metavar="CASE", help="cases whose names contain one of these")
    options.add_argument("--write", type=Path, metavar="FILE", help="write the numbers as JSON")
    asked = options.parse_args()
    chosen = [name for name in CASES if not asked.only or any(word in name for word in asked.only)]
    seen = {name: {way: Seen() for way in WAYS} for name in chosen}
    with make_bench() as bench:
        for turn in range(asked.rounds):
            for name in chosen:
                for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                    measure(bench, name, way, seen[name][way])
                    if asked.write is not None:
                        write(asked.write, seen)
        same = [] if asked.only else same_file(bench)
    tables = [Table("Faults of a job on Slurm", COLUMNS, [row_of(name, seen[name]) for name in chosen])]
    if same:
        tables.append(Table("One job file, launched and exported", ("way", "seconds", "exit code"), same))
    bars = [
        Bar(name, median_of(seen[name]["clusterctl"].workers), limit, "s")
        for name, limit in ENDED_BY_US.items()
        if name in seen
    ]
    return report("slurm", tables, bars, asked)


@contextmanager
def make_bench() -> Iterator[Bench]:
    """Build the lab and the project."""
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        state = Path(folder) / "clusterctl" / "lab"
        lab = up(state, LabOptions(name="bench", count=3, nics=DEFAULT_NICS, slurm=True, bound=True))
        try:
            job = make_project(Path(folder) / "project", SCRIPT, name="bench", nodes=3)
            yield Bench(lab, Path(folder), job)
        finally:
            labs.down(state)


def measure(bench: Bench, name: str, way: str, seen: Seen) -> None:
    """Cause one case once; whatever comes of it, the nodes are free again after it."""
    try:
        took, seen.text = CASES[name](bench, way)
    finally:
        bench.clear()
    seen.over.append(took.over)
    seen.workers.append(took.workers)
    tell(f"{name}, {way}: workers {took.workers}, over {took.over}; {seen.text}")


def same_file(bench: Bench) -> list[list[Cell]]:
    """Launch the same job file over Slurm and over SSH, and run its exported scripts without clusterctl."""
    before = hashlib.sha256(bench.job.read_bytes()).hexdigest()
    rows: list[list[Cell]] = []
    for name, inventory in (
        ("launch on Slurm", bench.inventory),
        ("launch over SSH", str(bench.lab.inventory)),
    ):
        done = cctl(None, "-i", inventory, "launch", bench.job, "--", "once")
        rows.append([name, round(done.seconds, 1), done.code])
    for target in ("slurm", "bash"):
        script = bench.job.parent / f"job.{target}"
        made = cctl(bench.lab, "export", target, bench.job, "-o", script)
        if made.code:
            raise SystemExit(made.err)
    began = time.monotonic()
    done_by_bash = subprocess.run(
        ["bash", str(bench.job.parent / "job.bash"), "once"], capture_output=True, check=False
    )
    rows.append(
        ["export bash, plain bash and ssh", round(time.monotonic() - began, 1), done_by_bash.returncode]
    )
    place = bench.home / "exported"
    place.mkdir()
    for file in ("job.slurm", "train.py"):
        (place / file).write_bytes((bench.job.parent / file).read_bytes())
    began = time.monotonic()
    number = bench.slurm("sbatch --parsable job.slurm once", "exported")
    wait(lambda: bench.slurm(f"squeue -h -t all -o %T -j {number}") in FINAL, START)
    seconds = time.monotonic() - began
    code = re.search(r"ExitCode=(\d+):", bench.slurm(f"scontrol show job -o {number}"))
    rows.append(["export slurm, plain sbatch", round(seconds, 1), int(code.group(1)) if code else None])
    after = hashlib.sha256(bench.job.read_bytes()).hexdigest()
    if after != before:
        raise SystemExit("the job file has changed")
    tell(f"the job file of all four: sha256 {after}")
    return rows


COLUMNS = (
    *("case", "clusterctl: workers ended, s", "over, s", "srun: workers ended, s", "over, s"),
    *("clusterctl reports", "Slurm reports"),
)


def row_of(name: str, seen: Mapping[str, Seen]) -> list[Cell]:
    """Put both ways side by side."""
    ours, theirs = seen["clusterctl"], seen["srun"]
    if name not in ENDS:
        again: Cell = None if name == AWAY_CASE else cell_of(theirs.over)
        return [name, None, cell_of(ours.over), None, again, ours.text, theirs.text]
    cells = [cell_of(times) for times in (ours.workers, ours.over, theirs.workers, theirs.over)]
    return [name, *cells, ours.text, theirs.text]


def cell_of(times: Sequence[float | None]) -> Cell:
    """Show the median."""
    middle = median_of(times)
    return f"> {LIMIT:g}" if middle > LIMIT else round(middle, 1)


def median_of(times: Sequence[float | None]) -> float:
    """Give the median; what was not over counts as longer than the limit."""
    return median(LIMIT + 1 if one is None else one for one in times)


def write(path: Path, seen: Mapping[str, Mapping[str, Seen]]) -> None:
    """Write all as JSON: what was measured is kept also if the rest fails."""
    cases = {name: {way: vars(one) for way, one in ways.items()} for name, ways in seen.items()}
    facts = {"date": time.strftime("%Y-%m-%d"), "cases": cases, "machine": describe_machine()}
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
