"""From one node to others: `clusterctl cp NODE:PATH NODES:PATH` to one node and to all, against rsync.

    python -m tests.bench stage [-n NODES] [-r ROUNDS] [--mib MIB] [--rate MBIT]

Builds a lab of its own, whose NICs send at most so many Mbit/s (`tc tbf`): the wire is the limit, and not the processor
that the nodes share. The content is random, in files of 42 MiB. rsync talks to daemons without encryption, which is
its fastest way; `rsync, to each` starts one for each node at the same moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from measuring import Bar, Sample, Way, alternate, compare, options_for, report, wall_of

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode
from clusterctl.lab.layout import DEFAULT_NICS

COMMAND = (sys.executable, "-m", "clusterctl")
TO_ONE, TO_ALL, RSYNC_ONE, RSYNC_ALL = "cp, to one", "cp, to all", "rsync, to one", "rsync, to each"
FILE_MIB = 42
DAEMON = "[all]\npath = /\nread only = no\nuse chroot = no\nuid = 0\ngid = 0\n"
MAX_TO_ALL, MAX_TO_ONE = 1.15, 1.1  # of the time to one; of rsync's
MAX_SENT = 1.01  # of the content: what leaves the node that has it


def main() -> None:
    """Run the rounds and print what was measured."""
    options = options_for(__doc__, rounds=3)
    options.add_argument("-n", "--nodes", type=int, default=5, help="with the one that has the content")
    options.add_argument("--mib", type=int, default=4 * FILE_MIB)
    options.add_argument("--rate", type=int, default=320, help="Mbit/s that a NIC sends at most")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        place = Path(folder) / "clusterctl" / "lab"
        lab = up(place, LabOptions(name="bench", count=asked.nodes, nics=DEFAULT_NICS, bound=True))
        try:
            prepare(lab, asked.mib, asked.rate)
            seen = alternate(ways_of(lab), asked.rounds)
            sent = measure_sent(lab) / (asked.mib << 20)
        finally:
            labs.down(place)
    table = compare(
        f"{asked.mib} MiB from one node, {asked.rate} Mbit/s each, {asked.nodes} nodes",
        seen,
        against=RSYNC_ONE,
    )
    to_one, to_all, rsync = (wall_of(seen[way]) for way in (TO_ONE, TO_ALL, RSYNC_ONE))
    bars = [
        Bar("to all, x to one", to_all / to_one, MAX_TO_ALL),
        Bar("to one, x rsync", to_one / rsync, MAX_TO_ONE),
        Bar("leaves the source, x the content", sent, MAX_SENT),
    ]
    raise SystemExit(report("stage", [table], bars, asked))


def prepare(lab: Lab, mib: int, rate: int) -> None:
    """Write the content, limit what each NIC sends, and start an rsync daemon on each node."""
    first = lab.nodes[0]
    first.run(
        [
            "sh",
            "-c",
            f"mkdir -p ~/source && cd ~/source && for i in $(seq {mib // FILE_MIB}); do "
            f"head -c {FILE_MIB << 20} /dev/urandom > part$i; done",
        ],
        timeout=600,
    )
    for node in lab.nodes:
        for nic in node.plan.nics:
            node.run(
                [
                    "tc",
                    "qdisc",
                    "add",
                    "dev",
                    nic.name,
                    "root",
                    "tbf",
                    "rate",
                    f"{rate}mbit",
                    "burst",
                    "256kb",
                    "latency",
                    "50ms",
                ]
            )
        node.run(
            ["sh", "-c", "cat > ~/rsyncd.conf && rsync --daemon --config=$HOME/rsyncd.conf"], input=DAEMON
        )


def ways_of(lab: Lab) -> list[Way]:
    """Return the ways that are compared."""
    others = lab.nodes[1:]
    return [
        Way(TO_ONE, lambda: Sample(time_cp(lab, others[:1]))),
        Way(TO_ALL, lambda: Sample(time_cp(lab, others))),
        Way(RSYNC_ONE, lambda: Sample(time_rsync(lab, others[:1]))),
        Way(RSYNC_ALL, lambda: Sample(time_rsync(lab, others))),
    ]


def time_cp(lab: Lab, receivers: Sequence[LabNode]) -> float:
    """Copy to some nodes; gives seconds, starting the command included."""
    names = ",".join(node.name for node in receivers)
    command = [*COMMAND, "-i", str(lab.inventory), "cp", f"{lab.nodes[0].name}:source", f"{names}:target/"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - began
    _remove(receivers)
    return seconds


def time_rsync(lab: Lab, receivers: Sequence[LabNode]) -> float:
    """Start one rsync on the node that has the content for each that gets it, all at the same moment."""
    commands = [
        lab.ssh_command(
            lab.nodes[0].name,
            [f"rsync -a source rsync://{node.plan.ip}/all$(pwd | tr -d '\\n')/target/"],
        )
        for node in receivers
    ]
    for node in receivers:
        node.run(["sh", "-c", "mkdir -p ~/target"])
    began = time.monotonic()
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for command in commands]
    codes = [process.wait() for process in running]
    seconds = time.monotonic() - began
    if any(codes):
        raise SystemExit(f"rsync failed: {codes}")
    _remove(receivers)
    return seconds


def measure_sent(lab: Lab) -> float:
    """Return the bytes that leave the node that has the content while it is copied to all others."""
    before = _sent_bytes(lab.nodes[0])
    time_cp(lab, lab.nodes[1:])
    return _sent_bytes(lab.nodes[0]) - before


def _sent_bytes(node: LabNode) -> float:
    paths = " ".join(f"/sys/class/net/{nic.name}/statistics/tx_bytes" for nic in node.plan.nics)
    return sum(float(line) for line in node.run(["sh", "-c", f"cat {paths}"]).stdout.split())


def _remove(nodes: Sequence[LabNode]) -> None:
    for node in nodes:
        node.run(["sh", "-c", "rm -rf ~/target"])


if __name__ == "__main__":
    main()
