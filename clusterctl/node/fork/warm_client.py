"""How a node's warm server is found and asked: its socket is in a private directory, its owner this account."""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Optional, Sequence

from ...protocol.untrusted import MalformedError, Untrusted
from ..runtime.processes import boot_id
from .warm_messages import close_all, receive, send

if TYPE_CHECKING:
    from ...protocol.messages.warm import AnyWarmRequest, WarmServerFacts

LIMIT = 10.0  # seconds for an answer
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def socket_folder(workdir: str) -> str:
    """Return the directory of the sockets."""
    return os.path.join(workdir, "warm")


def socket_name(node: str) -> str:
    """Name the socket of one boot of one node: a work directory may be shared."""
    return sha256(("%s %s" % (boot_id(), node)).encode("utf-8")).hexdigest()[:16]


def connect(workdir: str, node: str, limit: float = LIMIT) -> Optional[socket.socket]:
    """Connect to the node's warm server; None if there is none that is ours."""
    folder = socket_folder(workdir)
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit)
    try:
        if not is_private(os.fstat(directory)):
            raise OSError("%s can be used by others" % folder)
        # by the open directory: a path may be longer than an address
        connection.connect("/proc/self/fd/%d/%s" % (directory, socket_name(node)))
        if peer_uid(connection) != os.geteuid():
            raise OSError("the server is another account's")
    except OSError:
        connection.close()
        return None
    finally:
        os.close(directory)
    return connection


def is_private(status: os.stat_result) -> bool:
    """Whether a directory is this account's, and closed to all others."""
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def peer_uid(connection: socket.socket) -> int:
    """Return the account at the other end, as the kernel knows it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(raw)[1])


def query(
    workdir: str, node: str, request: AnyWarmRequest, descriptors: Sequence[int] = ()
) -> Optional[Untrusted]:
    """Ask the node's warm server; None if there is none, or none that answers.

    After the limit it cannot answer any more: what does nothing until its answer is sent has then not been done.
    """
    connection = connect(workdir, node)
    if connection is None:
        return None
    with connection:
        try:
            send(connection, request, descriptors)
            if not select.select([connection], [], [], LIMIT)[0]:
                connection.shutdown(socket.SHUT_RD)
            answer, unasked = receive(connection)
        except (OSError, MalformedError):
            return None
    close_all(unasked)
    return answer


def describe_other(answer: Untrusted) -> WarmServerFacts:
    """Read what a server says of itself."""
    return {
        "pid": answer.count("pid"),
        "starttime": answer.count("starttime"),
        "python": answer.text("python"),
        "torch": answer.text("torch"),
        "preload": list(answer.texts("preload", 100)),
        "since": answer.moment("since") or 0.0,
        "until": answer.moment("until") or 0.0,
        "bytes": answer.count("bytes"),
    }
