"""Contents from node to node, over the training network: a node sends on what it has, and what it is still receiving.

Both prove the transfer's token, which came over SSH (protocol/messages/network.py: HandshakeLine).
receiver HashesFrame
provider `blobs`, or ContentPart of a larger content, repeated; `wait` while it receives nothing itself; `again` if what
         it had received of a content was wrong; then `done`

So the nodes form a chain, and all have a content little later than the first. What is received must have its hash, so
nothing wrong can slip in: the last byte of a content is sent on only once its hash is right here, and so a node that
damages one is found by the next node, and no later one is blamed. Sizes are known from the manifest, and so is how long
it may take. What is sent belongs to the tree that the transfer is about. It is not encrypted, as training's own traffic
is not.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
)

from ...protocol.manifest import TreeEntry
from ...protocol.untrusted import MalformedError, Untrusted, parse_json
from ..runtime.connections import (
    AuthenticatingCaller,
    AuthenticatingListener,
    ChannelError,
    LineSocket,
    is_same_proof,
    listen,
    port_range,
    prove,
    read_nonce,
)
from ..runtime.event_loop import Loop
from ..runtime.stream import Frame, Stream, VerbError
from .hashing import Sha
from .received import Progress
from .store import Store

if TYPE_CHECKING:
    from ...protocol.messages.contents import ContentPart, HashesFrame, Offer, Source
    from ...protocol.messages.verbs import PlainClientFrame
    from ..runtime.connections import HandshakeAnswer

CONNECT_LIMIT = 5.0  # seconds
HANDSHAKE_LIMIT = 5.0  # seconds to prove the token
SILENCE_LIMIT = 10.0  # seconds without a byte
PROVIDE_LIMIT = 1800.0  # seconds beyond the time for all contents, after which no node gets anything any more
MAX_HELD = 8  # contents of which a receiver keeps a part for the next provider
RENAME_LIMIT = 0.5  # seconds for a content to get its name
WAIT_INTERVAL = 2.0  # seconds between two reports to a receiver that nothing has come here
MAX_RECEIVERS = 4  # at once; who comes beyond that is turned away
MAX_PENDING = 32  # that have proved nothing yet; one more, and the oldest of them goes
MIN_RATE = 1e6  # bytes a second; a slower node costs more than sending from the client
MIN_RELAY_RATE = 1e5  # bytes a second with which contents come to a provider: an uplink may be slow
GRACE = 30.0  # seconds beyond that
MAX_LINE = 1024  # bytes
MAX_FRAME = 16 << 20  # bytes of contents in one frame; those who send put 2 MiB into one
PART = 1 << 20
SMALL_CONTENT = 1 << 16  # bytes; smaller contents travel together
GROUP_BYTES = 1 << 19
GROUP_CONTENTS = 4096  # contents in one frame
MAX_NAME = 80  # bytes of JSON that name a content, with its size
MAX_HEADER = 1 << 20  # bytes of a frame's header, unless it names everything that is wanted

Send = Callable[[Any, bytes], None]
Observe = Callable[[int, float], bool]


class TransferError(Exception):
    """The other node does not do its part; the text gives the reason."""


class Provider:
    """Gives the contents of one tree to nodes that know the token, from threads of its own, until it is closed.

    `coming` are those that this node still lacks, and gives as they arrive.
    """

    def __init__(self, store: Store, sizes: Dict[str, int], offer: Offer) -> None:
        self._store = store
        self._sizes = sizes
        self.coming: FrozenSet[Sha] = frozenset()
        self._token = str(offer["token"]).encode("ascii")
        self._capacity = threading.BoundedSemaphore(MAX_RECEIVERS)
        self._loop = Loop()
        self._socket = listen(str(offer["address"]), port_range(offer["ports"]))
        self._listener = AuthenticatingListener(
            self._loop, self._socket, MAX_PENDING, HANDSHAKE_LIMIT, self._on_answer
        )
        self.port = self._listener.port
        threading.Thread(target=self._listen, daemon=True).start()

    def serve_until_hangup(self, stream: Stream) -> None:
        """Send contents until the client hangs up; it may have named a provider too late."""
        limit = PROVIDE_LIMIT + time_limit(self._sizes.values())
        try:
            while stream.receive(limit) is not None:
                pass
        except TimeoutError:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Listen no more; what is under way ends with the process."""
        self._loop.stop()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread waits for who comes

    def _listen(self) -> None:
        self._listener.open()
        self._loop.run()
        self._listener.close()

    def _on_answer(self, line_socket: LineSocket, nonce: str, answer: Untrusted) -> None:
        """Begin to serve a receiver that knows the token; ChannelError for anybody else."""
        nonces = nonce, read_nonce(answer)
        if not is_same_proof(answer.text("proof"), prove(self._token, "I take", *nonces)):
            raise ChannelError("it does not know the token")
        line_socket.send_line({"proof": prove(self._token, "I give", *nonces)})
        threading.Thread(target=self._handle, args=(line_socket.detach(),), daemon=True).start()

    def _handle(self, receiver: socket.socket) -> None:
        with receiver:
            if self._capacity.acquire(blocking=False):
                try:
                    self._serve(receiver)
                except (OSError, ValueError, VerbError):
                    pass  # the receiver reports its side
                finally:
                    self._capacity.release()

    def _serve(self, receiver: socket.socket) -> None:
        stream = open_stream(receiver, longest=MAX_NAME * len(self._sizes) + MAX_LINE)
        frame = stream.receive(SILENCE_LIMIT)
        if frame is not None:
            fields = Untrusted(frame[0])
            requested = fields.texts("hashes", len(self._sizes))
            hashes = [sha for sha in dict.fromkeys(requested) if sha in self._sizes]
            stream.deadline = time.monotonic() + time_limit(self._sizes[sha] for sha in hashes)
            held = {
                row.text(0): row.integer(1, 0, self._sizes.get(row.text(0), 0)) or 0
                for row in fields.rows("held", MAX_HELD)
            }
            Outgoing(self._store, self._sizes, stream, held).send(hashes, self.coming)


