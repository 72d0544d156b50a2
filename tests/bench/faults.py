"""From a fault to all other nodes stopped: the rows of tests/lab/fault_table.py, beside torchrun, torchrunx, DeepSpeed.

    python tests/bench/faults.py [-r ROUNDS] [--only FAULT ...] [--bare ROUNDS] [--peers PYTHON] [--write FILE]
    python tests/bench/faults.py --loaded RUNS

Each round builds a lab, starts a run for each fault, strikes it and waits until nothing of the run lives on the other
nodes. The same faults are then struck at bare torchrun (static and c10d, started by hand over ssh) and, where `PYTHON`
has them, at torchrunx and DeepSpeed: one that has not stopped the other nodes after 60 s is ended and shown as such.
Start skew over eight nodes, and memory and CPU of guardian and agent, come with it. With `--loaded` there is no fault:
runs beside busy loops and a program that fills memory, in which no node may be lost. Not part of `./test`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from bare import FAULTS_OF_PEERS, LIMIT, NODES, peers_here, strike_peer
from driving import make_project, start_cctl
from fault_table import FAULTS, Fault
from faulting import SETTINGS, STRIKES, Seen, Setting, observe
from measuring import Bar, Cell, Table, describe_machine, options_for, report, tell
from victims import PLAIN, WORKER, Struck, begin
from waiting import wait_until

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab

NICS = ("mgmt0+enp65s0f0", "mgmt0+ib0np0", "mgmt0+eno2")  # SSH does not go over the NIC that is cut
MEASURED = [fault for fault in FAULTS if fault.within is not None]
HEEDING = replace(
    next(fault for fault in MEASURED if fault.name == "worker-killed"), name="worker-killed-plain"
)
PEERS_AT_ONCE = 4
AT_ONCE = 3  # runs that are launched side by side
IDLE_SECONDS = 20.0
LOADED_AT_ONCE = 5  # runs on the same three nodes
LOADED_SECONDS = 20.0
LOADED_LIMIT = 120.0  # seconds for their ends
LOOPS_PER_CORE = 4
SKEW = "import time; print('began', time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)"


def main() -> int:
    """Measure, and print the tables."""
    STRIKES[HEEDING.name] = STRIKES["worker-killed"]
    options = options_for(__doc__, rounds=5)
    options.add_argument("--only", nargs="+", metavar="FAULT", help="these faults alone")
    options.add_argument("--bare", type=int, default=1, metavar="N", help="rounds with bare torchrun: 1")
    options.add_argument("--peers", metavar="PYTHON", help="the Python that has torchrunx or DeepSpeed")
    options.add_argument("--write", type=Path, metavar="FILE", help="write the numbers as JSON")
    options.add_argument(
        "--loaded", type=int, metavar="RUNS", help="so many runs under load, without a fault"
    )
    asked = options.parse_args()
    if asked.loaded:
        return report_loaded(asked)
    wanted = [fault for fault in (*MEASURED, HEEDING) if not asked.only or fault.name in asked.only]
    found = Found(versions=versions(asked.peers))
    for name, took in measure(wanted, asked.rounds):
        found.seconds.setdefault(name, []).append(took)
        found.write(asked.write)
    struck = [fault.name for fault in wanted if fault.name in FAULTS_OF_PEERS]
    for peer, name, alone in measure_peers(struck, asked.bare, asked.peers):
        found.peers.setdefault(peer, {}).setdefault(name, []).append(alone)
        found.write(asked.write)
    if not asked.only:
        measure_rest(max(1, asked.rounds), found)
        found.write(asked.write)
    tables = [table_of(wanted, found)]
    bars = [
        Bar(name, median([took[1] for took in found.seconds[name]]), limit, "s")
        for name, limit in limits(wanted)
    ]
    if found.skew:
        tables.append(Table("Start skew over 8 nodes", ("median, ms", "worst, ms"), [[*spread(found.skew)]]))
        bars.append(Bar("guardian and agent together, proportional", found.memory, 25.0, "MB"))
        bars.append(Bar("their CPU", found.cpu, 0.1, "% of a core"))
    return report("faults", tables, bars, asked)


@dataclass
class Found:
    """What was measured; a peer's None stands for more than the limit."""

    versions: Mapping[str, str]
    seconds: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    peers: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    skew: list[float] = field(default_factory=list)
    memory: float = 0.0
    cpu: float = 0.0
    loads: list[float] = field(default_factory=list)

    def write(self, path: Path | None) -> None:
        """Write all as JSON: what was measured is kept also if the rest fails."""
        self.loads.append(round(os.getloadavg()[2], 1))
        if path is not None:
            facts = {"date": time.strftime("%Y-%m-%d"), **asdict(self), "machine": describe_machine()}
            path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def versions(python: str | None) -> dict[str, str]:
    """Give the versions of what is compared."""
    wanted = ("clusterctl", "torch", "torchrunx", "deepspeed")
    code = (
        "from importlib import metadata\n"
        f"for name in {wanted}:\n"
        "    for found in metadata.distributions(name=name):\n"
        "        print(name, found.version)\n"
        "        break"
    )
    shown = [
        subprocess.run([each, "-c", code], capture_output=True, text=True, check=True).stdout
        for each in (sys.executable, *([python] if python else []))
    ]
    return dict(line.split() for text in shown for line in text.splitlines())


