"""What `ssh`, `forward` and `debug` do on this machine: a terminal, a listener, and the bytes of one connection.

`ssh` is the user's own ssh, `forward` is SSH's port forwarding. A rank at a breakpoint is the verb `connect`, whose
session is one connection; so is a port of a node that is reached by the user's ssh or by a step of its Slurm job.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from select import POLLIN, poll
from typing import NoReturn

import paramiko

from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc.channels import SSH_FAILED
from clusterctl.client.rpc.errors import connection_lost
from clusterctl.client.rpc.session import Session
from clusterctl.client.ssh.bastion import PROHIBITED
from clusterctl.client.ssh.transport import Transport
from clusterctl.errors import Unreachable
from clusterctl.interrupts import INTERRUPTS
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import command_line

CHUNK = 32 << 10
CONNECT_LIMIT = 10.0  # seconds
TICK = 0.5  # seconds between looks at what is overdue
MAX_REASON = 300  # characters


def run_in_terminal(master: OpensshConnection, command: str) -> int:
    """Run a command on a node in this terminal, by the user's ssh; returns its exit code."""
    process = subprocess.Popen(master.terminal_argv(command))
    try:
        status = INTERRUPTS.call(process.wait)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if status == SSH_FAILED and not master.is_connected:
        raise connection_lost(master.node.name, "")
    return status


def listen(address: int | str) -> socket.socket:
    """Listen for connections of this machine, at a port (0: any free one), or of this account, at a path."""
    if isinstance(address, int):
        return socket.create_server(("127.0.0.1", address))
    return _listen_privately(address)


def _listen_privately(path: str) -> socket.socket:
    """Listen on a Unix socket of mode 0600, which has that mode from its first moment on."""
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def render_address(listener: socket.socket) -> str:
    """Write where a socket listens."""
    name = listener.getsockname()
    return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


def stop_listening(listener: socket.socket) -> None:
    """Close a socket that listens, and remove its path."""
    if listener.family == socket.AF_UNIX:
        Path(listener.getsockname()).unlink(missing_ok=True)
    listener.close()


class PortRefusedError(Exception):
    """Nothing on the node takes the connection; the text is the reason."""


@dataclass
class PortForward:
    """Connects to a port of a node by SSH's port forwarding.

    `find_address` asks the node which of its addresses takes a connection; PortRefusedError if none does.
    """

    transport: Transport
    node: str
    port: int
    find_address: Callable[[], str]
    address: str = "localhost"

    def carry(self, connection: socket.socket) -> None:
        """Carry a connection to its end; one side may end before the other."""
        channel = self._open()
        if channel is None:
            self.address = self.find_address()
            channel = self._open()
        if channel is None:
            raise PortRefusedError(f"{self.address}:{self.port}")  # it has gone meanwhile
        with closing(channel):
            upwards = partial(_copy, connection.recv, channel.sendall, channel.shutdown_write)
            sending = threading.Thread(target=upwards, daemon=True)
            sending.start()
            _copy(channel.recv, connection.sendall, lambda: connection.shutdown(socket.SHUT_WR))
            sending.join()

    def _open(self) -> paramiko.Channel | None:
        """Return a channel to the port, None if the address does not take it."""
        place = (self.address, self.port)
        try:
            return self.transport.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=CONNECT_LIMIT)
        except (paramiko.SSHException, EOFError, OSError) as error:
            refusal = self.transport.pop_refusal()
            if refusal is None:
                raise connection_lost(self.node, str(error)) from error
            if refusal[0] != PROHIBITED:
                return None
            command = command_line("clusterctl", "ssh", self.node)
            raise Unreachable(
                "CC-SSH-032",
                node=self.node,
                evidence=refusal[1],
                server=self.node,
                address=place[0],
                port=place[1],
                command=command,
            ) from error


def _copy(receive: Callable[[int], bytes], send: Callable[[bytes], object], end: Callable[[], None]) -> None:
    with suppress(OSError, EOFError, paramiko.SSHException):
        while chunk := receive(CHUNK):
            send(chunk)
        end()


def serve(
    listener: socket.socket,
    carry: Callable[[socket.socket], None],
    on_refused: Callable[[PortRefusedError], None],
) -> NoReturn:
    """Carry every connection that a listener accepts, until Ctrl-C or an error."""
    failures: SimpleQueue[Exception] = SimpleQueue()

    def carry_one(connection: socket.socket) -> None:
        with connection:
            try:
                carry(connection)
            except PortRefusedError as error:
                on_refused(error)
            except OSError:  # the program here has gone
                return
            except Exception as error:
                failures.put(error)  # raised where the command waits

    def accept() -> None:
        while listener.fileno() >= 0:
            try:
                connection, _ = listener.accept()
            except OSError:  # too many open files, or it was closed
                time.sleep(TICK)
            else:
                threading.Thread(target=carry_one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, name="accepting connections", daemon=True).start()
    raise INTERRUPTS.get(failures)


@dataclass
class Relay:
    """Bytes between a session of the verb `connect` and descriptors of this machine.

    `on_frame` takes what the node reports of the connection, and returns whether to go on.
    """

    session: Session
    source: int
    sink: int
    on_frame: Callable[[Untrusted], bool]
    connected: bool = False
    finished: bool = False  # nothing more will be read here

    def run(self) -> None:
        """Carry until the node ends, or `on_frame` returns False."""
        while not self.session.ended:
            for header, body in self.session.pump():
                if "data" in header:
                    self._write(body)
                elif not ("beat" in header or "end" in header or self.on_frame(header)):
                    return
            self.session.check_silence(SILENCE_LIMIT)
            poller = poll()
            poller.register(self.session.fileno(), POLLIN)
            if self.connected and not self.finished:
                poller.register(self.source, POLLIN)
            if any(descriptor == self.source for descriptor, _ in INTERRUPTS.poll(poller, TICK)):
                self._read()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.sink, data) :]

    def _read(self) -> None:
        data = os.read(self.source, CHUNK)
        self.finished = not data
        if data:
            self.session.send({"data": True}, data)
        else:
            self.session.send({"close": True})


def carry_in_session(session: Session, connection: socket.socket) -> None:
    """Carry a connection over a session of its own."""

    def on_frame(header: Untrusted) -> bool:
        if "connected" in header:
            relay.connected = True
        elif not relay.connected:
            raise PortRefusedError(header.text("closed", MAX_REASON))
        return "connected" in header

    relay = Relay(session, connection.fileno(), connection.fileno(), on_frame)
    with session:
        relay.run()


def read_address(session: Session, limit: float) -> str:
    """Return the address of the node at which its port accepts; PortRefusedError with the reason if there is none."""
    with session:
        frame = session.receive(limit)
    header = frame[0] if frame is not None else Untrusted({})
    if "connected" in header:
        return header.text("connected", MAX_REASON)
    raise PortRefusedError(header.text("closed", MAX_REASON))
