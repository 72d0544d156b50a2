"""Bytes to and from something on a node, over one conversation: a port, a terminal, a rank at a breakpoint.

The other side is `node/verbs/tunnel.py`. A node may be hostile: it can name no channel that was not opened here, and
send no more of one than is taken.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.client.rpc.tasks import on_node
from clusterctl.interrupts import INTERRUPTS
from clusterctl.protocol.untrusted import MalformedError, Untrusted
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from fabric import Connection

    from clusterctl.protocol.messages.verbs import TunnelRequest

WINDOW = 256 << 10  # bytes of a channel that are sent before the other side has taken them
CHUNK = 32 << 10
TICK = 0.5  # seconds between looks at the size of the terminal and at the conversation's silence
SILENCE_LIMIT = 20.0
LONGEST_REASON = 300


def open_tunnel(c: Connection, node: Node, interpreter: Interpreter, request: TunnelRequest) -> Session:
    """Open a conversation that carries bytes to and from something on a node."""
    whole: TunnelRequest = {**request, "workdir": node.workdir, "node": node.name}
    return Session(
        c, "tunnel", whole, on_node(node, interpreter), limits=SessionLimits(silence=SILENCE_LIMIT)
    )


@dataclass
class Local:
    """This machine's end of a channel."""

    source: int  # is read
    sink: int  # is written
    owner: socket.socket | None = None
    credit: int = WINDOW  # bytes that the node still takes
    unsent: bytearray = field(default_factory=bytearray)  # of the node, for here
    finished: bool = False  # nothing more will be read here
    left: bool = False  # the node sends no more


@dataclass
class Tunnel:
    """The channels of one conversation; `on_frame` takes what is about none of them, and returns whether to go on."""

    session: Session
    on_frame: Callable[[Untrusted], bool]
    on_refused: Callable[[str], None] = lambda _: None
    listener: socket.socket | None = None
    channels: dict[int, Local] = field(default_factory=dict)
    _next: int = 1
    _running: bool = True

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Carry until the node ends, or `on_frame` returns False; Ctrl-C ends it, too."""
        while self._running and not self.session.ended:
            for header, body in self.session.pump():
                self._on_frame(header, body)
            if not self._running or self.session.ended:
                return
            self.session.check_silence(SILENCE_LIMIT)
            for descriptor, _ in INTERRUPTS.poll(self._poller(), TICK):
                self._serve(descriptor)
            on_tick()

    def close_input(self, number: int) -> None:
        """Send the node the end of a channel."""
        self.channels[number].finished = True
        self.session.send({"close": number})

    def _poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self.session.fileno(), select.POLLIN)
        if self.listener is not None:
            poller.register(self.listener, select.POLLIN)
        for channel in self.channels.values():
            if channel.credit > 0 and not channel.finished:
                poller.register(channel.source, select.POLLIN)
            if channel.unsent:
                both = channel.sink == channel.source and channel.credit > 0 and not channel.finished
                poller.register(channel.sink, select.POLLOUT | (select.POLLIN if both else 0))
        return poller

    def _serve(self, descriptor: int) -> None:
        if self.listener is not None and descriptor == self.listener.fileno():
            self._accept(self.listener)
        for number, channel in list(self.channels.items()):
            if descriptor == channel.sink:
                self._write(number, channel)
            if descriptor == channel.source and not channel.finished and channel.credit > 0:
                self._read(number, channel)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        number, self._next = self._next, self._next + 1
        self.channels[number] = Local(connection.fileno(), connection.fileno(), connection)
        self.session.send({"open": number})

    def _read(self, number: int, channel: Local) -> None:
        try:
            data = os.read(channel.source, min(CHUNK, channel.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            channel.credit -= len(data)
            self.session.send({"data": number}, data)
        else:
            self.close_input(number)

    def _write(self, number: int, channel: Local) -> None:
        """Write what there is; that it was taken is what lets the node send more."""
        try:
            count = os.write(channel.sink, channel.unsent)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EPIPE and channel.owner is None:
                raise
            self._drop(number)
            return
        del channel.unsent[:count]
        self.session.send({"taken": number, "bytes": count})
        if channel.left and not channel.unsent:
            self._drop(number)

    def _drop(self, number: int) -> None:
        channel = self.channels.pop(number)
        if channel.owner is not None:
            channel.owner.close()
        with suppress(Exception):
            self.session.send({"close": number})

    def _on_frame(self, header: Untrusted, body: bytes) -> None:
        if "data" in header:
            channel = self._channel(header, "data")
            if channel is not None and len(channel.unsent) + len(body) > WINDOW:
                raise MalformedError("more bytes of a channel than were taken")
            if channel is not None:
                channel.unsent += body
                self._write(header.integer("data") or 0, channel)
        elif "taken" in header:
            channel = self._channel(header, "taken")
            if channel is not None:
                channel.credit = min(WINDOW, channel.credit + (header.integer("bytes", 0, WINDOW) or 0))
        elif "close" in header and self._channel(header, "close") is not None:
            self._on_close(header.integer("close") or 0, header)
        elif "beat" not in header and "end" not in header:
            self._running = self._running and self.on_frame(header)

    def _on_close(self, number: int, header: Untrusted) -> None:
        reason = header.text("reason", LONGEST_REASON)
        channel = self.channels[number]
        if channel.owner is None:
            self._running = self._running and self.on_frame(header)
            return
        if reason:
            self.on_refused(reason)
        channel.left = True
        if not channel.unsent:
            self._drop(number)

    def _channel(self, header: Untrusted, key: str) -> Local | None:
        number = header.integer(key)
        return None if number is None else self.channels.get(number)


def listen(address: int | str) -> socket.socket:
    """Listen for connections of this machine, at a port (0: any free one), or of this account, at a path."""
    is_port = isinstance(address, int)
    listener = socket.create_server(("127.0.0.1", address)) if is_port else _listen_privately(str(address))
    listener.setblocking(False)
    return listener


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


def standard_channel() -> Local:
    """Make a channel of our own stdin and stdout."""
    return Local(sys.stdin.fileno(), sys.stdout.fileno())


def terminal_size() -> list[int]:
    """Give rows and columns of the terminal, or usual ones."""
    with suppress(OSError):
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
        if rows and columns:
            return [rows, columns]
    return [24, 80]


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass every key on as it is, if stdin is a terminal; its settings come back in any case."""
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield
        return
    before: Any = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
