"""From 1 to 10 000 nodes: time, processor, memory, threads and open files of this side, and of the hub of a run.

    python -m tests.bench scale [--sizes 1 10 100 1000] [--parts plan exec check launch gang real-exec real-check]

`plan` reads an inventory and plans a launch. `exec`, `check` and `launch` go over ways that lead nowhere: every node is
played in this process, with latencies as those of a campus network, and in `exec` and `check` one in thirty is
refused, silent, or cut in the middle. `gang` is node 0's hub with so many peers over loopback. The real ones are the
commands themselves, against one sshd behind so many addresses, where the servers share the cores with what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopback import Nodes, loopback_nodes
from measuring import Bar, Cell, Table, options_for, report, tell
from scale_part import memory_of

PART = Path(__file__).parent / "scale_part.py"
PEERS = Path(__file__).parents[1] / "support" / "many_peers.py"
SIMULATED, GANG, REAL = ("plan", "exec", "check", "launch"), "gang", ("real-exec", "real-check")
SIZES = (1, 10, 100, 1000)
COLUMNS = ("nodes", "s", "CPU, s", "CPU per node, ms", "memory, MB", "threads", "open files", "failed")
TICK = 0.02
MOST_MEMORY = 200.0  # MB for 1000 nodes
MOST_CPU = 20.0  # ms of ours for each of 1000 nodes
Told = Mapping[str, Any]


def main() -> None:
    """Go through the parts and sizes, and print a table for each part."""
    options = options_for(__doc__, rounds=1)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options.add_argument(
        "--parts", nargs="+", default=[*SIMULATED, GANG, *REAL], choices=[*SIMULATED, GANG, *REAL]
    )
    asked = options.parse_args()
    tables, bars = [], []
    for part in asked.parts:
        told = {size: measure(part, size) for size in asked.sizes if part != GANG or size > 1}
        tables.append(gang_table(told) if part == GANG else table_of(part, told))
        if part in SIMULATED and 1000 in told:
            bars.append(Bar(f"{part} of 1000: memory", told[1000]["memory"], MOST_MEMORY, "MB"))
            bars.append(Bar(f"{part} of 1000: CPU", told[1000]["cpu"], MOST_CPU, "ms per node"))
    raise SystemExit(report("scale", tables, bars, asked))


def measure(part: str, size: int) -> Told:
    """Do one part at one size."""
    if part in REAL:
        told = measure_real(part.partition("-")[2], size)
    else:
        words = [str(PEERS), str(size)] if part == GANG else [str(PART), part, str(size)]
        done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(done.stdout)
    tell(f"{part} of {size}: {told}")
    return told


def table_of(part: str, told: Mapping[int, Told]) -> Table:
    """Make a table of one part."""
    rows: list[Sequence[Cell]] = [
        (
            size,
            round(one["seconds"], 2),
            round(one["cpu"], 2),
            round(one["cpu"] * 1000 / size, 1),
            round(one["memory"]),
            one["threads"],
            one["open_files"],
            ", ".join(f"{count} {code}" for code, count in one["failed"].items()) or None,
        )
        for size, one in told.items()
    ]
    return Table(part, COLUMNS, rows)


def gang_table(told: Mapping[int, Told]) -> Table:
    """Make the table of the hub."""
    stages = ("join", "beat", "stop", "record")
    columns = (
        "nodes",
        *(f"{stage}, {unit}" for stage in stages for unit in ("s", "CPU ms")),
        "memory, MB",
        "open files",
    )
    rows: list[Sequence[Cell]] = []
    for size, one in told.items():
        cells = [
            (round(one[f"{stage}_seconds"], 2), round(one[f"{stage}_cpu"] * 1000, 1)) for stage in stages
        ]
        rows.append(
            (size, *(cell for pair in cells for cell in pair), round(one["memory"]), one["open_files"])
        )
    note = "CPU is the hub's; all its peers are one process, which is what the seconds of the record are spent in."
    return Table(GANG, columns, rows, note)


def measure_real(verb: str, size: int) -> Told:
    """Run a verb on so many addresses of one sshd, and look at its process meanwhile."""
    words = ["-q", "exec", "--json", "--", "true"] if verb == "exec" else ["-q", "check", "--json"]
    with tempfile.TemporaryDirectory(prefix="cb-") as scratch, loopback_nodes(Path(scratch), size) as nodes:
        return watch(nodes, words)


def watch(nodes: Nodes, words: Sequence[str]) -> Told:
    """Run a command to its end; what it took, and the most that was seen of it."""
    began = time.monotonic()
    process = subprocess.Popen(
        nodes.command(*words), env=nodes.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    peak = {"threads": 0, "open_files": 0, "memory": 0.0}
    looking = threading.Thread(target=look, args=(process.pid, peak), daemon=True)
    looking.start()
    assert process.stdout is not None
    said = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    looking.join()
    told = said["nodes"]
    failed = Counter(str(node["error"]).split()[0] for node in told if node.get("error"))
    return {
        "seconds": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        **peak,
        "well": len(told) - failed.total(),
        "failed": dict(failed),
    }


def look(pid: int, peak: dict[str, float]) -> None:
    """Note the most threads, open files and memory of a process until it ends."""
    place = Path(f"/proc/{pid}")
    with suppress(OSError):
        while True:
            for name, folder in (("threads", "task"), ("open_files", "fd")):
                peak[name] = max(peak[name], len(list((place / folder).iterdir())))
            peak["memory"] = max(peak["memory"], memory_of((place / "status").read_text()))
            time.sleep(TICK)


if __name__ == "__main__":
    main()
