"""Real SSH servers for the tests, with keys, ports and logs of their own; ~/.ssh is left alone."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG

from clusterctl.client.ssh.config import SshConfig
from clusterctl.client.ssh.connect import connect
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import Identities
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.specs.inventory.model import Node, Ssh

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
ME = pwd.getpwuid(os.getuid()).pw_name
SHELL = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
SSH_FIELDS = tuple(field.name for field in fields(Ssh))

PATIENT = Timeouts(**dict.fromkeys(("connect", "handshake", "login", "channel", "start", "send"), HANG))


def run_keygen(*arguments: str) -> str:
    """Run ssh-keygen and return what it prints."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed: apt install openssh-client")
    return subprocess.run(
        ["ssh-keygen", *arguments], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair, of a size and with a passphrase that cost little time."""
    size = ["-b", "2048"] if kind == "rsa" else []
    run_keygen("-q", "-t", kind, *size, "-a", "1", "-N", passphrase, "-C", path.name, "-f", str(path))
    return path


def free_port() -> int:
    """Return a port of 127.0.0.1 that no one holds at the moment."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_closed: list[socket.socket] = []


def closed_port() -> int:
    """Return a port of 127.0.0.1 that refuses connections as long as this process lives: no other one gets it."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))  # and never listens
    _closed.append(holder)
    return int(holder.getsockname()[1])


def node_named(name: str, **ssh: Any) -> Node:
    """Describe a node at 127.0.0.1 as an inventory would; `ssh` names fields of its `ssh`."""
    settings = {"user": ME, "key": None, "proxy_command": None, "known_hosts": None, "host_keys": "strict"}
    return Node(name=name, index=0, host="127.0.0.1", ssh=Ssh(**{**settings, **ssh}))


def plain_hop(node: Node) -> Hop:
    """Return the way to a node by the inventory alone."""
    return Routes(SshConfig(program="/nonexistent/ssh")).find(node)


def hop_named(name: str, **ssh: Any) -> Hop:
    """Describe the way to a node at 127.0.0.1."""
    return plain_hop(node_named(name, **ssh))


# Waits for the end of its stdin, which the tests hold, and ends the sshd that no one will stop any more.
WATCHER = 'read -r _; kill -9 "$1"'


@dataclass
class Server:
    """A running sshd, and what is needed to get in; it ends with the process that has started it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    watcher: subprocess.Popen[bytes]

    @property
    def host_key(self) -> str:
        """Return the server's public host key: type and base64."""
        return " ".join((self.folder / "host_ed25519.pub").read_text().split()[:2])

    @property
    def client_key(self) -> Path:
        """Return the private key that the server accepts."""
        return self.folder / "client"

    @property
    def known_hosts(self) -> Path:
        """Return the known_hosts file that knows the server."""
        return self.folder / "known_hosts"

    @property
    def log(self) -> str:
        """Return what the server wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def node(self, name: str = "n1", **changes: Any) -> Node:
        """Describe the server as an inventory would; `changes` name fields of the node or of its `ssh`."""
        settings = {"port": self.port, "key": str(self.client_key), "known_hosts": str(self.known_hosts)}
        mine = {key: changes.pop(key) for key in list(changes) if key in SSH_FIELDS}
        return replace(node_named(name, **{**settings, **mine}), **changes)

    def children(self) -> list[int]:
        """List the server's processes, one or two per connection."""
        found, wanted = [], [self.process.pid]
        while wanted:
            parent = wanted.pop()
            with suppress(OSError):  # it has just ended
                listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
                found += [int(pid) for pid in listed]
                wanted += [int(pid) for pid in listed]
        return found

    def stop(self) -> None:
        """End the server and its connections."""
        with self.watcher:  # first: the number of a process that has ended may be another's
            self.watcher.kill()
        children = self.children()
        for pid in (*children, self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def start_server(folder: Path, *options: str, port: int | None = None, address: str = "127.0.0.1") -> Server:
    """Start a sshd of our own in `folder`, with more lines of configuration."""
    if SSHD is None:
        pytest.skip("sshd is not installed: apt install openssh-server")
    if Path(SHELL).name in ("nologin", "false"):
        pytest.skip(f"no sshd lets {ME} in: the login shell is {SHELL}")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "host_ed25519").exists():
        make_key(folder / "host_ed25519")
        make_key(folder / "client")
    (folder / "home").mkdir(exist_ok=True)
    port = port or free_port()
    (folder / "authorized_keys").write_text((folder / "client.pub").read_text())
    lines = [
        *options,  # of each setting the first counts
        f"ListenAddress {address}:{port}",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"PidFile {folder}/pid",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        f"SetEnv HOME={folder}/home",  # shells write into their home, fish for one
    ]
    if not any(line.startswith("HostKey ") for line in lines):
        lines.append(f"HostKey {folder}/host_ed25519")
    if not any(line.startswith("MaxStartups ") for line in lines):
        lines.append("MaxStartups 200")  # of this one the last counts, not the first
    (folder / "conf").write_text("\n".join(lines) + "\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "conf")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", WATCHER, "watcher", str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    server = Server(folder, port, process, watcher)
    _await_port(server)
    key = " ".join((folder / "host_ed25519.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    return server


def _await_port(server: Server) -> None:
    deadline = time.monotonic() + HANG
    while server.process.poll() is None and time.monotonic() < deadline:
        if re.search(rf"Server listening on \S+ port {server.port}\.", server.log):
            return
        time.sleep(0.005)
    server.stop()
    raise AssertionError(f"sshd did not come up: {server.log}")


@dataclass
class Client:
    """Our side: host keys and private keys from an empty home, and connections that are closed at the end."""

    hostkeys: HostKeys
    keyring: Identities
    recorded: list[str]
    opened: list[Any]

    def connect(self, node: Node, timeouts: Timeouts = PATIENT) -> Any:
        """Open a connection."""
        connection = connect(plain_hop(node), self.hostkeys, self.keyring, timeouts)
        self.opened.append(connection)
        return connection

    def close(self) -> None:
        """Close what was opened."""
        for connection in self.opened:
            connection.close()


def make_client(home: Path, *, agent: bool = False) -> Client:
    """Connect with nothing but what is below `home`."""
    home.mkdir(exist_ok=True)
    recorded: list[str] = []
    hostkeys = HostKeys(recorded.append, home=home, system_file=home / "none")
    return Client(hostkeys, Identities(home=home, agent=agent), recorded, [])
