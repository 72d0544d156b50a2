"""A TCP relay for SSH's ProxyCommand, from standard input and output to HOST PORT; runs by itself."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading

_CHUNK = 1 << 16


def _copy_in(peer: socket.socket) -> None:
    """Copy standard input until it ends, and pass the end on; end all once nothing reads our output any more."""
    while data := os.read(0, _CHUNK):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
    poll = select.poll()
    poll.register(1, 0)  # with 0 it still reports that its reader has ended
    poll.poll()
    os._exit(1)


def _copy_out(peer: socket.socket) -> None:
    """Copy what the peer sends until it ends."""
    while data := peer.recv(_CHUNK):
        while data:
            data = data[os.write(1, data) :]


def main() -> int:
    """Exit 1 with a line on standard error if there is no connection."""
    host, port = sys.argv[1:3]
    try:
        peer = socket.create_connection((host, int(port)))
    except OSError as error:
        sys.stderr.write(f"lab: {host} port {port}: {error.strerror}\n")
        return 1
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_copy_in, args=(peer,), daemon=True).start()
    try:
        _copy_out(peer)
    except OSError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
