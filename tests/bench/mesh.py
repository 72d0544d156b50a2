"""The proof on the wire between lab nodes: its wall time, and what share of `check` it is.

    python -m tests.bench mesh [-n NODES,...] [-r ROUNDS]

Builds labs of its own and runs `check --json` on each, ROUNDS times; the last columns are with one way closed by a
firewall (nft), which costs the limit of a connection. Labs of 30 nodes and more fill the kernel's table of neighbours,
which all nodes of a lab share (`net.ipv4.neigh.default.gc_thresh3`).
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

sys.path.insert(0, str(Path(__file__).parent))
from measuring import Bar, Table, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

LIMIT = 1.0  # seconds for eight nodes
RULES = """
table ip bench { chain i { type filter hook input priority 0; }
}
add rule ip bench i ip saddr %s tcp flags & (syn|ack) == syn drop
"""


def main() -> int:
    """Measure each size of lab."""
    options = options_for(__doc__, rounds=5)
    options.add_argument("-n", "--nodes", default="2,8,24,40")
    asked = options.parse_args()
    rows, bars = [], []
    for count in map(int, asked.nodes.split(",")):
        row = measure(count, asked.rounds)
        rows.append(row)
        if count == 8:
            bars.append(Bar("8 nodes: the proof", float(row[2]), LIMIT, "s"))
    columns = ("nodes", "ways", "proof, s", "check, s", "ways open with one closed", "proof then, s")
    return report("mesh", [Table("the proof on the wire", columns, rows)], bars, asked)


def measure(count: int, rounds: int) -> tuple[Any, ...]:
    """Raise a lab and check it; gives one row of medians."""
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        state_dir = Path(folder) / "clusterctl" / "lab"
        lab = up(state_dir, LabOptions(name="bench", count=count, nics=DEFAULT_NICS, bound=True))
        try:
            told = [check(lab, folder) for _ in range(rounds + 1)][1:]
            proof = statistics.median(one["wire"]["seconds"] for one, _ in told)
            wall = statistics.median(seconds for _, seconds in told)
            tell(f"{count} nodes: {proof:.2f} s of {wall:.2f} s")
            ways = len([way for way in told[0][0]["wire"]["ways"] if way["port"] == "ephemeral"])
            return (count, ways, round(proof, 3), round(wall, 2), *close_one(lab, folder))
        finally:
            labs.down(state_dir)


def close_one(lab: Lab, folder: str) -> tuple[Any, Any]:
    """Close the way from the second node to the first and prove again."""
    rules = RULES % lab.nodes[1].plan.ip
    if lab.nodes[0].run(["nft", "-f", "-"], input=rules, check=False).returncode:
        return None, None
    wire = check(lab, folder)[0]["wire"]
    good = [way for way in wire["ways"] if way["open"] and way["port"] == "ephemeral"]
    return len(good), round(wire["seconds"], 2)


def check(lab: Lab, folder: str) -> tuple[dict[str, Any], float]:
    """Run check; gives what it reported and its wall time."""
    began = time.monotonic()
    words = [sys.executable, "-m", "clusterctl", "-i", str(lab.inventory), "check", "--json"]
    env = {**os.environ, "XDG_STATE_HOME": folder}
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    return json.loads(done.stdout), time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
