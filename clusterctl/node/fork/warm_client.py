"""How what waits for a node's next run is found: its socket is in a private directory, its owner this account.

A message over it is its length, JSON within bounds, and descriptors; both sides send and read it with what is here.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import stat
import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.processes import boot_id

if TYPE_CHECKING:
    from ...protocol.messages.local import AnyWarmAnswer, AnyWarmRequest, WarmServerFacts


LIMIT = 10.0  # seconds for an answer
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def socket_folder(workdir: str) -> str:
    """Return the directory of the sockets."""
    return os.path.join(workdir, "warm")


def socket_name(node: str) -> str:
    """Name the socket of one boot of one node: a work directory may be shared."""
    return sha256(("%s %s" % (boot_id(), node)).encode("utf-8")).hexdigest()[:16]


def connect(workdir: str, node: str) -> Optional[socket.socket]:
    """Connect to the node's warm server; None if there is none that is ours."""
    folder = socket_folder(workdir)
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LIMIT)
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
    """Read what a server reports of itself."""
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


LENGTH = struct.Struct("!I")
MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
MAX_DESCRIPTORS = 3
MAX_VARIABLE = 1 << 18  # the kernel takes 128 KiB


def send(
    connection: socket.socket, message: AnyWarmRequest | AnyWarmAnswer, descriptors: Sequence[int] = ()
) -> None:
    """Send a message; one of a few bytes arrives whole or not at all."""
    content = json.dumps(message).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    content = LENGTH.pack(len(content)) + content
    rest = content[connection.sendmsg([content], rights) :]
    if rest:  # sending nothing fails, too, once the other end has received all and left
        connection.sendall(rest)


def receive(connection: socket.socket) -> Tuple[Optional[Untrusted], List[int]]:
    """Receive a message and its descriptors; None at the end, MalformedError for what is none within bounds."""
    numbers = array.array("i")
    room = socket.CMSG_SPACE(MAX_DESCRIPTORS * numbers.itemsize)
    flags = socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC
    head, ancillary, _, _ = connection.recvmsg(LENGTH.size, room, flags)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) // numbers.itemsize * numbers.itemsize])
    try:
        return _receive_content(connection, head), list(numbers)
    except BaseException:
        close_all(numbers)
        raise


def _receive_content(connection: socket.socket, head: bytes) -> Optional[Untrusted]:
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    if size > MAX_BYTES:
        raise MalformedError("%d bytes" % size)
    content = b""
    while len(content) < size:
        chunk = connection.recv(size - len(content))
        if not chunk:
            return None
        content += chunk
    return parse_object(content, MAX_BYTES, MAX_VALUES)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def pack_text(text: str) -> str:
    """Write a text of the system so that every byte of it arrives."""
    return os.fsencode(text).decode("latin-1")


def unpack_text(text: str) -> str:
    """Read it again."""
    return os.fsdecode(text.encode("latin-1", "replace"))


def pack_variables(env: Mapping[str, str]) -> List[str]:
    """Write variables so that every byte of them arrives."""
    return [pack_text("%s=%s" % pair) for pair in env.items()]


def unpack_variables(entries: Sequence[str]) -> Any:
    """Read them again, as `os.environ` has them."""
    pairs = (unpack_text(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}