class Outgoing:
    """What one receiver gets; `held` is how much of a content it has already."""

    def __init__(self, store: Store, sizes: Dict[str, int], stream: Stream, held: Dict[Sha, int]) -> None:
        self._store, self._sizes, self._stream, self._held = store, sizes, stream, held
        self._waited = 0.0  # seconds that have not been reported

    def send(self, hashes: List[Sha], coming: FrozenSet[Sha]) -> None:
        """Send what is here, then the rest in the order in which it comes."""
        self._send([sha for sha in hashes if sha not in coming])
        pending, count = {sha for sha in hashes if sha in coming}, 0
        while pending:
            with self._waiting():
                whole, unfinished, count = self._store.received.wait(pending, count, WAIT_INTERVAL)
            self._send(whole)
            pending.difference_update(whole)
            for sha in unfinished:
                self._follow(sha)
                pending.discard(sha)
        done: PlainClientFrame = {"done": True}
        self._stream.send(done)

    def _send(self, hashes: List[Sha]) -> None:
        """Send contents that are here; one that has gone is left out, and the receiver sees that."""
        send_contents(self._stream.send, self._store, hashes, self._held)

    def _follow(self, sha: Sha) -> None:
        """Send a content while it is written; begin again where what was written turned out wrong."""
        size, seen, source = self._sizes[sha], Progress("", self._held.get(sha, 0)), -1
        try:
            while seen.size < size:
                with self._waiting():
                    progress = self._store.received.wait_for_more(sha, seen, size, WAIT_INTERVAL)
                if progress.path != seen.path:
                    if seen.path:
                        self._send_again(sha)
                    if source >= 0:
                        os.close(source)
                    source, sent = -1, 0 if seen.path else seen.size
                    source, seen = self._open(sha, progress.path), Progress(progress.path, sent)
                seen = self._send_written(sha, source, seen, progress.size)
        finally:
            if source >= 0:
                os.close(source)

    def _send_written(self, sha: Sha, source: int, seen: Progress, size: int) -> Progress:
        """Send a content from where it was seen up to `size`."""
        while seen.size < size:
            part = os.pread(source, min(PART, size - seen.size), seen.size)
            if not part:
                raise VerbError("CC-SYNC-009", "a file became shorter")
            seen = Progress(seen.path, seen.size + len(part))
            send_part(self._stream.send, sha, part, last=seen.size >= self._sizes[sha])
        return seen

    def _open(self, sha: Sha, path: str) -> int:
        """Open a content by the name that it is written under, or the one that it has once it is whole.

        While it gets the other name, it may have neither. Returns -1 if nothing of it is here.
        """
        for name in (path, self._store.path(sha)) if path else ():
            with suppress(FileNotFoundError):
                return open_content(name)
        if path:
            time.sleep(RENAME_LIMIT)
            return open_content(self._store.path(sha))
        return -1

    def _send_again(self, sha: Sha) -> None:
        again: PlainClientFrame = {"again": sha}
        self._stream.send(again)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count how long contents take to come here, and report it: for the receiver's limit that does not count."""
        began = time.monotonic()
        yield
        self._waited += time.monotonic() - began
        while self._waited >= WAIT_INTERVAL:
            self._waited -= WAIT_INTERVAL
            if self._stream.deadline is not None:
                self._stream.deadline += WAIT_INTERVAL
            waiting: PlainClientFrame = {"wait": True}
            self._stream.send(waiting)


