"""Connections between nodes that pass contents on: frames whose bodies are bytes of files, as they are.

A body goes from the file to the socket without a copy here, and from the socket into one buffer, which is hashed and
written from there: compression, and a new object for each piece, took three quarters of the processor time.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ...protocol.frames import SIZE_LINE
from ...protocol.untrusted import MalformedError, Untrusted, parse_json
from ..runtime.connections import AuthenticatingCaller, LineSocket, prove
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream, VerbError

if TYPE_CHECKING:
    from ...protocol.messages.contents import Source
    from ..runtime.connections import HandshakeAnswer

CONNECT_LIMIT = 5.0  # seconds
HANDSHAKE_LIMIT = 5.0  # seconds to prove the token
SILENCE_LIMIT = 10.0  # seconds without a byte
MAX_LINE = 1024  # bytes
MAX_HEADER = 1 << 20  # bytes of a frame's header, unless it names everything that is wanted
PART = 1 << 20  # bytes of a large content in one frame
MAX_BODY = 2 * PART
NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # as some file systems report


class TransferError(Exception):
    """The other node does not do its part; the text gives the reason."""


class PeerStream(Stream):
    """Frames over a socket; a node that does not read for long is left, and no header is longer than `longest`."""

    def __init__(self, connection: socket.socket, longest: int) -> None:
        super().__init__(connection.fileno(), connection.fileno())
        self.send_timeout = SILENCE_LIMIT
        self.restrict(lambda text: _parse_header(text, longest), longest, MAX_BODY)
        self._socket = connection
        self._body = memoryview(bytearray(MAX_BODY))

    def receive_frame(self, timeout: float) -> Optional[Tuple[Dict[str, Any], memoryview]]:
        """Wait for the next frame, whose body the one after it overwrites; None at the end."""
        due, head = time.monotonic() + timeout, self._decoder.buffer
        sizes = self._decoder.read_sizes()
        while sizes is None:
            if not self._receive_head(SIZE_LINE, due):
                return None
            sizes = self._decoder.read_sizes()
        header_size, body_size = sizes
        while len(head) < header_size:
            if not self._receive_head(header_size, due):
                return None
        header = self._decoder.parse(bytes(head[:header_size]))
        position = min(
            body_size, len(head) - header_size
        )  # a few bytes of what follows the sizes came with them
        self._body[:position] = head[header_size : header_size + position]
        del head[: header_size + position]
        while position < body_size:
            size = self._receive_into(self._body[position:body_size], due)
            if not size:
                return None
            position += size
        return header, self._body[:body_size]

    def send_from_file(self, header: Mapping[str, Any], source: int, offset: int, size: int) -> None:
        """Send a frame with bytes of a file as its body; VerbError if the file is shorter by now."""
        text = json.dumps(header).encode("ascii")
        unsent = memoryview(b"%d %d\n" % (len(text), size) + text)
        while unsent or size:
            if self._remaining(1.0) <= 0:
                raise BrokenPipeError(errno.EPIPE, "the other side reads too slowly")
            try:
                if unsent:
                    unsent = unsent[self._socket.send(unsent, socket.MSG_MORE) :]
                    continue
                sent = self._send_piece(source, offset, size)
            except BlockingIOError:
                self._wait_ready(self.sink, select.POLLOUT)
                continue
            except ConnectionError as error:
                raise BrokenPipeError(errno.EPIPE, "the other side left") from error
            if not sent:
                raise VerbError("CC-SYNC-009", "a file became shorter")
            offset, size = offset + sent, size - sent

    def _send_piece(self, source: int, offset: int, size: int) -> int:
        try:
            return os.sendfile(self.sink, source, offset, size)
        except OSError as error:
            if error.errno not in NO_SENDFILE:
                raise
        data = os.pread(source, size, offset)
        return self._socket.send(data) if data else 0

    def _receive_head(self, most: int, due: float) -> int:
        """Receive until there are at most so many bytes of a header; return how many came, 0 at the end."""
        piece = memoryview(bytearray(most - len(self._decoder.buffer)))
        size = self._receive_into(piece, due)
        self._decoder.feed(bytes(piece[:size]))
        return size

    def _receive_into(self, buffer: memoryview, due: float) -> int:
        while True:
            if self._remaining(1.0) <= 0:
                raise TimeoutError("the other side is too slow")
            try:
                return self._socket.recv_into(buffer)
            except BlockingIOError:
                poller = select.poll()
                poller.register(self.source, select.POLLIN)
                if not poller.poll(max(0.0, self._remaining(due - time.monotonic())) * 1000):
                    raise TimeoutError("no frame in time") from None
            except ConnectionError:
                return 0


def connect_to_provider(provider: Source) -> socket.socket:
    """Connect, and prove the token to each other; TransferError gives the reason."""
    loop, token = Loop(), str(provider["token"]).encode("ascii")
    connections: List[socket.socket] = []
    problems: List[str] = []

    def answer(nonce: str, own_nonce: str) -> HandshakeAnswer:
        proof = prove(token, "I take", nonce, own_nonce)
        return {"nonce": own_nonce, "proof": proof}, prove(token, "I give", nonce, own_nonce)

    def on_proven(line_socket: LineSocket, _: Untrusted) -> None:
        connections.append(line_socket.detach())
        loop.stop()

    def on_close(why: str) -> None:
        problems.append(why)
        loop.stop()

    caller = AuthenticatingCaller(loop, answer, on_proven, on_close)
    caller.connect((provider["address"], int(provider["port"])), "", (CONNECT_LIMIT, HANDSHAKE_LIMIT))
    loop.run()
    if problems:
        raise TransferError(problems[0])
    return connections[0]


def _parse_header(text: bytes, longest: int) -> Dict[str, Any]:
    header = parse_json(text, longest, longest // 32 + MAX_LINE)
    if not isinstance(header, dict):
        raise MalformedError("a frame without a header")
    return header
