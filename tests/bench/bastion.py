"""Many nodes behind one bastion with sshd's default limits: failures, wall time, client CPU.

`python tests/bench/bastion.py [NODES...]` starts one sshd as the bastion and eight as the nodes (each node is a
loopback address of its own at one of their ports), asks every node for its facts, and prints one line per size.
With `--one` all nodes are one sshd, so that its MaxStartups 10:30:100 drops most of a burst.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from servers import ME, Server, start_server

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.specs.inventory.model import Node

DEFAULTS = ("MaxStartups 10:30:100", "MaxSessions 10")


def ask(connection: object, _: Node) -> None:
    """Do on a node what `check` does."""
    request = {"peers": {}, "workdir": "/tmp"}
    with Session(connection, "probe", request, Interpreter(sys.executable)) as session:
        session.receive(60)


def nodes_behind(servers: list[Server], count: int, config: str) -> list[Node]:
    """Spread nodes over some servers, each at an address of its own; one known_hosts file for all, as usual."""
    known = Path(f"{config}.known")
    known.write_text("".join(f"* {server.host_key}\n" for server in servers))
    return [
        replace(
            servers[place % len(servers)].node(
                f"n{place}", jump="bastion", config=config, known_hosts=str(known)
            ),
            host=f"127.0.{1 + place // 200}.{1 + place % 200}",
        )
        for place in range(count)
    ]


def listening_everywhere(folder: Path) -> Server:
    """Start a server at all loopback addresses, with sshd's own limits."""
    return start_server(folder, *DEFAULTS, "AddressFamily inet", address="0.0.0.0")


def measure(count: int, servers: list[Server], config: str) -> None:
    """Connect to all nodes and ask them, in a process whose connections are all new."""
    began, cpu = time.monotonic(), time.process_time()
    with Cluster(print) as cluster:
        outcomes = list(cluster.each(nodes_behind(servers, count, config), ask))
        wall = time.monotonic() - began
    ended = time.monotonic() - began
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    used = (time.process_time() - cpu) * 1000 / count
    print(
        f"{count} nodes, {len(servers)} sshd: {len(errors)} failures, {wall:.2f} s ({ended:.2f} s with closing), "
        f"client CPU {used:.1f} ms per node"
    )
    for error in errors[:3]:
        print(f"  {error.code} {error.node}: {error.message} ({error.evidence})")


def main() -> None:
    """Run the sizes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[64, 200])
    parser.add_argument("--one", action="store_true", help="all nodes are one sshd")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bastion = start_server(folder / "bastion", *DEFAULTS)
        servers = [listening_everywhere(folder / f"far{n}") for n in range(1 if chosen.one else 8)]
        config = folder / "config"
        config.write_text(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion.port}\n  User {ME}\n"
            f"  IdentityFile {bastion.client_key}\n  UserKnownHostsFile {bastion.known_hosts}\n"
        )
        try:
            for count in chosen.sizes:
                before = bastion.log.count("Accepted")
                measure(count, servers, os.fspath(config))
                print(f"  logins at the bastion: {bastion.log.count('Accepted') - before}")
        finally:
            for server in (*servers, bastion):
                server.stop()


if __name__ == "__main__":
    main()
