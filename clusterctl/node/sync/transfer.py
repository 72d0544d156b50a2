"""Code from node to node: one that has all contents gives them on, over the training network.

giver  {"nonce": hex}                            a line of JSON each; both prove the transfer's token, which came over
taker  {"nonce": hex, "proof": of the token}     SSH, for these two nonces and for their side
giver  {"proof": of the token}
taker  frame {"want": [sha256...]}
giver  frames {"blobs": [[sha256, bytes], ...]} or {"blob": sha256, "last": bool} with contents, then {"done": true}

What is taken must have its hash, so nothing wrong can slip in; sizes are known from the manifest, and so is how long it
may take. What is given belongs to the tree that the transfer is about. It is not encrypted, as training's own traffic
is not.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import zlib
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ...protocol.untrusted import MalformedError, Untrusted, parse_json, parse_object
from ..runtime.sockets import candidates, prove, same
from ..runtime.stream import Frame, Stream, VerbError
from .store import Store

CONNECT = 5.0  # seconds
PROVE = 5.0  # seconds to prove the token
SILENCE = 10.0  # seconds without a byte
GIVE = 1800.0  # seconds after which nobody is given anything any more
TAKERS = 4  # at once; who comes beyond that is turned away
GUESTS = 32  # that have proved nothing yet; one more, and the oldest of them goes
SLOWEST = 1e6  # bytes a second; whoever is slower costs more than the way round
GRACE = 30.0  # seconds beyond that
LONGEST_LINE = 1024
NONCE = 32  # characters
PART = 1 << 20
SMALL = 1 << 16  # bytes; smaller contents travel together
GROUP = 1 << 19
TOGETHER = 4096  # contents in one frame
LONGEST_NAME = 80  # bytes of JSON that name a content, with its size
FRAME = 1 << 20  # bytes of a frame's header, unless it names everything that is wanted


class PassError(Exception):
    """The other node does not do its part; the text says in what."""


class Giver:
    """Gives the contents of one tree to nodes that know the token, from threads of its own, until it is closed."""

    def __init__(self, store: Store, sizes: Dict[str, int], offer: Dict[str, Any]) -> None:
        self._store = store
        self._sizes = sizes
        self._token = str(offer["token"]).encode("ascii")
        self._room = threading.BoundedSemaphore(TAKERS)
        self._guests: Dict[socket.socket, None] = {}  # the oldest first
        self._one_at_a_time = threading.Lock()
        self._socket = listen(str(offer["address"]), offer.get("ports"))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._open, daemon=True).start()

    def close(self) -> None:
        """Listen no more; what is under way ends with the process."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread waits in accept
        self._socket.close()

    def _open(self) -> None:
        while True:
            try:
                taker = self._socket.accept()[0]
            except OSError:
                return
            with self._one_at_a_time:
                if len(self._guests) >= GUESTS:
                    oldest = next(iter(self._guests))
                    del self._guests[oldest]  # at once: its thread, which closes it, may be late
                    hang_up(oldest)
                self._guests[taker] = None
            threading.Thread(target=self._attend, args=(taker,), daemon=True).start()

    def _attend(self, taker: socket.socket) -> None:
        try:
            with taker:
                try:
                    examine(taker, self._token)
                finally:
                    with self._one_at_a_time:
                        self._guests.pop(taker, None)
                if self._room.acquire(blocking=False):
                    try:
                        self._serve(taker)
                    finally:
                        self._room.release()
        except (OSError, ValueError, PassError):
            pass  # whoever it was, it tells of its side, or is nobody of ours

    def _serve(self, taker: socket.socket) -> None:
        stream = stream_over(taker, longest=LONGEST_NAME * len(self._sizes) + LONGEST_LINE)
        frame = stream.receive(SILENCE)
        if frame is not None:
            named = Untrusted(frame[0]).texts("want", len(self._sizes))
            wanted = [sha for sha in dict.fromkeys(named) if sha in self._sizes]
            stream.until = time.monotonic() + time_for(self._sizes[sha] for sha in wanted)
            give(stream, self._store, wanted)


def time_for(sizes: Iterable[int]) -> float:
    """Give the seconds that contents of these sizes may take."""
    return sum(sizes) / SLOWEST + GRACE