def start_provider(store: Store, rows: List[TreeEntry], offer: Optional[Offer]) -> Optional[Provider]:
    """Begin to give the contents of a tree, if that is asked for and can be."""
    try:
        return Provider(store, content_sizes(rows), offer) if offer else None
    except OSError:
        return None  # others have it from elsewhere


@contextmanager
def providing(store: Store, rows: List[TreeEntry], offer: Optional[Offer]) -> Iterator[Optional[Provider]]:
    """Provide the contents of a tree as long as the context lasts, if that is asked for and possible."""
    provider = start_provider(store, rows, offer)
    try:
        yield provider
    finally:
        if provider is not None:
            provider.close()


def content_sizes(rows: List[TreeEntry]) -> Dict[str, int]:
    """Return the size of every content of a tree."""
    return {row.content: row.size for row in rows if row.kind == "file"}


def time_limit(sizes: Iterable[int]) -> float:
    """Return the seconds that contents of these sizes may take."""
    return sum(sizes) / MIN_RATE + GRACE


def receive(
    store: Store,
    sizes: Dict[str, int],
    missing: Set[str],
    provider: Source,
    observe: Observe,
) -> str:
    """Take what is missing from a provider; gives what went wrong, if anything; `missing` keeps what did not come.

    A content of which only a part has come goes on there with the next provider, unless it was wrong. For each frame
    `observe` receives how many bytes came with it, or for how many seconds the provider had nothing to send; where it
    returns True, the client has named another provider or has left.
    An OSError is the store's: the disk here is full, or worse.
    """
    held = keep_held(store, sizes)
    try:
        for header, body in _frames_from(provider, missing, sizes, held):
            size, waited = 0, WAIT_INTERVAL if "wait" in header else 0.0
            if "again" in header:
                store.drop(Untrusted(header).text("again"))
            elif not waited:
                size = _store_contents(store, sizes, missing, header, body)
            if observe(size, waited):
                return ""
        if missing:
            raise TransferError("it does not have all contents")
    except TransferError as error:
        return str(error) if missing else ""
    except VerbError as error:
        store.abandon()
        return f"{error}; its first part came from another node" if held else str(error)
    return ""


def _store_contents(
    store: Store, sizes: Dict[Sha, int], missing: Set[Sha], header: Dict[str, Any], body: bytes
) -> int:
    """Store what a provider has sent in a frame; return its bytes."""
    try:
        parts = list(unpack_contents(header, body))
    except (zlib.error, ValueError) as error:
        raise TransferError(f"what it sent cannot be read: {error}") from None
    for sha, data, last in parts:
        if sha not in missing:
            raise TransferError("it sent something that was not requested")
        if "blobs" in header:
            store.drop(sha)
        store.add(sha, data, sizes[sha], last=last)
        if last:
            missing.discard(sha)
    if not parts:
        raise TransferError("it sent an empty frame")
    return sum(len(data) for _, data, _ in parts)


def keep_held(store: Store, sizes: Dict[Sha, int]) -> Dict[Sha, int]:
    """Return how much a receiver has of some contents, and drop what no provider can complete."""
    held = store.held()
    for count, (sha, size) in enumerate(list(held.items())):
        if count >= MAX_HELD or size >= sizes[sha]:
            store.drop(sha)
            del held[sha]
    return held


def unpack_contents(header: Dict[str, Any], body: bytes) -> Iterator[Tuple[str, bytes, bool]]:
    """Unpack one frame into (sha256, data, whether the content is complete with it); ValueError if it is none."""
    fields = Untrusted(header)
    if "blobs" in fields:
        data, position = memoryview(decompress(body)), 0
        for row in fields.rows("blobs", fields.length("blobs")):
            size = row.integer(1, 0, len(data) - position)
            if size is None:
                raise ValueError("a content of an impossible size")
            yield row.text(0), bytes(data[position : position + size]), True
            position += size
    elif "blob" in fields:
        yield fields.text("blob"), decompress(body), fields.choice("last") is not False


