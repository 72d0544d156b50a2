"""Logs at speed: 16 ranks with 10 000 lines a second in all, followed to the terminal; and files of a gigabyte.

    python -m tests.bench logs [-r ROUNDS] [--seconds S] [--only PART ...]

Two lab nodes, eight ranks each; every line sends its rank, its number and the moment before it was written.
follow     the lag of every line, memory of both ends, CPU of the client; no line may be lost or doubled
cuts       ROUNDS runs whose SSH sessions are killed once each: the same
slow       a reader that sleeps for 5 s: how long a rank ever waits to write, beside a reader that does not
endless    1 GB without a newline, and a progress bar: memory of both ends
ordered    -t over all ranks of a run that has ended: lines a second, and how far from their true order
large      --tail and --grep on a log of 1 GB
first      `logs --node 1` of a run that has ended: until the first line
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from driving import STUBBED, cctl, environment, make_project
from measuring import Bar, Cell, Table, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode

RANKS = 16
RATE = 10_000  # lines a second, of all ranks
BURST = 10  # lines in one write
PARTS = ("follow", "cuts", "slow", "endless", "ordered", "large", "first")

TALKER = """
import os, sys, time
rank, began, worst, number = int(os.environ["RANK"]), time.monotonic(), 0.0, 0
out = open(1, "w", closefd=False)
while number < COUNT:
    due = began + number * PAUSE / BURST
    time.sleep(max(0, due - time.monotonic()))
    before = time.monotonic()
    out.write("".join(f"{time.time():.4f} {rank} {number + one} step loss 1.2345 lr 0.001 {'x' * 40}\\n"
                      for one in range(BURST)))
    out.flush()
    worst, number = max(worst, time.monotonic() - before), number + BURST
sys.stderr.write(f"worst {worst:.4f} took {time.monotonic() - began:.3f}\\n")
"""
ENDLESS = """
import sys, time
if WITH_BAR:
    for number in range(200):
        sys.stderr.write(f"\\r{number / 2:5.1f} %"); sys.stderr.flush(); time.sleep(0.01)
for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
"""
LARGE = """
import sys
for block in range(10000):
    lines = "".join(f"step {block * 1000 + one} loss 1.2345 lr 0.001 {'y' * 68}\\n" for one in range(1000))
    sys.stdout.write(lines)
