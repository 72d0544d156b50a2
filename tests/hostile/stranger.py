"""An SSH server in hostile hands: greets, or not, and then does what no server does."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import paramiko
from loopback import LoopbackServer
from paramiko.common import (
    AUTH_PARTIALLY_SUCCESSFUL,
    AUTH_SUCCESSFUL,
    OPEN_SUCCEEDED,
    cMSG_EXT_INFO,
    cMSG_IGNORE,
    cMSG_USERAUTH_BANNER,
)

GREETING = b"SSH-2.0-OpenSSH_9.6\r\n"
PIECE = bytes(range(256)) * 256
Conduct = Callable[[socket.socket, paramiko.PKey], None]


def _flood(line: socket.socket, piece: bytes) -> None:
    while True:
        line.sendall(piece)


def silent(line: socket.socket, _: paramiko.PKey) -> None:
    """Accept, and say nothing."""
    while line.recv(4096):
        pass


def greets_only(line: socket.socket, key: paramiko.PKey) -> None:
    """Greet, and say nothing more."""
    line.sendall(GREETING)
    silent(line, key)


def banner_lines(line: socket.socket, _: paramiko.PKey) -> None:
    """Send lines before the greeting, for ever."""
    _flood(line, b"welcome to this machine\r\n" * 100)


def banner_line(line: socket.socket, _: paramiko.PKey) -> None:
    """Send one line that does not end."""
    _flood(line, b"w" * 65536)


def long_packet(line: socket.socket, _: paramiko.PKey) -> None:
    """Announce a packet of two gigabytes, and begin to send it."""
    line.sendall(GREETING + (2**31 - 1).to_bytes(4, "big") + b"\x04")
    _flood(line, PIECE)


def garbage(line: socket.socket, _: paramiko.PKey) -> None:
    """Send packets that are none in place of the key exchange."""
    line.sendall(GREETING)
    _flood(line, b"\x00\x00\x01\x00\x08\x14" + os.urandom(250))


def key_exchange(line: socket.socket, _: paramiko.PKey) -> None:
    """Send a key exchange whose lists of algorithms are longer than the packet."""
    line.sendall(GREETING)
    body = b"\x14" + os.urandom(16) + b"\xff\xff\xff\xff" * 10 + b"\0" * 5
    line.sendall((len(body) + 8).to_bytes(4, "big") + b"\x07" + body + b"\0" * 7)
    silent(line, paramiko.Ed25519Key.__new__(paramiko.Ed25519Key))


class _Host(paramiko.ServerInterface):
    """Lets everybody in and lets everything be opened; subclasses do harm on the way."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self.transport = transport

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's signature
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - the same
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - the same
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:  # noqa: ARG002 - the same
        threading.Thread(target=self._serve, args=[channel], daemon=True).start()
        return True

    def _serve(self, channel: paramiko.Channel) -> None:
        """Serve until the visitor is gone, which paramiko reports in any of three ways."""
        with suppress(OSError, EOFError, paramiko.SSHException):
            self.serve(channel)

    def serve(self, channel: paramiko.Channel) -> None:
        """Say nothing."""

    def flood(self, kind: bytes, text: bytes) -> None:
        """Send one message for ever."""
        message = paramiko.Message()
        message.add_byte(kind)
        message.add_string(text)
        message.add_string(b"")
        while self.transport.is_active():
            self.transport._send_message(message)  # type: ignore[attr-defined]  # paramiko's own


class FloodsLogin(_Host):
    """Sends words to be shown before the login, for ever."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Flood, and never come to an answer."""
        self.flood(cMSG_USERAUTH_BANNER, b"w" * 30000)
        return super().check_auth_publickey(username, key)


class NeverContent(_Host):
    """Accepts every key, and wants another one."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - the same
        """Want more."""
        return AUTH_PARTIALLY_SUCCESSFUL


class FloodsOutput(_Host):
    """Lets its command write for ever, and never begin."""

    def serve(self, channel: paramiko.Channel) -> None:
        """Flood."""
        while True:
            channel.sendall(PIECE)


class FloodsErrors(_Host):
    """The same on the other stream."""

    def serve(self, channel: paramiko.Channel) -> None:
        """Flood."""
        while True:
            channel.sendall_stderr(PIECE)


class FloodsLine(_Host):
    """Sends what is to be ignored, for ever, once there is a command."""

    def serve(self, channel: paramiko.Channel) -> None:  # noqa: ARG002 - there is no need of it
        """Flood."""
        self.flood(cMSG_IGNORE, PIECE[:30000])


class Extends(paramiko.Transport):
    """Announces four billion extensions as soon as the keys are exchanged."""

    def _activate_outbound(self) -> None:
        super()._activate_outbound()  # type: ignore[misc]  # paramiko's own, not in its type information
        message = paramiko.Message()
        message.add_byte(cMSG_EXT_INFO)
        message.add_int(0xFFFFFFFF)
        self._send_message(message)  # type: ignore[attr-defined]  # the same


def as_server(host: type[_Host], transport_of: type[paramiko.Transport] = paramiko.Transport) -> Conduct:
    """Speak SSH in full, with a host that does harm."""

    def conduct(line: socket.socket, key: paramiko.PKey) -> None:
        transport = transport_of(line)
        transport.add_server_key(key)
        with suppress(paramiko.SSHException, EOFError):
            transport.start_server(server=host(transport))
        transport.join()

    return conduct


CONDUCTS: dict[str, Conduct] = {
    "silent": silent,
    "greets-only": greets_only,
    "banner-lines": banner_lines,
    "banner-line": banner_line,
    "long-packet": long_packet,
    "garbage": garbage,
    "key-exchange": key_exchange,
    "extensions": as_server(_Host, Extends),
    "floods-login": as_server(FloodsLogin),
    "never-content": as_server(NeverContent),
    "says-nothing": as_server(_Host),
    "floods-output": as_server(FloodsOutput),
    "floods-errors": as_server(FloodsErrors),
    "floods-line": as_server(FloodsLine),
}


class Stranger(LoopbackServer):
    """Listens on loopback and treats every visitor alike."""

    def __init__(self, conduct: Conduct) -> None:
        self.key = paramiko.RSAKey.generate(2048)
        super().__init__(lambda line: conduct(line, self.key))
