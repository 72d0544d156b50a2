"""From one node to others: `clusterctl cp NODE:PATH NODES:PATH` to one node and to all, against rsync.

    python -m tests.bench stage [-n NODES] [-r ROUNDS] [--mib MIB] [--rate MBIT]

Builds a lab of its own, whose NICs send at most so many Mbit/s (`tc tbf`): the wire is the limit, and not the processor
that the nodes share. The content is random, in files of 42 MiB. rsync talks to daemons without encryption, which is
its fastest way; `rsync, to each` starts one for each node at the same moment. A model of the same size comes from a
stand-in for a hub on the first node. Then, once each: what leaves the source, processor time against rsync over ssh, a
middle node that dies half-way, and a second look at 20 GB in 10,000 sparse files.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from measuring import Bar, Sample, Way, alternate, compare, options_for, report, tell, wall_of
from stage_peers import (
    HUB_ALL,
    HUB_ONE,
    kill_receiver,
    measure_cpu,
    remove,
    run_clusterctl,
    serving_model,
    time_second_look,
    ways_from_hub,
)

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode, break_node, heal_node
from clusterctl.lab.layout import DEFAULT_NICS

TO_ONE, TO_ALL, RSYNC_ONE, RSYNC_ALL = "cp, to one", "cp, to all", "rsync, to one", "rsync, to each"
FILE_MIB = 42
DAEMON = "[all]\npath = /\nread only = no\nuse chroot = no\nuid = 0\ngid = 0\n"
MAX_TO_ALL, MAX_TO_ONE = 1.15, 1.1  # of the time to one; of rsync's
MAX_SENT = 1.01  # of the content: what leaves the node that has it
MAX_KILLED = 1.3  # of the time to all: when a middle node dies half-way
MAX_CPU = 1.0  # of rsync's over ssh: processor seconds for a GiB on a node that receives
MAX_LOOK = 1.0  # seconds for 20 GB that are there


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
            parts = asked.mib // FILE_MIB
            with serving_model(lab, parts, FILE_MIB << 20) as url:
                ways = [*ways_of(lab), *ways_from_hub(lab, Path(folder), url, parts)]
                seen = alternate(ways, asked.rounds)
            once = [*measure_once(lab, asked.mib, wall_of(seen[TO_ALL])), look_bar(lab, Path(folder))]
        finally:
            labs.down(place)
    table = compare(
        f"{asked.mib} MiB from one node, {asked.rate} Mbit/s each, {asked.nodes} nodes",
        seen,
        against=RSYNC_ONE,
    )
    to_one, to_all, rsync = (wall_of(seen[way]) for way in (TO_ONE, TO_ALL, RSYNC_ONE))
    hub_to_one, hub_to_all = (wall_of(seen[way]) for way in (HUB_ONE, HUB_ALL))
    bars = [
        Bar("to all, x to one", to_all / to_one, MAX_TO_ALL),
        Bar("from a hub to all, x to one", hub_to_all / hub_to_one, MAX_TO_ALL),
        Bar("to one, x rsync", to_one / rsync, MAX_TO_ONE),
        *once,
    ]
    raise SystemExit(report("stage", [table], bars, asked))


def measure_once(lab: Lab, mib: int, to_all: float) -> list[Bar]:
    """Measure what needs no rounds: bytes, processor time, and the time with a node that dies."""
    gib = mib / 1024
    before = measure_cpu(lab.nodes)
    sent = measure_sent(lab) / (mib << 20)
    ours = [(after - begun) / gib for begun, after in zip(before, measure_cpu(lab.nodes), strict=True)]
    rsync = measure_rsync_over_ssh(lab) / gib
    tell(f"processor seconds per GiB: {' '.join(f'{seconds:.2f}' for seconds in ours)}; rsync {rsync:.2f}")
    middle = lab.nodes[(len(lab.nodes) + 1) // 2]
    killed = time_struck(lab, mib, lambda: kill_receiver(middle), to_all / 2, middle)
    dark = time_struck(lab, mib, lambda: break_node(lab, middle.name, "power"), to_all / 2, middle)
    heal_node(lab, middle.name)
    tell(f"a middle node without power: {dark:.2f} s, x to all: {dark / to_all:.2f}")
    return [
        Bar("leaves the source, x the content", sent, MAX_SENT),
        Bar("processor time of a receiver, x rsync over ssh", statistics.median(ours[1:]) / rsync, MAX_CPU),
        Bar("a middle receiver is killed half-way, x to all", killed / to_all, MAX_KILLED),
    ]


def time_struck(lab: Lab, mib: int, strike: Callable[[], object], after: float, victim: LabNode) -> float:
    """Return the seconds of a copy to all while a node is struck: it is named, and all others have the content."""
    timer = threading.Timer(after, strike)
    timer.start()
    seconds, code, said = copy_to(lab, lab.nodes[1:])
    timer.join()
    others = [node for node in lab.nodes[1:] if node.name != victim.name]
    sizes = {node.name: int(node.run(["sh", "-c", "du -sm ~/target | cut -f1"]).stdout) for node in others}
    if code == 0 or victim.name not in said or min(sizes.values()) < mib:
        raise SystemExit(f"exit code {code}, MiB {sizes}\n{said}")
    remove(others, "target")
    return seconds


def look_bar(lab: Lab, folder: Path) -> Bar:
    """Measure a second look at what is there."""
    return Bar("20 GB in 10,000 files that are there", time_second_look(lab, folder), MAX_LOOK, "s")


def measure_rsync_over_ssh(lab: Lab) -> float:
    """Return the processor seconds of a node that receives the content by rsync over ssh, from here."""
    node, source = lab.nodes[1], Path(lab.nodes[0].run(["sh", "-c", "cd ~/source && pwd"]).stdout.strip())
    before = measure_cpu([node])[0]
    ssh = f"ssh -F {lab.ssh_config}"
    here = f"/proc/{lab.nodes[0].read_state().pid}/root{source}"
    subprocess.run(["rsync", "-a", "-e", ssh, here, f"{node.name}:target/"], check=True)
    used = measure_cpu([node])[0] - before
    remove([node], "target")
    return used


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
    seconds, code, said = copy_to(lab, receivers)
    if code:
        raise SystemExit(said)
    remove(receivers, "target")
    return seconds


def copy_to(lab: Lab, receivers: Sequence[LabNode]) -> tuple[float, int, str]:
    """Copy to some nodes; gives seconds, the exit code, and what was printed as an error."""
    names = ",".join(node.name for node in receivers)
    return run_clusterctl(lab, "cp", f"{lab.nodes[0].name}:source", f"{names}:target/")


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
    remove(receivers, "target")
    return seconds


def measure_sent(lab: Lab) -> float:
    """Return the bytes that leave the node that has the content while it is copied to all others."""
    before = _sent_bytes(lab.nodes[0])
    time_cp(lab, lab.nodes[1:])
    return _sent_bytes(lab.nodes[0]) - before


def _sent_bytes(node: LabNode) -> float:
    paths = " ".join(f"/sys/class/net/{nic.name}/statistics/tx_bytes" for nic in node.plan.nics)
    return sum(float(line) for line in node.run(["sh", "-c", f"cat {paths}"]).stdout.split())


if __name__ == "__main__":
    main()
