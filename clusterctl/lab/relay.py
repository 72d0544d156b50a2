"""A TCP relay for SSH's ProxyCommand: standard input and output to HOST PORT. Runs by itself, without site."""

from __future__ import annotations

import os
import select
import sys

import _socket  # `socket` would double the start-up time, which every connection pays

_CHUNK = 1 << 16


def _connect(host: str, port: int) -> _socket.socket:
    peer = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    peer.connect((host, port))
    peer.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    return peer


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def relay(peer: _socket.socket) -> None:
    """Copy both ways until the peer has ended, or whoever reads our output has gone."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(peer.fileno(), select.POLLIN)
    if not os.path.sameopenfile(0, 1):
        poll.register(1, 0)  # says only that its reader has gone
    while True:
        for descriptor, event in poll.poll():
            if descriptor == 1:
                return
            data = os.read(descriptor, _CHUNK)
            if descriptor == 0 and data:
                peer.sendall(data)
            elif descriptor == 0:
                peer.shutdown(_socket.SHUT_WR)
                poll.unregister(0)
                if event & select.POLLHUP:
                    return
            elif data:
                _write_all(1, data)
            else:
                return


def main() -> int:
    """Exit 1 with a line on standard error if there is no connection."""
    host, port = sys.argv[1:3]
    try:
        peer = _connect(host, int(port))
    except OSError as error:
        print(f"lab: {host}:{port}: {error.strerror}", file=sys.stderr)
        return 1
    try:
        relay(peer)
    except (BrokenPipeError, ConnectionError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