"""


@dataclass
class Heard:
    """What came out of `logs`, and what that took; lags and seconds in seconds, memory in MB."""

    lags: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)  # when each line was, in the order in which they came
    lines: dict[int, list[int]] = field(default_factory=dict)
    client: float = 0.0
    node: float = 0.0
    cpu: float = 0.0
    took: float = 0.0
    came: float = 0.0  # when the first line arrived; older ones were written before anybody looked
    size: int = 0

    @property
    def total(self) -> int:
        """Return how many lines came."""
        return sum(map(len, self.lines.values()))

    def wrong(self, count: int) -> tuple[int, int]:
        """Count lines that were lost, and those that came twice or not in their order."""
        lost = sum(count - len(set(numbers)) for numbers in self.lines.values())
        lost += count * (RANKS - len(self.lines))
        return lost, sum(
            now <= before for one in self.lines.values() for before, now in itertools.pairwise(one)
        )


def main() -> int:
    """Measure, and print the tables."""
    options = options_for(__doc__, rounds=10)
    options.add_argument("--seconds", type=float, default=8.0, help="how long the ranks talk: 8")
    options.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    asked = options.parse_args()
    tables: list[Table] = []
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        state_dir = Path(folder) / "clusterctl" / "lab"
        lab = up(state_dir, LabOptions(name="bench", count=2, bound=True))
        try:
            for part in asked.only:
                MEASURES[part](Bench(lab, Path(folder), asked.rounds, asked.seconds), tables, bars)
        finally:
            labs.down(state_dir)
    return report("logs", tables, bars, asked)


@dataclass
class Bench:
    """A lab, and how long to measure on it."""

    lab: Lab
    folder: Path
    rounds: int
    seconds: float

    @property
    def count(self) -> int:
        """Return how many lines each rank writes."""
        return int(self.seconds * RATE / RANKS) // BURST * BURST

    def launch(self, source: str, *, ranks: int = RANKS // 2, **job: object) -> str:
        """Start a run that no one watches; gives its name."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        project = make_project(folder, source, env=STUBBED, nproc_per_node=ranks, **job)
        done = cctl(self.lab, "launch", "-d", "--ignore-checks", project, **self.state)
        assert done.code == 0, done.err
        return str(done.out).strip()

    def talk(self) -> str:
        """Let all ranks talk."""
        head = f"COUNT, PAUSE, BURST = {self.count}, {BURST * RANKS / RATE}, {BURST}\n"
        return self.launch(head + TALKER)

    @property
    def state(self) -> dict[str, str]:
        """Return where our commands keep what they remember."""
        return {"XDG_STATE_HOME": str(self.folder)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start `clusterctl logs`, its output in a pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", "clusterctl", "logs", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=environment(self.lab, **self.state),
        )

    def read(self, *words: str, pause: float = 0.0, meanwhile: Callable[[], None] | None = None) -> Heard:
        """Read what `clusterctl logs` prints to its end, after a pause if wanted."""
        heard, began = Heard(), time.monotonic()
        process = self.start(*words)
        watch = threading.Thread(target=self._weigh, args=(process, heard), daemon=True)
        watch.start()
        if meanwhile is not None:
            threading.Thread(target=meanwhile, daemon=True).start()
        time.sleep(pause)
        for moment, line in lines_of(process, heard):
            words_of = line.split(b" | ", 1)[-1].split(None, 3)
            with suppress(ValueError, IndexError):
                written, rank, number = float(words_of[0]), int(words_of[1]), int(words_of[2])
                heard.lines.setdefault(rank, []).append(number)
                heard.came = heard.came or moment
                heard.written.append(written)
                heard.lags += [moment - written] if written > heard.came else []
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"logs {words} ended with {process.returncode}"
        heard.took, heard.client = time.monotonic() - began, usage.ru_maxrss / 1000
        heard.cpu = usage.ru_utime + usage.ru_stime
        watch.join()
        return heard

    def _weigh(self, process: subprocess.Popen[bytes], heard: Heard) -> None:
        while process.returncode is None:
            with suppress(OSError, RuntimeError, ValueError):
                heard.node = max([heard.node, *(peak_of(node) for node in self.lab.nodes)])
            time.sleep(0.5)


def lines_of(process: subprocess.Popen[bytes], heard: Heard) -> Iterator[tuple[float, bytes]]:
    """Yield lines with the moment when they arrived; what has no end is only counted."""
    assert process.stdout is not None
    rest = b""
    while piece := os.read(process.stdout.fileno(), 1 << 20):
        moment = time.time()
        heard.size += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:1000]
        yield from ((moment, line[:1000]) for line in lines)
    process.stdout.close()


def peak_of(node: LabNode) -> float:
    """Return the most memory that a process has had by which the node answers us, in MB."""
    found = [process.pid for process in node.list_processes() if "clusterctl-boot" in process.command]
    said = node.run(["cat", *(f"/proc/{pid}/status" for pid in found)], check=False).stdout if found else ""
    return max(
        [int(line.split()[1]) / 1000 for line in said.splitlines() if line.startswith("VmHWM")], default=0.0
    )


def quantile(values: list[float], share: float) -> float:
    """Return the value below which so large a share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def follow(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Follow once without a cut."""
    run = bench.talk()
    heard = bench.read("-f", run)
    lost, doubled = heard.wrong(bench.count)
    fresh = heard.lags
    row: list[Cell] = [
        heard.total,
        lost,
        doubled,
        round(quantile(fresh, 0.5) * 1000),
        round(quantile(fresh, 0.99) * 1000),
        round(max(fresh) * 1000),
        round(heard.client, 1),
        round(heard.node, 1),
        round(100 * heard.cpu / bench.seconds),
    ]
    columns = (
        "lines",
        "lost",
        "doubled",
        "lag p50, ms",
        "p99",
        "worst",
        "client, MB",
        "node's verb, MB",
        "client CPU, % of a core",
    )
    tables.append(Table(f"{RANKS} ranks, {RATE} lines a second in all, followed", columns, [row]))
    bars += [
        Bar("followed: lost and doubled lines", lost + doubled, 0),
        Bar("followed: lag p99", quantile(fresh, 0.99) * 1000, 300, "ms"),
        Bar("followed: memory of the client", heard.client, 150, "MB"),
        Bar("followed: memory of the node's verb", heard.node, 50, "MB"),
    ]


