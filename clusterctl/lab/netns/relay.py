"""A TCP relay for SSH's ProxyCommand, from standard input and output to HOST PORT; runs by itself."""

from __future__ import annotations

import _socket  # `socket` would double the start-up time, which every connection pays
import os
import select
import sys

_CHUNK = 1 << 16
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class TcpRelay:
    """Two directions with a buffer each; neither side's slowness stops the other direction."""

    def __init__(self, peer: _socket.socket) -> None:
        self.peer = peer
        self.descriptor = peer.fileno()
        self.to_peer = b""
        self.from_peer = b""
        self.reading = {0: True, self.descriptor: True}
        for descriptor in (0, 1, self.descriptor):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Copy until the peer has ended and all its data is written, or until our reader has ended."""
        while self.from_peer or self.reading[self.descriptor]:
            for descriptor, event in self._poll().poll():
                if descriptor == 1 and event & _GONE:
                    return
                if event & (select.POLLIN | _GONE) and self.reading.get(descriptor):
                    self._read(descriptor)
            self._write()

    def _poll(self) -> select.poll:
        poll = select.poll()
        # with 0 it still reports that its reader has ended
        poll.register(1, select.POLLOUT if self.from_peer else 0)
        events = select.POLLOUT if self.to_peer else 0
        if self.reading[self.descriptor] and not self.from_peer:
            events |= select.POLLIN
        if events:
            poll.register(self.descriptor, events)
        if self.reading[0] and not self.to_peer:
            poll.register(0, select.POLLIN)
        return poll

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.reading[descriptor] = False
        if descriptor != 0:
            self.from_peer += data
        elif data:
            self.to_peer += data
        else:
            self.peer.shutdown(_socket.SHUT_WR)

    def _write(self) -> None:
        try:
            if self.to_peer:
                self.to_peer = self.to_peer[os.write(self.descriptor, self.to_peer) :]
        except BlockingIOError:
            pass
        try:
            if self.from_peer:
                self.from_peer = self.from_peer[os.write(1, self.from_peer) :]
        except BlockingIOError:
            pass


def _connect(host: str, port: int) -> _socket.socket:
    peer = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    peer.connect((host, port))
    peer.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    return peer


def main() -> int:
    """Exit 1 with a line on standard error if there is no connection."""
    host, port = sys.argv[1:3]
    try:
        peer = _connect(host, int(port))
    except OSError as error:
        sys.stderr.write(f"lab: {host} port {port}: {error.strerror}\n")
        return 1
    try:
        TcpRelay(peer).run()
    except (BrokenPipeError, ConnectionError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
