"""Nodes as `keys push` meets them: SSH servers that take a password, of which one is in hostile hands.

Two servers are honest: they take the password, run what they are sent by a real sh in a home of their own, and from
then on take the key that stands in its `authorized_keys`. The third does the same but for what its case reports.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import paramiko
from ground import NODES, Ground, Seen, World
from loopback import LoopbackServer
from node import EVIL
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_SUCCEEDED,
    cMSG_CHANNEL_WINDOW_ADJUST,
    cMSG_USERAUTH_INFO_REQUEST,
)

PASSWORD = "right horse"
MARK = "clusterctl-key:"
LONG = 200_000  # characters
MAX_SHOWN = 16_000  # characters that a command about three nodes needs
MAX_SENT = 20  # times that one login sends the password
PIECE = bytes(range(256)) * 128
GONE = (OSError, EOFError, paramiko.SSHException)  # how paramiko reports that the client is gone


class HonestServer(paramiko.ServerInterface):
    """An honest server for one connection."""

    allowed = "publickey,password"

    def __init__(self, node: NodeServer, transport: paramiko.Transport) -> None:
        self.node = node
        self.transport = transport

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's signature
        """Name the ways to log in."""
        return self.allowed

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - the same
        """Take a key that stands in `authorized_keys`."""
        file = self.node.home / ".ssh" / "authorized_keys"
        known = file.is_file() and key.get_base64() in file.read_text(encoding="ascii")
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:  # noqa: ARG002 - the same
        """Take the password, and remember that it was sent."""
        self.node.passwords.append(password)
        return AUTH_SUCCESSFUL if password == PASSWORD and "password" in self.allowed else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - the same
        """Open what is wanted."""
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Run a command."""
        threading.Thread(target=self._serve, args=[channel, command], daemon=True).start()
        return True

    def _serve(self, channel: paramiko.Channel, command: bytes) -> None:
        with suppress(*GONE):
            self.serve(channel, command)
            channel.close()

    def serve(self, channel: paramiko.Channel, command: bytes) -> None:
        """Let a sh read what comes, and send back what it reports."""
        environment = {"HOME": str(self.node.home), "PATH": os.environ["PATH"]}
        process = subprocess.Popen(
            ["/bin/sh", "-c", command.decode()],
            cwd=self.node.home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.node.processes.append(process)
        said, _ = process.communicate(read_all(channel))
        channel.sendall(said)
        channel.send_exit_status(process.returncode)


def read_all(channel: paramiko.Channel) -> bytes:
    """Read what the client sends, to its end."""
    pieces = bytearray()
    while piece := channel.recv(8192):
        pieces += piece
    return bytes(pieces)


def says(answer: Callable[[paramiko.Channel], None]) -> type[HonestServer]:
    """Make a server that answers the script with what it likes."""

    class Says(HonestServer):
        def serve(self, channel: paramiko.Channel, command: bytes) -> None:  # noqa: ARG002 - as HonestServer has it
            """Answer."""
            answer(channel)

    return Says


def _ends_with(text: str) -> Callable[[paramiko.Channel], None]:
    def answer(channel: paramiko.Channel) -> None:
        read_all(channel)
        channel.sendall(text.encode("utf-8", "surrogateescape"))

    return answer


def _repeats(piece: bytes) -> Callable[[paramiko.Channel], None]:
    def answer(channel: paramiko.Channel) -> None:
        while True:
            channel.sendall(piece)

    return answer


class TakesAnyKey(HonestServer):
    """Claims that every key is there already."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - paramiko's signature
        """Take it."""
        return AUTH_SUCCESSFUL


class ClaimsAtLength(HonestServer):
    """Installs nothing, reports it in a path of many characters, and takes every key from then on."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - paramiko's signature
        """Take it after the password came."""
        return AUTH_SUCCESSFUL if self.node.passwords else AUTH_FAILED

    def serve(self, channel: paramiko.Channel, command: bytes) -> None:  # noqa: ARG002 - as HonestServer has it
        """Claim."""
        _ends_with(f"\n{MARK} added /{EVIL}{'x' * 60_000}\n")(channel)


class Mute(HonestServer):
    """Never answers whether it runs a command."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002
        """Wait."""
        self.node.closed.wait()
        return False


class Closed(HonestServer):
    """Never answers whether it opens a channel."""

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - paramiko's signature
        """Wait."""
        self.node.closed.wait()
        return OPEN_SUCCEEDED


class Refuses(HonestServer):
    """Lets in, and runs no command."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002
        """Refuse."""
        return False


class Cuts(HonestServer):
    """Ends the connection when a command is to run."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002
        """Hang up."""
        self.transport.close()
        return False


class Silent(HonestServer):
    """Runs nothing, and never reports it."""

    def serve(self, channel: paramiko.Channel, command: bytes) -> None:  # noqa: ARG002 - as HonestServer has it
        """Wait."""
        self.node.closed.wait()


class Drips(HonestServer):
    """Reports something every now and then."""

    def serve(self, channel: paramiko.Channel, command: bytes) -> None:  # noqa: ARG002 - as HonestServer has it
        """Say it."""
        while not self.node.closed.wait(1.0):
            channel.sendall(b".")


class Narrow(HonestServer):
    """Takes one byte of the script every now and then."""

    def __init__(self, node: NodeServer, transport: paramiko.Transport) -> None:
        super().__init__(node, transport)
        transport.default_window_size = 1  # type: ignore[attr-defined]  # paramiko's own

    def serve(self, channel: paramiko.Channel, command: bytes) -> None:  # noqa: ARG002 - as HonestServer has it
        """Make room for one more."""
        while not self.node.closed.wait(1.0):
            message = paramiko.Message()
            message.add_byte(cMSG_CHANNEL_WINDOW_ADJUST)
            message.add_int(channel.remote_chanid)
            message.add_int(1)
            self.transport._send_message(message)  # type: ignore[attr-defined]  # the same


class Asks(HonestServer):
    """Wants no password, but answers to questions; asks for it again and again."""

    allowed = "publickey,keyboard-interactive"
    question = "Password: "

    def check_auth_interactive(self, username: str, submethods: str) -> int | paramiko.InteractiveQuery:  # noqa: ARG002
        """Ask."""
        return paramiko.InteractiveQuery("", "", (self.question, False))

    def check_auth_interactive_response(self, responses: list[str]) -> int | paramiko.InteractiveQuery:
        """Ask again."""
        self.node.passwords += responses
        return self.check_auth_interactive("", "")


class AsksAtLength(Asks):
    """Asks for a code, in many words."""

    question = EVIL + "one-time code " + "x" * LONG


class AsksMuch(Asks):
    """Announces four billion questions."""

    def check_auth_interactive(self, username: str, submethods: str) -> int:  # noqa: ARG002 - paramiko's signature
        """Announce them, and wait."""
        message = paramiko.Message()
        message.add_byte(cMSG_USERAUTH_INFO_REQUEST)
        for _ in ("title", "instructions", "language"):
            message.add_string("")
        message.add_int(0xFFFFFFFF)
        self.transport._send_message(message)  # type: ignore[attr-defined]  # paramiko's own
        self.node.closed.wait()
        return AUTH_FAILED


class WantsMore(HonestServer):
    """Offers ways to log in whose names are long and not for a terminal."""

    allowed = f"publickey,{EVIL.replace(',', '')}{'x' * LONG}"


def _as_pipe(home: Path) -> None:
    (home / ".ssh").mkdir(mode=0o700)
    os.mkfifo(home / ".ssh" / "authorized_keys")


def _as_endless_file(home: Path) -> None:
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh" / "authorized_keys").symlink_to("/dev/zero")


def _as_folder(home: Path) -> None:
    (home / ".ssh" / "authorized_keys").mkdir(parents=True)


def _as_file(home: Path) -> None:
    (home / ".ssh").write_text("")


def _elsewhere(home: Path) -> None:
    (home / "elsewhere").mkdir(mode=0o700)
    (home / ".ssh").symlink_to("elsewhere")


CASES: dict[str, type[HonestServer]] = {
    # what the shell reports
    "floods": says(_repeats(PIECE)),
    "floods-lines": says(_repeats(b"welcome to this machine\n" * 100)),
    "claims-flood": says(_repeats(f"\n{MARK} added /{EVIL}\n{MARK} note {EVIL}\n".encode())),
    "claims-present": says(_ends_with(f"\n{MARK} present /root/.ssh/authorized_keys\n")),
    "claims-at-length": ClaimsAtLength,
    "fails-at-length": says(
        _ends_with(f"\n{MARK} note {EVIL}{'x' * 500}" * 100 + f"\n{MARK} failed {EVIL}{'x' * 9000}\n")
    ),
    "garbage": says(_ends_with("\udcff\udcfe\x00{}[]" * 1024)),
    "one-line": says(_ends_with(EVIL + "x" * (1 << 20))),
    # or not
    "mute": Mute,
    "no-channel": Closed,
    "refuses": Refuses,
    "cuts": Cuts,
    "silent": Silent,
    "drips": Drips,
    "narrow": Narrow,
    # the login
    "takes-any-key": TakesAnyKey,
    "asks-again": Asks,
    "asks-at-length": AsksAtLength,
    "asks-much": AsksMuch,
    "wants-more": WantsMore,
    "other-host-key": HonestServer,  # a new one for every connection
    # an honest server, and a strange home
    "home-pipe": HonestServer,
    "home-endless": HonestServer,
    "home-folder": HonestServer,
    "home-file": HonestServer,
    "home-elsewhere": HonestServer,
}
HOMES: dict[str, Callable[[Path], None]] = {
    "home-pipe": _as_pipe,
    "home-endless": _as_endless_file,
    "home-folder": _as_folder,
    "home-file": _as_file,
    "home-elsewhere": _elsewhere,
}
BELIEVED = ("takes-any-key", "claims-at-length", "home-elsewhere")  # to the harm of no one but the node
UNASKED = ("takes-any-key", "other-host-key")  # they get no password


class NodeServer(LoopbackServer):
    """The SSH server of one node, until `close`."""

    def __init__(self, home: Path, case: str) -> None:
        self.home, self.case = home, case
        self.passwords: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.closed = threading.Event()
        self._key = paramiko.ECDSAKey.generate()
        home.mkdir(parents=True, mode=0o700)
        HOMES.get(case, lambda _: None)(home)
        super().__init__(self._serve)

    def close(self) -> None:
        """Let no one in any more, and end what runs."""
        self.closed.set()
        super().close()
        for process in self.processes:
            process.kill()

    def _serve(self, line: socket.socket) -> None:
        key = paramiko.ECDSAKey.generate() if self.case == "other-host-key" else self._key
        with suppress(*GONE):
            transport = paramiko.Transport(line)
            transport.add_server_key(key)
            transport.start_server(server=CASES.get(self.case, HonestServer)(self, transport))
            transport.join()


@contextmanager
def serving(folder: Path, case: str, liar: str) -> Iterator[dict[str, NodeServer]]:
    """Start a server for every node; that of the liar has a case."""
    with ExitStack() as stack:
        servers = {}
        for name in NODES:
            servers[name] = NodeServer(folder / name, case if name == liar else "")
            stack.callback(servers[name].close)
        yield servers


def run_push(ground: Ground, name: str, words: Sequence[str], case: str, liar: str) -> tuple[World, Seen]:
    """Run `keys push` in a world of its own; what has leaked is noted."""
    world = ground.world(name)
    with serving(ground.folder / f"{name}-nodes", case, liar) as servers:
        nodes = [
            {"name": node, "host": "127.0.0.1", "ssh": {"port": server.port}}
            for node, server in servers.items()
        ]
        text = {"cluster": "passwords", "ssh": {"user": "trainer", "config": "none"}, "nodes": nodes}
        (world.folder / "inventory.yaml").write_text(json.dumps(text), encoding="ascii")
        seen = world.run(words, SECRET=PASSWORD)
        leaked = [*find_leaks(world, seen), *misplaced_passwords(servers[liar])]
        running = [process.args for process in servers[liar].processes if process.poll() is None]
        left = [f"left running on {liar}: {one}" for one in running if case in HOMES]
    return world, replace(seen, leaked=(*leaked, *left))


def misplaced_passwords(server: NodeServer) -> Iterator[str]:
    """Say whether a node got a password that it must not get, or too often."""
    if server.passwords and server.case in UNASKED:
        yield "the password was sent to a node that needs none"
    if len(server.passwords) > MAX_SENT:
        yield f"the password was sent {len(server.passwords)} times"


def find_leaks(world: World, seen: Seen) -> Iterator[str]:
    """Say where the password stands that must not stand anywhere."""
    if PASSWORD in seen.both:
        yield "the password on the screen"
    if len(seen.both) > MAX_SHOWN:
        yield f"{len(seen.both)} characters on the screen"
    for file in world.folder.rglob("*"):
        if file.is_file() and PASSWORD.encode() in file.read_bytes():
            yield f"the password in {file}"
