"""The SSH server of a node without namespaces: keys only, sessions only, OpenSSH's own limits."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_UNKNOWN_CHANNEL_TYPE,
    OPEN_SUCCEEDED,
    cMSG_CHANNEL_SUCCESS,
)

from clusterctl.lab.inproc_children import Children
from clusterctl.lab.inproc_session import Session, Terminal
from clusterctl.lab.layout import LabPlan, NodePlan, session_environment

MOST_SESSIONS = 10  # MaxSessions of OpenSSH
MOST_STRANGERS = 100  # connections that have not logged in yet, as MaxStartups of OpenSSH
LOGIN_SECONDS = 30.0


class Server:
    """Listens at the node's address; what is open lives on when it stops listening."""

    def __init__(self, plan: LabPlan, node: NodePlan, children: Children) -> None:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # a port scan must not fill the disk
        self.plan = plan
        self.node = node
        self.children = children
        folder = Path(plan.directory)
        self.host_key = paramiko.Ed25519Key(filename=str(folder / "nodes" / node.name / "host_key"))
        words = (folder / "id_ed25519.pub").read_text(encoding="ascii").split()
        self.allowed = words[1]
        self._socket: socket.socket | None = None
        self._strangers = threading.BoundedSemaphore(MOST_STRANGERS)

    @property
    def listens(self) -> bool:
        """Whether new connections get in."""
        return self._socket is not None

    def open(self) -> None:
        """Listen, unless it does; OSError if the port is taken."""
        if self._socket is None:
            where = (self.node.host, self.plan.ssh_port)
            self._socket = socket.create_server(where, backlog=128)
            threading.Thread(target=self._accept, args=[self._socket], daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
            self._socket = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0 or listener is not self._socket:
                    return
                time.sleep(0.05)  # no descriptors left, for example
                continue
            if not self._strangers.acquire(blocking=False):
                peer.close()
                continue
            threading.Thread(target=self._receive, args=[peer], daemon=True).start()

    def _receive(self, peer: socket.socket) -> None:
        """Let a visitor log in, and keep him company until he leaves."""
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = Transport(peer)
            visit = Visit(self, transport, peer)
        except (OSError, paramiko.SSHException):
            peer.close()
            self._strangers.release()
            return
        try:
            transport.add_server_key(self.host_key)
            transport.start_server(threading.Event(), visit)
            _await_login(transport)
        finally:
            self._strangers.release()
        transport.join()  # until he leaves
        transport.close()


def _await_login(transport: paramiko.Transport) -> None:
    deadline = time.monotonic() + LOGIN_SECONDS
    while transport.is_active() and not transport.is_authenticated():
        if time.monotonic() > deadline:
            transport.close()
        time.sleep(0.02)


class Transport(paramiko.Transport):
    """paramiko's, but it tells when a request was answered: no command may end before its client knows it began."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.answered = threading.Event()

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)  # type: ignore[misc]  # the stubs leave out what is private
        if data.asbytes()[:1] == cMSG_CHANNEL_SUCCESS:
            self.answered.set()


class Visit(paramiko.ServerInterface):
    """One connection: what it may do."""

    def __init__(self, server: Server, transport: Transport, peer: socket.socket) -> None:
        self.server = server
        self.transport = transport
        self.connection = " ".join(
            f"{host} {port}" for host, port in (peer.getpeername(), peer.getsockname())
        )
        self._granted: dict[int, paramiko.Channel | None] = {}
        self._terminals: dict[int, Terminal] = {}
        self._wishes: dict[int, dict[str, str]] = {}

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002  (paramiko's signature)
        """Keys, and nothing else."""
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """The lab's own key and user are let in."""
        known = username == self.server.plan.account.name and key.get_base64() == self.server.allowed
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Sessions, as many at a time as OpenSSH allows."""
        if kind != "session":
            return OPEN_FAILED_UNKNOWN_CHANNEL_TYPE
        while (channel := self.transport.accept(0)) is not None:
            self._granted[channel.get_id()] = channel
        for number in [number for number, channel in self._granted.items() if channel and channel.closed]:
            del self._granted[number]
            self._terminals.pop(number, None)
            self._wishes.pop(number, None)
        if len(self._granted) >= MOST_SESSIONS:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self._granted[chanid] = None
        return OPEN_SUCCEEDED

    def check_channel_env_request(self, channel: paramiko.Channel, name: bytes, value: bytes) -> bool:
        """The language of the caller, as Debian's sshd takes it."""
        key = os.fsdecode(name)
        if key != "LANG" and not key.startswith("LC_"):
            return False
        self._wishes.setdefault(channel.get_id(), {})[key] = os.fsdecode(value)
        return True

    def check_channel_pty_request(
        self,
        channel: paramiko.Channel,
        term: bytes,
        width: int,
        height: int,
        *_: object,  # pixels, modes
    ) -> bool:
        """A terminal for the session that follows."""
        self._terminals[channel.get_id()] = Terminal(os.fsdecode(term), width, height)
        return True

    def check_channel_window_change_request(
        self, channel: paramiko.Channel, width: int, height: int, *_: object
    ) -> bool:
        """The caller's window has another size."""
        terminal = self._terminals.get(channel.get_id())
        if terminal is not None:
            terminal.resize(width, height)
        return terminal is not None

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Run a command by the user's shell."""
        return self._start(channel, ["-c", os.fsdecode(command)])

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        """Run a login shell."""
        return self._start(channel, ["-l"])

    def _start(self, channel: paramiko.Channel, words: list[str]) -> bool:
        plan, node = self.server.plan, self.server.node
        shell = plan.account.shell
        host, port, _, own_port = self.connection.split()
        env = {
            **session_environment(plan, node),
            **self._wishes.get(channel.get_id(), {}),
            "SSH_CLIENT": f"{host} {port} {own_port}",
            "SSH_CONNECTION": self.connection,
        }
        terminal = self._terminals.get(channel.get_id())
        session = Session(channel, self.server.children, [shell, *words], plan.home(node), env, terminal)
        self.transport.answered.clear()
        return session.start(self.transport.answered)
