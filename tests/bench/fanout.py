"""One command on many nodes: `clusterctl exec true` against a bare paramiko pool, pdsh, clush, Ansible, parallel-ssh.

    python -m tests.bench fanout [-r ROUNDS] [-n NODES] [--pssh VENV]

The nodes are addresses of one sshd on this machine. Start-up (Python, imports, reading the inventory) is measured with
one node; what 64 nodes take more, divided by 63, is the cost of a node. `its fan-out alone` starts no program of ours
there: on one machine the 64 interpreters that `exec` starts share the cores with us. Peers: see `check`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from check import Field, ways_of
from measuring import (
    Bar,
    Sample,
    Way,
    alternate,
    compare,
    cpu_of,
    find_peers,
    options_for,
    report,
    time_commands,
    wall_of,
)
from servers import ME, start_server

POOL = Path(__file__).parent / "bare_pool.py"
RAW = Path(__file__).parent / "raw_fanout.py"
OURS, FANS, BARE, ALONE = "clusterctl exec", "its fan-out alone", "paramiko pool", ", 1 node"
MAX_CPU = 8.0  # ms of the client per node
MAX_WALL = 1.15  # times the bare pool's


def main() -> None:
    """Measure, and print what a node costs."""
    options = options_for(__doc__, rounds=5)
    options.add_argument("-n", "--nodes", type=int, default=64)
    options.add_argument("--pssh", metavar="VENV", help="a virtual environment that has parallel-ssh")
    options.add_argument("--alone", action="store_true", help="without the peers")
    asked = options.parse_args()
    peers = {} if asked.alone else find_peers("pdsh", "clush", "ansible")
    if asked.pssh:
        peers["parallel-ssh"] = f"{asked.pssh}/bin/python"
    with tempfile.TemporaryDirectory(prefix="cb-") as scratch:
        folder = Path(scratch)
        server = start_server(folder / "sshd", "MaxStartups 1000", "AddressFamily inet", address="0.0.0.0")
        try:
            field = Field(folder, server, asked.nodes, asked.nodes)
            seen = alternate([*own_ways(field), *ways_of(field, peers)[1:]], asked.rounds)
        finally:
            server.stop()
    table = compare(f"`true` on {asked.nodes} nodes", seen, against=BARE, per=asked.nodes)
    cpu, bare = per_node(seen, OURS, asked.nodes), per_node(seen, BARE, asked.nodes)
    note = f"client CPU of a node after start-up: clusterctl {cpu:.1f} ms, bare pool {bare:.1f} ms"
    wall, fans = (wall_of(seen[way]) / wall_of(seen[BARE]) for way in (OURS, FANS))
    bars = [
        Bar("exec: client CPU after start-up", cpu, MAX_CPU, "ms per node"),
        Bar("fan-out alone: wall", fans, MAX_WALL, "x the bare pool"),
        Bar("exec: wall, interpreters on the nodes included", wall, MAX_WALL, "x the bare pool"),
    ]
    raise SystemExit(report("fanout", [replace(table, note=note)], bars, asked))


def own_ways(field: Field) -> list[Way]:
    """Give ours and the bare pool's, at all nodes and at one."""
    return [
        Way(OURS, lambda: run_ours(field, "all")),
        Way(OURS + ALONE, lambda: run_ours(field, "0")),
        Way(FANS, lambda: run_raw(field)),
        Way(BARE, lambda: run_bare(field, field.hosts)),
        Way(BARE + ALONE, lambda: run_bare(field, field.hosts[:1])),
    ]


def run_ours(field: Field, nodes: str) -> Sample:
    """Run `true` with clusterctl."""
    chosen = [] if nodes == "all" else ["--nodes", nodes]
    command = [
        sys.executable,
        "-m",
        "clusterctl",
        "-q",
        "-i",
        str(field.inventory),
        "exec",
        *chosen,
        "--",
        "true",
    ]
    return time_commands([command], env={"PATH": "/usr/bin:/bin", "HOME": str(field.folder)})


def run_raw(field: Field) -> Sample:
    """Run `true` over our own connections."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(field.folder)}
    return time_commands([[sys.executable, str(RAW), str(field.inventory)]], env=env)


def run_bare(field: Field, hosts: Sequence[str]) -> Sample:
    """Run `true` with nothing but paramiko."""
    known = field.folder / "known_bare"
    if not known.exists():
        port, key = field.server.port, field.server.host_key
        known.write_text("".join(f"[{host}]:{port} {key}\n" for host in field.hosts))
    words = [ME, str(field.server.port), str(field.server.client_key), str(known), *hosts]
    return time_commands([[sys.executable, str(POOL), *words]])


def per_node(seen: Mapping[str, Sequence[Sample]], way: str, nodes: int) -> float:
    """Return what one more node costs the client, in ms of CPU."""
    return (cpu_of(seen[way]) - cpu_of(seen[way + ALONE])) * 1000 / max(1, nodes - 1)


if __name__ == "__main__":
    main()
