"""Bringing 200 MB home: `clusterctl pull` against `rsync`, cold and unchanged, with the peak memory of each.

    python tests/bench/pull.py [-n NODES] [-r ROUNDS] [-m MEGABYTES]

Builds a lab of its own, puts one large file and 500 small ones on every node, and alternates the two. rsync runs once
for every node, all at the same time, over OpenSSH with the lab's configuration. Not part of `./test`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

FILL = """
d=~/.clusterctl/outputs/bench; mkdir -p "$d/small"; chmod 700 ~/.clusterctl
head -c {large} /dev/urandom > "$d/model.pt"
i=0; while [ $i -lt 500 ]; do head -c {small} /dev/urandom > "$d/small/$i"; i=$((i+1)); done
"""
SMALL = 4000


def main() -> None:
    """Run the rounds and print what was measured."""
    options = argparse.ArgumentParser(description="pull against rsync")
    options.add_argument("-n", "--nodes", type=int, default=1)
    options.add_argument("-r", "--rounds", type=int, default=3)
    options.add_argument("-m", "--megabytes", type=int, default=200)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        state = Path(folder) / "clusterctl" / "lab"
        lab = up(state, LabOptions(name="bench", count=asked.nodes, nics=DEFAULT_NICS, bound=True))
        try:
            compare(lab, Path(folder), asked.rounds, asked.megabytes)
        finally:
            labs.down(state)


def compare(lab: Lab, folder: Path, rounds: int, megabytes: int) -> None:
    """Alternate the two, each into an empty directory and then again into the full one."""
    large = megabytes * 1_000_000 // len(lab.nodes) - 500 * SMALL
    for node in lab.nodes:
        subprocess.run(lab.ssh_command(node.name, [FILL.format(large=large, small=SMALL)]), check=True)
    seen: dict[str, list[float]] = {}
    memory = 0
    for turn in range(rounds):
        for name, command in (("pull", pull), ("rsync", rsync)):
            target = (
                folder / f"{name}{turn}"
            )  # ext4 is slow to give inodes again that were freed a moment ago
            for state in ("cold", "unchanged"):
                seconds, peak = measure(command, lab, target)
                seen.setdefault(f"{name} {state}", []).append(seconds)
                memory = max(memory, peak if name == "pull" else 0)
    for what, times in seen.items():
        print(f"{what:<16} {statistics.median(times):6.2f} s   {' '.join(f'{time:.2f}' for time in times)}")
    print(f"peak memory of pull: {memory // 1024} MB")


def measure(command: Callable[[Lab, Path], list[Sequence[str]]], lab: Lab, target: Path) -> tuple[float, int]:
    """Run commands at the same time; gives the seconds and the largest peak of memory in KiB."""
    target.mkdir(exist_ok=True)
    began = time.monotonic()
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in command(lab, target)]
    peak = 0
    for process in running:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, process.args
        peak = max(peak, usage.ru_maxrss)
    return time.monotonic() - began, peak


def pull(lab: Lab, target: Path) -> list[Sequence[str]]:
    """Render our command."""
    words = [
        "-m",
        "clusterctl",
        "-q",
        "-i",
        str(lab.inventory),
        "pull",
        "--job",
        "bench",
        str(target),
    ]
    return [[sys.executable, *words]]


def rsync(lab: Lab, target: Path) -> list[Sequence[str]]:
    """Render rsync's, one for each node."""
    return [
        [
            "rsync",
            "-a",
            "-e",
            f"ssh -F {lab.ssh_config}",
            f"{node.name}:.clusterctl/outputs/bench/",
            f"{target}/{node.name}/",
        ]
        for node in lab.nodes
    ]


if __name__ == "__main__":
    main()
