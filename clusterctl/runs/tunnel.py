"""The byte stream to a node through a bastion."""

from __future__ import annotations

import threading
from contextlib import suppress

import paramiko

from clusterctl.runs.sockets import HEAD_KEPT, Line


class TunnelLine:
    """The byte stream to one node through a bastion, as a Line is one of its own."""

    proxied = False  # the bastion has reached the node's port

    def __init__(self, channel: paramiko.Channel, *, node: str, bastion: str) -> None:
        self.node = node
        self.bastion = bastion
        self.head = b""
        self._channel = channel
        self._closed = False  # paramiko looks at it

    def recv(self, size: int) -> bytes:
        """Receive, and remember how the conversation began."""
        data = self._channel.recv(size)
        if len(self.head) < HEAD_KEPT:
            self.head += data[:HEAD_KEPT]
        return data

    def send(self, data: bytes) -> int:
        """Send what the node has room for."""
        return self._channel.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long the others wait."""
        self._channel.settimeout(seconds)

    def getpeername(self) -> object:
        """Return where the bastion is."""
        return self._channel.getpeername()

    def hang_up(self) -> None:
        """End the stream, from any thread, at once for whoever waits in it.

        Telling the bastion takes a thread of its own: it may not be listening, and the caller may be the one
        thread that all time limits hang on.
        """
        threading.Thread(target=self._close_channel, name="hanging up", daemon=True).start()

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self.hang_up()

    def describe_end(self) -> str:
        """Say whether it was the bastion that went."""
        transport = self._channel.get_transport()
        if transport.is_active():
            return ""
        parting = getattr(transport, "parting", "")
        return f"the connection to the bastion {self.bastion} ended" + (f": {parting}" if parting else "")

    def _close_channel(self) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


AnyLine = Line | TunnelLine