def cuts(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Cut every SSH session of one node in the middle of each run."""
    rows: list[list[Cell]] = []
    for turn in range(bench.rounds):
        node = bench.lab.nodes[turn % 2]
        heard = bench.read("-f", bench.talk(), meanwhile=partial(cut, node, bench.seconds / 2))
        lost, doubled = heard.wrong(bench.count)
        tell(
            f"cut {turn + 1}: {heard.total} lines, {lost} lost, {doubled} doubled, worst lag {max(heard.lags):.2f} s"
        )
        rows.append([turn + 1, heard.total, lost, doubled])
    tables.append(Table("one cut in each run", ("run", "lines", "lost", "doubled"), rows))
    bars.append(
        Bar(
            "cuts: lost and doubled lines", float(sum(int(row[2] or 0) + int(row[3] or 0) for row in rows)), 0
        )
    )


def cut(node: LabNode, seconds: float) -> None:
    """Kill the SSH sessions of a node, later."""
    time.sleep(seconds)
    sessions = [one for one in node.list_processes() if one.command.startswith(("sshd: ", "sshd-session: "))]
    node.run(["kill", "-9", *(str(one.pid) for one in sessions)], check=False)


def slow(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Compare how long ranks wait to write when someone reads, when no one does, and when the reader sleeps."""
    rows: list[list[Cell]] = []
    for name, pause in (("a reader that reads", 0.0), ("a reader that sleeps for 5 s", 5.0)):
        run = bench.talk()
        heard = bench.read("-f", run, pause=pause)
        lost, doubled = heard.wrong(bench.count)
        worst, took = waits(bench, run)
        rows.append([name, round(worst * 1000, 1), round(took, 2), lost, doubled])
        bars.append(Bar(f"{name}: lost and doubled lines", lost + doubled, 0))
        if pause:
            bars.append(
                Bar("slow reader: what the ranks take longer than planned", took - bench.seconds, 0.5, "s")
            )
    columns = ("with", "longest write of any rank, ms", "the ranks took, s", "lost", "doubled")
    tables.append(Table("a slow terminal", columns, rows, f"planned: {bench.seconds:g} s"))


def waits(bench: Bench, run: str) -> tuple[float, float]:
    """Give the longest that any rank waited to write, and how long the longest rank took."""
    out = cctl(bench.lab, "logs", run, "--stream", "stderr", "--json", **bench.state).json_lines()
    told = [str(entry["line"]).split() for entry in out if str(entry["line"]).startswith("worst")]
    return max(float(words[1]) for words in told), max(float(words[3]) for words in told)


def endless(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Follow 1 GB without a newline, after a bar that redraws itself."""
    heard = bench.read("-f", bench.launch(f"WITH_BAR = True\n{ENDLESS}", ranks=1, nodes=1))
    row: list[Cell] = [
        round(heard.size / 1e6),
        round(heard.took, 1),
        round(heard.client, 1),
        round(heard.node, 1),
    ]
    columns = ("MB shown", "s", "client, MB", "node's verb, MB")
    tables.append(Table("1 GB without a newline", columns, [row]))
    bars += [Bar("endless: client", heard.client, 150, "MB"), Bar("endless: node", heard.node, 50, "MB")]


def ordered(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Put the lines of all ranks into the order of time."""
    run = bench.talk()
    time.sleep(bench.seconds + 3)
    heard = bench.read("-t", run)
    lost, doubled = heard.wrong(bench.count)
    late = [
        latest - written
        for latest, written in zip(accumulate(heard.written, max), heard.written, strict=True)
    ]
    row: list[Cell] = [heard.total, lost, doubled, round(heard.took, 2), round(heard.total / heard.took)]
    row += [
        round(quantile(late, 0.5) * 1000),
        round(max(late) * 1000),
        round(heard.client, 1),
        round(heard.node, 1),
    ]
    columns = (
        "lines",
        "lost",
        "doubled",
        "s",
        "lines/s",
        "behind a younger one, p50, ms",
        "worst",
        "client, MB",
    )
    tables.append(Table("logs -t of a run that has ended", (*columns, "node's verb, MB"), [row]))
    bars += [
        Bar("-t: lost lines, and lines of a rank that are not in their order", lost + doubled, 0),
        Bar("-t: out of order, worst", max(late) * 1000, 1000, "ms"),
        Bar("-t: client", heard.client, 150, "MB"),
    ]


def large(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Ask a log of 1 GB for its end and for lines that are rare."""
    run = bench.launch(LARGE, ranks=1, nodes=1)
    while cctl(bench.lab, "ps", "--json", **bench.state).out.find('"RUNNING"') >= 0:
        time.sleep(0.5)
    rows: list[list[Cell]] = []
    for words, wanted in (
        (("--tail", "10"), 10),
        (("--grep", "step 7654321 "), 1),
        (("--grep", "step .*999999 loss"), 10),
        (("--grep", "step 1 ", "--tail", "1"), 1),
    ):
        counted, seconds, node = count_lines(bench, run, *words)
        assert counted == wanted, f"{words}: {counted} lines"
        rows.append([" ".join(words), counted, round(seconds, 2), round(node, 1)])
        bars.append(Bar(f"1 GB: {' '.join(words)}", seconds, 30, "s"))
    tables.append(Table("a log of 1 GB, 10 million lines", ("asked", "lines", "s", "node's verb, MB"), rows))


def count_lines(bench: Bench, run: str, *words: str) -> tuple[int, float, float]:
    """Give how many lines came, how long that took, and the memory of the node's verb."""
    lines: list[int] = []
    heard = Heard()
    began = time.monotonic()
    process = bench.start(run, *words)
    threading.Thread(target=bench._weigh, args=(process, heard), daemon=True).start()
    lines += [1 for _ in lines_of(process, heard)]
    assert process.wait() == 0
    return len(lines), time.monotonic() - began, heard.node


def first(bench: Bench, tables: list[Table], bars: list[Bar]) -> None:
    """Time the first line of a run that has ended."""
    run = bench.launch("print('here', flush=True)\n", ranks=1)
    while cctl(bench.lab, "ps", "--json", **bench.state).out.find('"RUNNING"') >= 0:
        time.sleep(0.2)
    rows: list[list[Cell]] = []
    for words in (("--node", "1"), ("-t",)):
        seconds = []
        for _ in range(bench.rounds + 1):
            seconds.append(until_first(bench, run, *words))
        rows.append([" ".join(words), round(statistics.median(seconds[1:]), 3), round(max(seconds[1:]), 3)])
        if words == ("--node", "1"):
            bars.append(Bar("logs --node 1: first line", statistics.median(seconds[1:]), 0.7, "s"))
    tables.append(Table("until the first line", ("logs", "median, s", "worst, s"), rows))


def until_first(bench: Bench, run: str, *words: str) -> float:
    """Give the seconds until the first line; nothing else is looked at meanwhile."""
    began = time.monotonic()
    process = bench.start(run, *words)
    assert process.stdout is not None
    process.stdout.readline()
    took = time.monotonic() - began
    process.communicate()
    return took


MEASURES: dict[str, Callable[[Bench, list[Table], list[Bar]], None]] = {
    "follow": follow,
    "cuts": cuts,
    "slow": slow,
    "endless": endless,
    "ordered": ordered,
    "large": large,
    "first": first,
}


if __name__ == "__main__":
    sys.exit(main())
