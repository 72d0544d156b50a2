"""What all benchmarks share: ways that take turns, medians, ratios, bars, and a table in three forms.

A bench makes a `Way` of everything it compares, lets them take turns with `alternate`, and hands the tables and
bars to `report`:

    options = options_for(__doc__, rounds=5)                 # -r ROUNDS, --format terminal|markdown|json
    asked = options.parse_args()
    seen = alternate([Way("ours", ours), Way("rsync", rsync)], asked.rounds)
    report("sync", [compare("cold", seen, against="rsync")], [Bar("cold: wall", 0.8, 1.0, "x rsync")], asked)

On one machine the servers share the cores with the client, so its CPU is measured beside the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HOW_TO_INSTALL = {
    "ansible": "apt install ansible-core, or pip install ansible-core",
    "clush": "apt install clustershell",
    "parallel-ssh": "pip install parallel-ssh",
    "pdsh": "apt install pdsh",
    "rsync": "apt install rsync",
    "torchrunx": "pip install torchrunx",
    "deepspeed": "pip install deepspeed",
}
Cell = str | float | int | None


@dataclass(frozen=True)
class Sample:
    """What doing a thing once took, in seconds; `cpu` is user and system time of the client's processes."""

    wall: float
    cpu: float = 0.0


@dataclass(frozen=True)
class Way:
    """One way to do the thing; `run` does it once."""

    name: str
    run: Callable[[], Sample]


@dataclass(frozen=True)
class Bar:
    """A number to hold: at most `limit`."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def held(self) -> bool:
        """Return whether it is held."""
        return self.value <= self.limit


@dataclass(frozen=True)
class Table:
    """What was measured; None is a cell without a value."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def alternate(ways: Sequence[Way], rounds: int, *, warmups: int = 1) -> dict[str, list[Sample]]:
    """Let the ways take turns, each round begun by another one; what the warm-ups took is not kept."""
    seen: dict[str, list[Sample]] = {way.name: [] for way in ways}
    for turn in range(-warmups, rounds):
        first = turn % len(ways)
        for way in (*ways[first:], *ways[:first]):
            sample = way.run()
            tell(
                f"{'warm-up' if turn < 0 else f'round {turn + 1}'}: {way.name} {sample.wall:.3f} s, "
                f"client CPU {sample.cpu:.3f} s"
            )
            if turn >= 0:
                seen[way.name].append(sample)
    return seen


def time_commands(
    commands: Sequence[Sequence[str]],
    *,
    env: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Sample:
    """Run commands at the same time; CPU is theirs and that of the children they waited for.

    One that ends with another code than `codes` ends the bench, with what it wrote to stderr.
    """
    began = time.monotonic()
    running = [
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
        )
        for command in commands
    ]
    cpu = 0.0
    for process in running:
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        if process.returncode not in codes:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}: {said[-2000:]}")
        cpu += usage.ru_utime + usage.ru_stime
    return Sample(time.monotonic() - began, cpu)


def wall_of(samples: Sequence[Sample]) -> float:
    """Return the median wall time, in seconds."""
    return statistics.median(sample.wall for sample in samples)


def cpu_of(samples: Sequence[Sample]) -> float:
    """Return the median CPU time, in seconds."""
    return statistics.median(sample.cpu for sample in samples)


def compare(
    title: str, seen: Mapping[str, Sequence[Sample]], *, against: str, per: int = 1, note: str = ""
) -> Table:
    """Make a table of medians and of their ratios to one of the ways; CPU is shown per one of `per`."""
    base = seen[against]
    rows: list[list[Cell]] = [
        [
            name,
            round(wall_of(samples), 3),
            ratio(wall_of(samples), wall_of(base)),
            round(cpu_of(samples) * 1000 / per, 1) or None,  # where it was not measured
            ratio(cpu_of(samples), cpu_of(base)),
            " ".join(f"{sample.wall:.2f}" for sample in samples),
        ]
        for name, samples in seen.items()
    ]
    cpu = "client CPU, ms" if per == 1 else "client CPU per node, ms"
    return Table(title, ("way", "wall, s", f"x {against}", cpu, f"x {against}", "walls, s"), rows, note)


def ratio(value: float, base: float) -> float | None:
    """Return a ratio to two digits; None against nothing."""
    return round(value / base, 2) if base else None


def find_peers(*names: str) -> dict[str, str]:
    """Return the paths of the peers that are installed, and say how to install the others."""
    found = {}
    for name in names:
        path = shutil.which(name)
        if path:
            found[name] = path
        else:
            tell(f"{name} is not installed and left out: {HOW_TO_INSTALL.get(name, 'install it')}")
    return found


def tell(text: str) -> None:
    """Write a line of progress, away from the result."""
    print(text, file=sys.stderr, flush=True)


def options_for(text: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Make a parser with the options that every bench has."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-r", "--rounds", type=int, default=rounds, help=f"times each way is measured: {rounds}"
    )
    parser.add_argument("--format", choices=["terminal", "markdown", "json"], default="terminal")
    return parser


def report(name: str, tables: Sequence[Table], bars: Sequence[Bar], asked: argparse.Namespace) -> int:
    """Print the result in the form that was asked for; gives 1 if a bar is not held."""
    where = describe_machine()
    if asked.format == "json":
        held = [{**asdict(bar), "held": bar.held} for bar in bars]
        shown = {"tables": [asdict(table) for table in tables], "bars": held}
        print(json.dumps({"schema": 1, "bench": name, "machine": where, **shown}, indent=2))
    else:
        render = _markdown if asked.format == "markdown" else _plain
        for table in tables:
            print(f"\n{'### ' if asked.format == 'markdown' else ''}{table.title}\n")
            print("\n".join(render([table.columns, *table.rows])))
            if table.note:
                print(f"\n{table.note}")
        _print_bars(bars)
        print("\n" + ", ".join(f"{key} {value}" for key, value in where.items()))
    return 0 if all(bar.held for bar in bars) else 1


def describe_machine() -> dict[str, Any]:
    """Say on what it was measured; the load is that of the last minute, the bench's own included."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "kernel": platform.release().split("-")[0],
        "Python": platform.python_version(),
    }


def _print_bars(bars: Sequence[Bar]) -> None:
    if bars:
        print()
    for bar in bars:
        verdict = "held" if bar.held else "MISSED"
        print(f"- {bar.what}: {bar.value:.2f} {bar.unit}".rstrip() + f", bar {bar.limit:g}: {verdict}")


def _text(cell: Cell) -> str:
    return "-" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell)


def _plain(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Line the columns up; numbers stand at the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in texts) for place in range(len(texts[0]))]
    numeric = [all(not isinstance(row[place], str) for row in rows[1:]) for place in range(len(widths))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in texts
    ]


def _markdown(rows: Sequence[Sequence[Cell]]) -> list[str]:
    lines = ["| " + " | ".join(_text(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]
