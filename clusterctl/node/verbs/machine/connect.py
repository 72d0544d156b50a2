"""The verb `connect`: bytes to and from a port of this node, or a rank that waits at a breakpoint.

request {"to": "port" | "rank", "number": n}
client  {"data": true} + bytes, {"close": true}: nothing more will come
node    {"connected": address} of a port, {"waits": rank or null} of a rank, {"data": true} + bytes, {"beat": n},
        {"closed": reason}, after which a rank may come to its next breakpoint
One connection, so it needs no flow control but that of the SSH channel.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional, Tuple

from ....protocol.frames import BEAT_INTERVAL
from ....protocol.run_paths import RunPaths
from ...diagnose.breakpoint import socket_name
from ...runtime.processes import is_alive
from ...runtime.stream import Stream
from ...state.run_files import find_run, read_spec
from ...state.run_record import parse_identity, resolve_state

if TYPE_CHECKING:
    from ....protocol.messages.verbs import ConnectRequest

CHUNK = 1 << 15
CONNECT_LIMIT = 5.0  # seconds
POLL_INTERVAL = 0.25  # seconds between looks whether a rank has come to a breakpoint
LOOPBACK = ("127.0.0.1", "::1")


def run(request: ConnectRequest, stream: Stream) -> None:
    """Carry bytes until the client leaves, or the other side has ended."""
    rundir = find_run(request["workdir"], request["run"], request["node"])
    if request["to"] == "port":
        carry_port(stream, rundir, request["number"])
    else:
        carry_rank(stream, rundir, request["number"])


def carry_port(stream: Stream, rundir: str, port: int) -> None:
    """Connect to a port of the loopback address or of the node's training address."""
    spec = read_spec(rundir)
    own = spec.get("address") if spec is not None else None
    connection, place = connect_to_port((*LOOPBACK, *([str(own)] if own else [])), port)
    if connection is None:
        stream.answer({"closed": place})
        return
    stream.answer({"connected": place})
    with connection:
        carry(stream, connection)
    stream.answer({"closed": "ended"})


def connect_to_port(addresses: Tuple[str, ...], port: int) -> Tuple[Optional[socket.socket], str]:
    """Connect to the first address that accepts; returns the connection and the address, or None and the reason."""
    reason = ""
    for address in addresses:
        try:
            return socket.create_connection((address, port), CONNECT_LIMIT), address
        except OSError as error:
            reason = f"{address}:{port}: {error.strerror or error}"
    return None, reason


def carry_rank(stream: Stream, rundir: str, rank: int) -> None:
    """Connect to a rank each time it waits at a breakpoint, until it has ended or the client sends no more."""
    reported = False
    while not stream.ended:
        state = resolve_state(rundir)
        entry = (state["ranks"].get(str(rank)) if state is not None else None) or None
        if state is None or entry is None or not is_alive(parse_identity(entry)):
            stream.answer({"closed": "ended"})
            return
        folder = RunPaths(rundir).diagnosis(state["attempt"])
        connection = connect_to_rank(folder, rank)
        if connection is not None:
            stream.answer({"waits": rank})
            with connection:
                client_closed = carry(stream, connection)
            left = client_closed and os.path.exists(os.path.join(folder, socket_name(rank)))
            stream.answer({"closed": "left" if left else "continued"})
            if client_closed:
                return
            reported = False
        elif not reported:
            reported = True
            stream.answer({"waits": None})
        for _ in stream.read_available():
            continue  # what it sends meanwhile is for no connection
        select.select([stream], [], [], POLL_INTERVAL)
        stream.beat()


def carry(stream: Stream, connection: Any) -> bool:
    """Pass bytes both ways until the connection or the client ends; returns whether the client sends no more.

    After the client's last bytes the connection may still answer: pdb answers the last line first, and then closes.
    """
    connection.settimeout(None)
    client_closed = False
    while True:
        for header, body in stream.read_available():
            client_closed = client_closed or "close" in header
            with suppress(OSError):  # it is being closed: the end is read below
                if "data" in header:
                    connection.sendall(body)
                if "close" in header:
                    connection.shutdown(socket.SHUT_WR)
        if stream.ended:
            return True
        if connection in select.select([stream, connection], [], [], BEAT_INTERVAL)[0]:
            data = receive(connection)
            if not data:
                return client_closed
            stream.answer({"data": True}, data)
        stream.beat()


def receive(connection: Any) -> bytes:
    """Receive what is there; empty at the end, also of a connection that was reset."""
    try:
        return bytes(connection.recv(CHUNK))
    except OSError:
        return b""


def connect_to_rank(folder: str, rank: int) -> Optional[socket.socket]:
    """Connect to the socket of a rank that waits; None if there is none, or if it is not this account's."""
    directory = -1
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        name = socket_name(rank)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():
            # a path of the run's directory may be longer than a socket's address can be
            connection.connect(f"/proc/self/fd/{directory}/{name}")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] == os.geteuid():
                return connection
    except OSError:
        pass
    finally:
        if directory >= 0:
            os.close(directory)
    connection.close()
    return None
