"""What seeing a run costs: a sample of 8 ranks, 24 hours in the ring, reports of 3 nodes x 1 h and 200 x 24 h.

    python -m tests.bench report

Processor time, bytes on disk, bytes of each report, and how long Chromium takes to load it. The nodes are simulated:
samples and journals of made-up values go through the same thinning, packing, parsing and drawing as a node's answer.
Not part of `./test`.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from browser import find_missing, start_browser

from clusterctl.node.history import ring
from clusterctl.node.history.gpus import Gpus
from clusterctl.node.history.machine import MachineSampler
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.history import NodeRecord, RecordParser
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

RANKS, GPUS = 8, 8
SAMPLES = 500
BEGAN = 1_800_000_000.0
COLUMNS = [
    *(
        ("gpu", str(gpu), quantity)
        for gpu in range(GPUS)
        for quantity in ("busy", "memory", "power", "temperature")
    ),
    *(("gpu", str(gpu), quantity) for gpu in range(GPUS) for quantity in ("clock", "throttle", "xid")),
    *(("rank", str(rank), quantity) for rank in range(RANKS) for quantity in ("rss", "cpu")),
    *(
        ("nic", name, quantity)
        for name in ("eth0", "ib0")
        for quantity in ("received", "sent", "errors", "drops")
    ),
    *(("node", "", quantity) for quantity in ("cpu", "memory")),
]


def measure_sample() -> None:
    """Sample this machine with eight processes as ranks, and write it down, as an agent does."""
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(RANKS)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            machine, gpus = MachineSampler(folder), Gpus(set())
            ranks = {number: process.pid for number, process in enumerate(processes)}
            columns = sorted({**machine.sample(ranks), **gpus.sample()})
            kept = ring.RingSet(str(Path(folder) / "samples"), columns, {})
            before = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(SAMPLES):
                values = {**machine.sample(ranks), **gpus.sample()}
                kept.add(time.time(), [values.get(column, ring.NAN) for column in columns])
            after = resource.getrusage(resource.RUSAGE_SELF)
            kept.close()
            gpus.stop()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    user = (after.ru_utime - before.ru_utime) / SAMPLES
    system = (after.ru_stime - before.ru_stime) / SAMPLES
    share = (user + system) / ring.INTERVAL * 100
    print(
        f"a sample, {RANKS} ranks, {len(columns)} columns: user {user * 1e3:.3f} ms, sys {system * 1e3:.3f} ms,"
        f" {share:.4f} % of a core"
    )


def make_answer(folder: Path, hours: float, points: int) -> tuple[Untrusted, bytes]:
    """Fill a ring with so many hours and give what a node would answer."""
    kept = ring.RingSet(str(folder), COLUMNS, {"cores": 64, "memory": 1 << 40, "gpus": []})
    chance = random.Random(hours)
    count = int(hours * 3600 / ring.INTERVAL)
    for number in range(count):
        wave = 50 + 40 * math.sin(number / 300) + chance.random() * 10
        kept.add(BEGAN + number * ring.INTERVAL, [wave + chance.random() for _ in COLUMNS])
    kept.close()
    end = BEGAN + count * ring.INTERVAL
    thinned = ring.thin(ring.read_samples(str(folder), 0.0, end), BEGAN, end, points)
    header = {
        "columns": [list(column) for column in thinned.columns],
        "rows": len(thinned.rows),
        "width": thinned.width,
        "time": end,
        "about": thinned.about,
    }
    return Untrusted({"history": header}), zlib.compress(ring.pack(thinned))


def make_scalars(hours: float) -> Untrusted:
    """Give a loss over so many hours."""
    rows = [[BEGAN + number * hours * 12, number, 3 / (1 + number / 10)] for number in range(300)]
    series = {"name": "loss", "source": "log", "count": 300, "points": rows}
    return Untrusted({"scalars": [series], "cut": False})


def read_node(name: str, hours: float, answer: tuple[Untrusted, bytes], points: int) -> NodeRecord:
    """Read the answer of a node, as it comes from the connection."""
    events: list[dict[str, Any]] = [
        {"time": BEGAN + 1, "event": "preparing"},
        {"time": BEGAN + 9, "event": "workers"},
        {"time": BEGAN + hours * 3600, "event": "ended", "state": "FAILED"},
    ]
    parser = RecordParser(name, points)
    parser.add(*answer)
    parser.add(Untrusted({"journal": 1}), "\n".join(map(json.dumps, events)).encode())
    parser.add(make_scalars(hours), b"")
    return parser.finish(BEGAN + hours * 3600)


def measure_opening(page: str) -> str:
    """Open a page in Chromium, and give how long it took to load."""
    if find_missing():
        return "no browser"
    with tempfile.TemporaryDirectory() as folder, start_browser(Path(folder) / "profile") as browser:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        browser.show(file)
        browser.show(file)  # once more, for the browser's own start is not the page's
        took = browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    return f"loaded in {took / 1e3:.2f} s"


def measure_report(nodes: int, hours: float, points: int) -> None:
    """Make the ring of one node, read it for all, and write the report."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        answer = make_answer(Path(folder) / "samples", hours, points)
        stored = sum(entry.stat().st_size for entry in (Path(folder) / "samples").iterdir())
        made = time.process_time()
    names = [f"gpu{number:03}" for number in range(nodes)]
    records = {name: read_node(name, hours, answer, points) for name in names}
    read = time.process_time()
    state = {"run": "bench-20261123T000000-0001", "job": "bench", "nnodes": nodes, "state": "FAILED"}
    times = {
        "since": BEGAN + hours * 3600,
        "submitted": BEGAN,
        "began": BEGAN + 9,
        "world_size": nodes * RANKS,
    }
    ranks = {str(rank): {"local_rank": rank, "pid": 7, "exit": 1, "signal": None} for rank in range(RANKS)}
    parts = {
        name: parse_state(Untrusted({**state, **times, "node": name, "node_rank": number, "ranks": ranks}))
        for number, name in enumerate(names)
    }
    run = ReportedRun(RunId(state["run"]), parts, None, (), records, times["since"], str)
    page = render_report(run, None, "clusterctl", ())
    done = time.process_time()
    print(
        f"{nodes} nodes x {hours:g} h: report {len(page.encode()) / 1e3:.0f} kB in {done - read:.2f} s,"
        f" {measure_opening(page)}; reading the"
        f" answers {read - made:.2f} s of {len(answer[1]) / 1e3:.0f} kB each; samples on a node {stored / 1e6:.2f} MB,"
        f" written and thinned in {made - began:.2f} s"
    )


def main() -> None:
    """Print all of it."""
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    measure_sample()
    measure_report(3, 1, 300)
    measure_report(200, 24, 120)


if __name__ == "__main__":
    main()
