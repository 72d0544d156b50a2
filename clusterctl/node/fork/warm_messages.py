"""One message over a local socket: its length, JSON within bounds, and descriptors."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_object

if TYPE_CHECKING:
    from ...protocol.messages.warm import AnyWarmAnswer, AnyWarmRequest

LENGTH = struct.Struct("!I")
MOST_BYTES = 1 << 20
MOST_VALUES = 20_000
MOST_DESCRIPTORS = 3
LONGEST_VARIABLE = 1 << 18  # the kernel takes 128 KiB


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
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * numbers.itemsize)
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
    if size > MOST_BYTES:
        raise MalformedError("%d bytes" % size)
    content = b""
    while len(content) < size:
        chunk = connection.recv(size - len(content))
        if not chunk:
            return None
        content += chunk
    return parse_object(content, MOST_BYTES, MOST_VALUES)


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def pack_variables(env: Mapping[str, str]) -> List[str]:
    """Write variables so that every byte of them arrives."""
    return [os.fsencode("%s=%s" % pair).decode("latin-1") for pair in env.items()]


def unpack_variables(entries: Sequence[str]) -> Any:
    """Read them again, as `os.environ` has them."""
    pairs = (entry.encode("latin-1", "replace").partition(b"=") for entry in entries)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}
