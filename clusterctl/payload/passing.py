"""Code from node to node: one that has all contents gives them on, over the training network.

giver  {"nonce": hex}                            a line of JSON each; both prove the transfer's token, which came over
taker  {"nonce": hex, "proof": of the token}     SSH, for these two nonces and for their side
giver  {"proof": of the token}
taker  frame {"want": [sha256...]}
giver  frames {"blobs": [[sha256, bytes], ...]} or {"blob": sha256, "last": bool} with contents, then {"done": true}

What is taken must have its hash, so nothing wrong can slip in. It is not encrypted, as training's own traffic is not.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import zlib
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .ports import candidates
from .proof import prove, same
from .store import Store
from .wire import Frame, Stream, VerbError

CONNECT = 5.0  # seconds
PROVE = 5.0  # seconds to prove the token
SILENCE = 10.0  # seconds without a byte
GIVE = 1800.0  # seconds after which nobody is given anything any more
TAKERS = 4  # at once; what knocks beyond that is turned away
LONGEST_LINE = 1024
PART = 1 << 20
SMALL = 1 << 16  # bytes; smaller contents travel together
GROUP = 1 << 19


class PassError(Exception):
    """The other node does not do its part; the text says in what."""


class Giver:
    """Gives stored contents to nodes that know the token, from threads of its own, until it is closed."""

    def __init__(self, store: Store, offer: Dict[str, Any]) -> None:
        self._store = store
        self._token = str(offer["token"]).encode("ascii")
        self._room = threading.BoundedSemaphore(TAKERS)
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
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._attend, args=(taker,), daemon=True).start()
            else:
                taker.close()

    def _attend(self, taker: socket.socket) -> None:
        try:
            with taker:
                examine(taker, self._token)
                stream = stream_over(taker)
                frame = stream.receive(SILENCE)
                if frame is not None:
                    give(stream, self._store, frame[0]["want"])
        except (OSError, ValueError, KeyError, TypeError, PassError):
            pass  # whoever it was, it tells of its side, or is nobody of ours
        finally:
            self._room.release()


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
    missing: Set[str],
    where: Dict[str, Any],
    unpack: Callable[[Dict[str, Any], bytes], Iterator[Tuple[str, bytes, bool]]],
    step: Callable[[], None],
) -> str:
    """Take what is missing from a giver; gives what went wrong, if anything; `missing` keeps what did not come.

    An OSError is the store's: the disk here is full, or worse.
    """
    try:
        for header, body in _frames_from(where, missing):
            try:
                pieces = list(unpack(header, body))
            except (zlib.error, ValueError, TypeError, KeyError) as error:
                raise PassError(f"what it sent cannot be understood: {error}") from None
            for sha, data, last in pieces:
                if sha not in missing:
                    raise PassError("it sent what was not asked for")
                store.add(sha, data, last=last)
                step()
                if last:
                    missing.discard(sha)
        if missing:
            raise PassError("it has not got everything")
    except (PassError, VerbError) as error:
        store.abandon()
        return str(error) if missing else ""
    return ""


def _frames_from(where: Dict[str, Any], missing: Set[str]) -> Iterator[Frame]:
    try:
        with socket.create_connection((where["address"], int(where["port"])), timeout=CONNECT) as giver:
            introduce(giver, str(where["token"]).encode("ascii"))
            stream = stream_over(giver)
            stream.send({"want": sorted(missing)})
            while True:
                frame = stream.receive(SILENCE)
                if frame is None:
                    raise PassError("it hung up")
                if frame[0].get("done"):
                    return
                yield frame
    except socket.timeout:
        raise PassError("it does not answer") from None
    except TimeoutError:
        raise PassError("it fell silent") from None
    except (OSError, ValueError) as error:
        raise PassError(getattr(error, "strerror", None) or str(error)) from None


def give(stream: Stream, store: Store, wanted: List[str]) -> None:
    """Send contents, small ones together; one that is not there is left out, and the taker sees that."""
    together = []  # type: List[Tuple[str, bytes]]
    for sha in wanted:
        try:
            descriptor = os.open(store.path(named(sha)), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as source:
            size = os.fstat(descriptor).st_size
            if size > SMALL:
                send_parts(stream, sha, source, size)
                continue
            together.append((sha, source.read()))
        if sum(len(content) for _, content in together) > GROUP:
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


def named(sha: Any) -> str:
    """Check that this is the name of a content, and no path to elsewhere."""
    if not isinstance(sha, str) or len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise PassError("no name of a content")
    return sha


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


def stream_over(connection: socket.socket) -> Stream:
    """Begin to exchange frames; whoever does not read for long is left."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = Stream(connection.fileno(), connection.fileno())
    stream.patience = SILENCE
    return stream


def _verify(answer: Dict[str, Any], proof: str) -> None:
    if not same(answer.get("proof"), proof):
        raise PassError("it does not know the token")


def _nonce(answer: Dict[str, Any]) -> str:
    nonce = answer.get("nonce")
    if not isinstance(nonce, str) or len(nonce) != 32:
        raise PassError("it is none of ours")
    return nonce


def _send_line(connection: socket.socket, message: Dict[str, str]) -> None:
    connection.sendall(json.dumps(message).encode("ascii") + b"\n")


def _read_line(connection: socket.socket) -> Dict[str, Any]:
    """Read one line of JSON; nobody sends more before he has his answer. Who sends it drop by drop has no more time."""
    line, until = b"", time.monotonic() + PROVE
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(LONGEST_LINE + 1 - len(line))
        line += piece
        if not piece or len(line) > LONGEST_LINE or b"\n" in line[:-1]:
            raise PassError("it is none of ours")
    connection.settimeout(PROVE)
    message = json.loads(line.decode("ascii"))
    if not isinstance(message, dict):
        raise PassError("it is none of ours")
    return message