def hang_up(connection: socket.socket) -> None:
    """End a connection that a thread is reading from."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def listen(address: str, ports: Optional[Sequence[int]]) -> socket.socket:
    """Listen on one address, on a port of `ports` (first, last), or on one that the kernel picks; OSError if none."""
    problem = OSError("no port is free")
    for port in candidates(ports, (0, 0), os.urandom(1)[0] / 256) if ports else (0,):
        door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            door.bind((address, port))
            door.listen(TAKERS)
        except OSError as error:
            door.close()
            problem = error
        else:
            return door
    raise problem


def take(
    store: Store,
    sizes: Dict[str, int],
    missing: Set[str],
    where: Dict[str, Any],
    unpack: Callable[[Dict[str, Any], bytes], Iterator[Tuple[str, bytes, bool]]],
    step: Callable[[], None],
) -> str:
    """Take what is missing from a giver; gives what went wrong, if anything; `missing` keeps what did not come.

    An OSError is the store's: the disk here is full, or worse.
    """
    try:
        for header, body in _frames_from(where, missing, sizes):
            try:
                pieces = list(unpack(header, body))
            except (zlib.error, ValueError) as error:
                raise PassError(f"what it sent cannot be understood: {error}") from None
            for sha, data, last in pieces:
                if sha not in missing:
                    raise PassError("it sent what was not asked for")
                store.add(sha, data, sizes[sha], last=last)
                step()
                if last:
                    missing.discard(sha)
            if not pieces:
                raise PassError("it sent a frame with nothing in it")
        if missing:
            raise PassError("it has not got everything")
    except (PassError, VerbError) as error:
        store.abandon()
        return str(error) if missing else ""
    return ""


def _frames_from(where: Dict[str, Any], missing: Set[str], sizes: Dict[str, int]) -> Iterator[Frame]:
    until = time.monotonic() + time_for(sizes[sha] for sha in missing)
    try:
        with socket.create_connection((where["address"], int(where["port"])), timeout=CONNECT) as giver:
            introduce(giver, str(where["token"]).encode("ascii"))
            stream = stream_over(giver, longest=FRAME)
            stream.until = until
            stream.send({"want": sorted(missing)})
            while True:
                frame = stream.receive(SILENCE)
                if frame is None:
                    raise PassError("it hung up")
                if frame[0].get("done"):
                    return
                yield frame
    except (socket.timeout, TimeoutError):  # one and the same since Python 3.10
        slow = time.monotonic() >= until
        raise PassError("it is too slow" if slow else "it does not answer") from None
    except (OSError, ValueError) as error:
        raise PassError(getattr(error, "strerror", None) or str(error)) from None


def give(stream: Stream, store: Store, wanted: List[str]) -> None:
    """Send contents, small ones together; one that is not there is left out, and the taker sees that."""
    together = []  # type: List[Tuple[str, bytes]]
    for sha in wanted:
        try:
            descriptor = os.open(store.path(sha), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as source:
            size = os.fstat(descriptor).st_size
            if size > SMALL:
                send_parts(stream, sha, source, size)
                continue
            together.append((sha, source.read()))
        if len(together) >= TOGETHER or sum(len(content) for _, content in together) > GROUP:
            send_together(stream, together)
            together = []
    if together:
        send_together(stream, together)
    stream.send({"done": True})


def send_together(stream: Stream, contents: List[Tuple[str, bytes]]) -> None:
    """Send small contents in one frame; a local network is faster than compression."""
    header = {"blobs": [[sha, len(content)] for sha, content in contents]}
    stream.send(header, zlib.compress(b"".join(content for _, content in contents), 0))


def send_parts(stream: Stream, sha: str, source: Any, size: int) -> None:
    """Send a large content in parts."""
    sent = 0
    while sent < size:
        part = source.read(PART)
        if not part:
            raise PassError("a content became shorter")
        sent += len(part)
        stream.send({"blob": sha, "last": sent >= size}, zlib.compress(part, 0))


def examine(taker: socket.socket, token: bytes) -> None:
    """Let a taker prove the token, and prove it to him; PassError if he cannot."""
    mine = os.urandom(16).hex()
    taker.settimeout(PROVE)
    _send_line(taker, {"nonce": mine})
    answer = _read_line(taker)
    theirs = _nonce(answer)
    _verify(answer, prove(token, "I take", mine, theirs))
    _send_line(taker, {"proof": prove(token, "I give", mine, theirs)})


def introduce(giver: socket.socket, token: bytes) -> None:
    """Prove the token to a giver, and let him prove it; PassError if he cannot."""
    giver.settimeout(PROVE)
    theirs, mine = _nonce(_read_line(giver)), os.urandom(16).hex()
    _send_line(giver, {"nonce": mine, "proof": prove(token, "I take", theirs, mine)})
    _verify(_read_line(giver), prove(token, "I give", theirs, mine))


def stream_over(connection: socket.socket, longest: int) -> Stream:
    """Begin to exchange frames; whoever does not read for long is left, and no header is longer than this."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = Stream(connection.fileno(), connection.fileno())
    stream.patience = SILENCE
    stream.distrust(lambda text: _header(text, longest), longest, 2 * PART)
    return stream


def _header(text: bytes, longest: int) -> Dict[str, Any]:
    header = parse_json(text, longest, longest // 32 + LONGEST_LINE)
    if not isinstance(header, dict):
        raise MalformedError("a frame without a header")
    return header


def _verify(answer: Untrusted, proof: str) -> None:
    if not same(answer.text("proof"), proof):
        raise PassError("it does not know the token")


def _nonce(answer: Untrusted) -> str:
    nonce = answer.text("nonce")
    if len(nonce) != NONCE:
        raise PassError("it is none of ours")
    return nonce


def _send_line(connection: socket.socket, message: Dict[str, str]) -> None:
    connection.sendall(json.dumps(message).encode("ascii") + b"\n")


def _read_line(connection: socket.socket) -> Untrusted:
    """Read one line of JSON; nobody sends more before he has his answer. Who sends it drop by drop has no more time."""
    line, until = b"", time.monotonic() + PROVE
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(LONGEST_LINE + 1 - len(line))
        line += piece
        if not piece or len(line) > LONGEST_LINE or b"\n" in line[:-1]:
            raise PassError("it is none of ours")
    connection.settimeout(PROVE)
    try:
        return parse_object(line, LONGEST_LINE)
    except MalformedError:
        raise PassError("it is none of ours") from None
