"""What a session needs of a way to a node: one command there, its three streams, and how it ended."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Protocol, cast

import paramiko

from clusterctl.errors import ClusterctlError
from clusterctl.plans.shell import REMOTE_COMMAND
from clusterctl.runs import endings
from clusterctl.runs.bell import hang
from clusterctl.runs.limits import WATCHDOG
from clusterctl.runs.sockets import Line

PIECE = 64 << 10
WINDOW_TICK = 0.2  # seconds that `send` waits for room
STATUS_WAIT = 1.0  # seconds between the end of a stream and the exit status that follows it
CLOSE_LIMIT = 2.0
TRANSPORT_ERRORS = (OSError, EOFError, paramiko.SSHException)


class Channel(Protocol):
    """A command that runs on a node. `send`, `close` and the questions after the end wait a little, nothing else."""

    @property
    def node(self) -> str:
        """Return the name of the node."""

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come than what is here already."""

    @property
    def status(self) -> int:
        """Return how the command ended, once it did: its exit status, or NO_STATUS after a signal."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or the channel is over."""

    def take(self) -> bytes:
        """Take what is here of stdout; empty when there is nothing."""

    def take_stderr(self) -> bytes:
        """Take what is here of stderr; empty when there is nothing."""

    def send(self, data: bytes) -> int:
        """Send and say how much went; 0 when nobody listens any more, TimeoutError when there is no room."""

    def find_failure(self) -> ClusterctlError | None:
        """Return what cut the channel; None if the command ended by itself."""

    def hang_up(self) -> None:
        """End whatever waits in this channel, from any thread."""

    def close(self) -> None:
        """Let go: the command sees the end of its stdin."""


class ParamikoChannel:
    """A channel of paramiko's."""

    def __init__(self, transport: paramiko.Transport, verb: str, limit: float) -> None:
        self._transport = transport
        self._line = cast(Line, transport.sock)
        self.node = self._line.node
        with WATCHDOG.limit(limit, self._line.hang_up) as alarm:
            try:
                self._channel = transport.open_session(timeout=limit + 1)
                self._channel.settimeout(WINDOW_TICK)
                self._channel.exec_command(REMOTE_COMMAND)
            except TRANSPORT_ERRORS as error:
                if alarm.expired:
                    raise endings.overdue(self.node, f"channel for {verb}", limit) from error
                if transport.is_active():
                    raise endings.channel_refused(self.node, str(error)) from error
                raise self._lost() from error
        self._bell = hang(self)
        buffers = {"stdout": self._channel.in_buffer, "stderr": self._channel.in_stderr_buffer}
        for name, buffer in buffers.items():
            buffer.set_event(cast(threading.Event, self._bell.cord(name)))

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come than what is here already."""
        return bool(self._channel.closed or self._channel.eof_received)

    @property
    def status(self) -> int:
        """Return the exit status, or NO_STATUS."""
        return self._channel.exit_status

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or the channel is over."""
        return self._bell.fileno()

    def take(self) -> bytes:
        """Take what is here of stdout."""
        return self._channel.recv(PIECE) if self._channel.recv_ready() else b""

    def take_stderr(self) -> bytes:
        """Take what is here of stderr."""
        return self._channel.recv_stderr(PIECE) if self._channel.recv_stderr_ready() else b""

    def send(self, data: bytes) -> int:
        """Send and say how much went; 0 when nobody listens any more."""
        try:
            return self._channel.send(data)
        except TimeoutError:
            raise
        except TRANSPORT_ERRORS:
            return 0

    def find_failure(self) -> ClusterctlError | None:
        """Tell a lost connection from a command that ended."""
        self._channel.status_event.wait(STATUS_WAIT)
        # When a process ends the server says that its output did; a connection that is lost says nothing.
        return None if self._channel.eof_received else self._lost()

    def hang_up(self) -> None:
        """End the connection; paramiko waits without a limit in places."""
        self._line.hang_up()

    def close(self) -> None:
        """Close the channel."""
        with WATCHDOG.limit(CLOSE_LIMIT, self.hang_up), suppress(*TRANSPORT_ERRORS):
            self._channel.close()
        self._bell.close()

    def _lost(self) -> ClusterctlError:
        return endings.lost(
            self.node, "\n".join(filter(None, (self._last_words(), self._line.describe_end())))
        )

    def _last_words(self) -> str:
        parting, error = getattr(self._transport, "parting", ""), self._transport.saved_exception
        if parting:
            return f"the server said: {parting}"
        return f"{type(error).__name__}: {error}" if error is not None else ""