def limits(faults: Sequence[Fault]) -> list[tuple[str, float]]:
    """Give the bar of each fault."""
    return [(fault.name, fault.within or 0.0) for fault in faults]


def spread(seconds: Sequence[float]) -> tuple[float, float]:
    """Give median and maximum in milliseconds."""
    return round(median(seconds) * 1000, 1), round(max(seconds) * 1000, 1)


@contextmanager
def lab_of(count: int) -> Iterator[tuple[Lab, Path]]:
    """Build a lab that goes with us, and give it with a folder."""
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        state = Path(folder) / "clusterctl" / "lab"
        lab = up(state, LabOptions(name="bench", count=count, nics=NICS, bound=True))
        try:
            yield lab, Path(folder)
        finally:
            labs.down(state)


# ---- ours ----


def measure(faults: Sequence[Fault], rounds: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Strike each fault once a round; gives its name and the seconds of `both`."""
    for turn in range(rounds):
        for first in range(0, len(faults), AT_ONCE):
            some = faults[first : first + AT_ONCE]
            with lab_of(3 * len(some)) as (lab, folder):
                for name, took in strike_all(lab, folder, some).items():
                    tell(f"round {turn + 1}: {name} {took[0]:.2f} s, nothing left after {took[1]:.2f} s")
                    yield name, took


def strike_all(lab: Lab, folder: Path, faults: Sequence[Fault]) -> dict[str, tuple[float, float]]:
    """Strike some runs on nodes of their own: those that are noticed late at once, the others one by one."""
    runs: dict[str, Struck] = {}
    for number, fault in enumerate(faults):
        nodes = lab.nodes[3 * number : 3 * number + 3]
        prepare = SETTINGS.get(fault.name)
        setting = prepare(lab, nodes, folder / fault.name) if prepare else Setting()
        worker = PLAIN if fault is HEEDING else WORKER
        runs[fault.name] = begin(
            fault.name, lab, nodes, folder, inventory=setting.inventory, stub=False, worker=worker
        )
    for run in runs.values():
        wait_until(run.settled, f"{run.name} settled")
    found: dict[str, tuple[float, float]] = {}
    with ThreadPoolExecutor(len(faults)) as pool:
        late = {
            fault.name: pool.submit(observe, fault, runs[fault.name])
            for fault in faults
            if fault.is_noticed_late
        }
        for fault in faults:
            if not fault.is_noticed_late:
                found[fault.name] = both(observe(fault, runs[fault.name]))
        found.update({name: both(seen.result()) for name, seen in late.items()})
    return found


def both(seen: Seen) -> tuple[float, float]:
    """Give the seconds until the other nodes' ranks had ended, and until nothing was left there."""
    assert seen.stopped is not None
    assert seen.seconds is not None
    return seen.stopped, seen.seconds


# ---- others ----


def measure_peers(
    names: Sequence[str], rounds: int, python: str | None
) -> Iterator[tuple[str, str, float | None]]:
    """Strike the same faults at others; gives peer, fault and seconds."""
    for peer in peers_here(python) if rounds and names else ():
        for turn in range(rounds):
            for first in range(0, len(names), PEERS_AT_ONCE):
                some = names[first : first + PEERS_AT_ONCE]
                with lab_of(NODES * len(some)) as (lab, _):
                    seen = strike_peer(peer, lab, some)
                for name, took in seen.items():
                    shown = f"> {LIMIT:g} s" if took is None else f"{took:.2f} s"
                    tell(f"{peer.name}, round {turn + 1}: {name} {shown}")
                    yield peer.name, name, took


def table_of(faults: Sequence[Fault], found: Found) -> Table:
    """Put all side by side."""
    rows: list[list[Cell]] = []
    for fault in faults:
        stopped, left = zip(*found.seconds[fault.name], strict=True)
        mine: list[Cell] = [round(number, 2) for number in (median(stopped), max(stopped), median(left))]
        rows.append([fault.name, *mine, *(cell_of(peer.get(fault.name)) for peer in found.peers.values())])
    note = (
        "Median seconds from the fault until the workers and their children had ended on all other nodes, the worst of "
        "the rounds, and until torchrun and clusterctl's own processes had ended there, too. Load average over "
        f"quarters of an hour, the bench's own included: {min(found.loads):g} to {max(found.loads):g}."
    )
    columns = ("fault", "clusterctl", "worst", "nothing left", *found.peers)
    return Table("From a fault to all other nodes stopped", columns, rows, note)


def cell_of(took: Sequence[float | None] | None) -> Cell:
    """Show the median of a peer; a round that did not end counts as the longest."""
    if not took:
        return None
    middle = median(LIMIT + 1 if one is None else one for one in took)
    return f"> {LIMIT:g}" if middle > LIMIT else round(middle, 2)


# ---- no fault ----


def report_loaded(asked: argparse.Namespace) -> int:
    """Count the runs that did not succeed, and those of them in which a node was taken for lost."""
    failed = lost = done = 0
    with lab_of(NODES) as (lab, folder):
        for first in range(0, asked.loaded, LOADED_AT_ONCE):
            names = [f"loaded-{number}" for number in range(first, min(first + LOADED_AT_ONCE, asked.loaded))]
            runs = [begin(name, lab, lab.nodes, folder, worker=PLAIN) for name in names]
            for run in runs:
                wait_until(run.settled, f"{run.name} settled")
            with load():
                time.sleep(LOADED_SECONDS)
                for run in runs:
                    run.finish()
                ends = [run.ended(LOADED_LIMIT) for run in runs]
            failed += sum(code != 0 for code in ends)
            lost += sum("is lost" in run.err for run in runs)
            done += len(runs)
            tell(f"{done} runs: {failed} failed, {lost} with a lost node; load {os.getloadavg()[0]:.0f}")
    row: list[Cell] = [done, LOADED_SECONDS, failed, lost]
    table = Table("Runs under load, without a fault", ("runs", "seconds each", "failed", "node lost"), [row])
    return report("faults", [table], [Bar("runs with a node taken for lost", lost, 0)], asked)


@contextmanager
def load() -> Iterator[None]:
    """Keep every core busy several times over, and memory filled and touched."""
    busy = [sys.executable, "-c", "while True: pass"]
    size = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    touch = f"data = bytearray({size})\nwhile True:\n    for at in range(0, {size}, 4096): data[at] ^= 1"
    programs = [busy] * (LOOPS_PER_CORE * (os.cpu_count() or 1)) + [[sys.executable, "-c", touch]]
    running = [subprocess.Popen(words) for words in programs]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# ---- the start, and what watching costs ----


def measure_rest(rounds: int, found: Found) -> None:
    """Measure start skew over eight nodes, and memory (MB) and CPU (% of a core) of an idle guardian and agent."""
    with lab_of(8) as (lab, folder):
        found.skew = [skew_of(lab, make_project(folder / "skew", SKEW)) for _ in range(rounds)]
        tell(f"start skew: {' '.join(f'{skew * 1000:.1f}' for skew in found.skew)} ms")
        run = begin("idle", lab, lab.nodes[:3], folder, stub=False)
        wait_until(run.settled, "settled")
        found.memory, found.cpu = cost_of(run)
        tell(f"guardian and agent: {found.memory:.1f} MB, {found.cpu:.3f} % of a core")
        run.finish()
        run.ended(60)


def skew_of(lab: Lab, job: Path) -> float:
    """Launch over all nodes; gives the seconds between the first and the last rank's first line."""
    process = start_cctl(lab, "launch", job)
    out, err = process.communicate(timeout=300)
    moments = [float(line.split()[-1]) for line in out.splitlines() if " began " in line]
    if len(moments) != len(lab.nodes):
        raise SystemExit(f"not all ranks began: {err}")
    return max(moments) - min(moments)


def cost_of(run: Struck) -> tuple[float, float]:
    """Look at node 1's guardian and agent for a while: proportional set size, and CPU time."""
    node = run.nodes[1]
    parts = [
        Path(f"/proc/{node.read_state().pid}/root/proc/{run.find(node, part).pid}")
        for part in ("guardian", "agent")
    ]
    before, began = [time_of(part) for part in parts], time.monotonic()
    time.sleep(IDLE_SECONDS)
    spent = sum(time_of(part) for part in parts) - sum(before)
    seconds = time.monotonic() - began
    size = sum(
        int(line.split()[1])
        for part in parts
        for line in (part / "smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    )
    return size / 1000, 100 * spent / seconds


def time_of(part: Path) -> float:
    """Give the CPU time that a process has used, in seconds; the kernel's ticks would be too coarse."""
    return int((part / "schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
