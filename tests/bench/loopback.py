"""Many addresses of one sshd on this machine, in the words of clusterctl, OpenSSH, and the peers.

    with loopback_nodes(folder, 64) as nodes:
        nodes.command("exec", "--", "true")     # our argv, with the inventory
        nodes.ssh("n3"), nodes.environment       # OpenSSH's words, and where our state goes

Every node has a work directory of its own, so that it is as far from the others as another machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from servers import ME, Server, start_server

PORT_TRIES = 5
ROOMY = ("MaxStartups 1000", "MaxSessions 100", "AddressFamily inet")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a bench: one sshd, an address each."""

    folder: Path
    server: Server
    addresses: Mapping[str, str]  # by node name

    @property
    def inventory(self) -> Path:
        """Return our inventory."""
        return self.folder / "inventory.yaml"

    @property
    def ssh_config(self) -> Path:
        """Return the configuration for OpenSSH, which knows the nodes by their names."""
        return self.folder / "ssh_config"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of our commands: no state of the user's own."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CLUSTERCTL_")}
        return {**clean, "XDG_STATE_HOME": str(self.folder / "state")}

    def command(self, *words: str | Path) -> list[str]:
        """Render one of our commands."""
        return [sys.executable, "-m", "clusterctl", "-i", str(self.inventory), *map(str, words)]

    def ssh(self, name: str, *words: str) -> list[str]:
        """Render OpenSSH's command."""
        return ["ssh", "-F", str(self.ssh_config), name, *words]

    def write_inventory(self, workdir: str) -> None:
        """Write our inventory, with a work directory of that name on every node."""
        server = self.server
        known = str(self.folder / "known_hosts")
        ssh = {"user": ME, "port": server.port, "key": str(server.client_key), "known_hosts": known}
        listed = [
            {"name": name, "host": address, "gpus": 0, "workdir": str(self.home(name) / workdir)}
            for name, address in self.addresses.items()
        ]
        document = {"cluster": "loopback", "ssh": ssh, "python": sys.executable, "nodes": listed}
        self.inventory.write_text(json.dumps(document))

    def home(self, name: str) -> Path:
        """Return where a node keeps what is its own."""
        return self.folder / "nodes" / name


@contextmanager
def loopback_nodes(folder: Path, count: int) -> Iterator[Nodes]:
    """Start the server, write what describes it, and end it."""
    server = start_on_free_port(folder)
    try:
        yield describe(folder, server, count)
    finally:
        server.stop()


def start_on_free_port(folder: Path) -> Server:
    """Start the server; a port that was free may be someone's connection a moment later."""
    for turn in range(PORT_TRIES):
        try:
            return start_server(folder / "sshd", *ROOMY, address="0.0.0.0")
        except AssertionError as error:
            if "in use" not in str(error) or turn + 1 == PORT_TRIES:
                raise
    raise AssertionError("unreachable")


def describe(folder: Path, server: Server, count: int) -> Nodes:
    """Write inventory and ssh_config for so many addresses of a server."""
    addresses = {f"n{place}": f"127.0.{1 + place // 200}.{1 + place % 200}" for place in range(count)}
    known = folder / "known_hosts"
    known.write_text(
        "".join(f"[{address}]:{server.port} {server.host_key}\n" for address in addresses.values())
    )
    nodes = Nodes(folder, server, addresses)
    nodes.write_inventory("work")
    hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
    nodes.ssh_config.write_text(
        f"{hosts}Host *\n  Port {server.port}\n  User {ME}\n  IdentityFile {server.client_key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  LogLevel ERROR\n"
    )
    for name in addresses:
        nodes.home(name).mkdir(parents=True)
    return nodes