def decompress(body: bytes) -> bytes:
    """Decompress one frame's contents; zlib.error beyond MAX_FRAME, which no sender of ours comes near."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(body, MAX_FRAME)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise zlib.error("more data than one frame may hold")
    return data


def _frames_from(
    provider: Source, missing: Set[str], sizes: Dict[str, int], held: Dict[Sha, int]
) -> Iterator[Frame]:
    total = sum(sizes[sha] for sha in missing)
    # the provider may lack more than this node; the first of a chain to give up is the one that sees the fault
    waits = sum(sizes.values()) / MIN_RELAY_RATE + GRACE * provider["index"]
    deadline = time.monotonic() + time_limit([total])
    try:
        with connect_to_provider(provider) as connection:
            stream = open_stream(connection, longest=MAX_HEADER)
            stream.deadline = deadline
            wanted: HashesFrame = {
                "hashes": sorted(missing),
                "held": [[sha, size] for sha, size in held.items()],
            }
            stream.send(wanted)
            while True:
                frame = stream.receive(SILENCE_LIMIT)
                if frame is None:
                    raise TransferError("it closed the connection")
                if Untrusted(frame[0]).flag("done"):
                    return
                if "wait" in frame[0]:
                    waits -= WAIT_INTERVAL
                    if waits < 0:
                        raise TransferError("it is too slow")
                    stream.deadline = deadline = deadline + WAIT_INTERVAL
                yield frame
    except (socket.timeout, TimeoutError):  # one and the same since Python 3.10
        timed_out = time.monotonic() >= deadline
        raise TransferError("it is too slow" if timed_out else "it does not answer") from None
    except (OSError, ValueError) as error:
        raise TransferError(getattr(error, "strerror", None) or str(error)) from None


def send_contents(send: Send, store: Store, hashes: List[Sha], held: Dict[Sha, int]) -> None:
    """Send contents, small ones together and without what is held; one that is not there is left out."""
    group = []  # type: List[Tuple[str, bytes]]
    for sha in hashes:
        try:
            descriptor = open_content(store.path(sha))
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as source:
            size = os.fstat(descriptor).st_size
            if size > SMALL_CONTENT:
                send_parts(send, sha, source, size, held.get(sha, 0))
                continue
            group.append((sha, source.read()))
        if len(group) >= GROUP_CONTENTS or sum(len(content) for _, content in group) > GROUP_BYTES:
            send_group(send, group)
            group = []
    if group:
        send_group(send, group)


def open_content(path: str) -> int:
    """Open a file of the store, and no link in its place."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def send_group(send: Send, contents: List[Tuple[str, bytes]]) -> None:
    """Send small contents in one frame; a local network is faster than compression."""
    header: PlainClientFrame = {"blobs": [[sha, len(content)] for sha, content in contents]}
    send(header, zlib.compress(b"".join(content for _, content in contents), 0))


def send_parts(send: Send, sha: Sha, source: BinaryIO, size: int, sent: int) -> None:
    """Send a large content in parts, without the first `sent` bytes."""
    source.seek(sent)
    while sent < size:
        part = source.read(PART)
        if not part:
            raise VerbError("CC-SYNC-009", "a file became shorter")
        sent += len(part)
        send_part(send, sha, part, last=sent >= size)


def send_part(send: Send, sha: Sha, part: bytes, *, last: bool) -> None:
    """Send a piece of a large content."""
    header: ContentPart = {"blob": sha, "last": last}
    send(header, zlib.compress(part, 0))


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


def open_stream(connection: socket.socket, longest: int) -> Stream:
    """Begin to exchange frames; a node that does not read for long is left, and no header is longer than this."""
    stream = Stream(connection.fileno(), connection.fileno())
    stream.send_timeout = SILENCE_LIMIT
    stream.restrict(lambda text: _parse_header(text, longest), longest, 2 * PART)
    return stream


def _parse_header(text: bytes, longest: int) -> Dict[str, Any]:
    header = parse_json(text, longest, longest // 32 + MAX_LINE)
    if not isinstance(header, dict):
        raise MalformedError("a frame without a header")
    return header
