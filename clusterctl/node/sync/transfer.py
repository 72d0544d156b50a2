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

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import (
    TYPE_CHECKING,
    Any,
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
from ...protocol.untrusted import Untrusted
from ..runtime.connections import (
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
from ..runtime.stream import Stream, VerbError
from .hashing import Sha
from .outgoing import WAIT_INTERVAL, Outgoing
from .peers import (
    HANDSHAKE_LIMIT,
    MAX_HEADER,
    MAX_LINE,
    SILENCE_LIMIT,
    PeerStream,
    TransferError,
    connect_to_provider,
)
from .store import Data, Store

if TYPE_CHECKING:
    from ...protocol.messages.contents import HashesFrame, Offer, Source

PROVIDE_LIMIT = 1800.0  # seconds beyond the time for all contents, after which no node gets anything any more
MAX_HELD = 8  # contents of which a receiver keeps a part for the next provider
MAX_PENDING = 32  # that have proved nothing yet; one more, and the oldest of them goes
MIN_RATE = 1e6  # bytes a second; a slower node costs more than sending from the client
MIN_RELAY_RATE = 1e5  # bytes a second with which contents come to a provider: an uplink may be slow
GRACE = 30.0  # seconds beyond that
MAX_NAME = 80  # bytes of JSON that name a content, with its size

Observe = Callable[[int, float], bool]


class Provider:
    """Gives the contents of one tree to nodes that know the token, from threads of its own, until it is closed.

    `coming` are those that this node still lacks, and gives as they arrive.
    """

    most = 4  # receivers at once; others are disconnected

    def __init__(self, store: Store, sizes: Dict[str, int], offer: Offer) -> None:
        self._store = store
        self._sizes = sizes
        self.coming: FrozenSet[Sha] = frozenset()
        self._token = str(offer["token"]).encode("ascii")
        self._loop = Loop()
        self._socket = listen(str(offer["address"]), port_range(offer["ports"]))
        self._listener = AuthenticatingListener(
            self._loop, self._socket, MAX_PENDING, HANDSHAKE_LIMIT, self._on_answer
        )
        self.port = self._listener.port
        self._receivers: Set[socket.socket] = set()
        threading.Thread(target=self._listen, daemon=True).start()

    def serve_until_hangup(self, stream: Stream) -> None:
        """Send contents until the client hangs up; it may have named a provider too late."""
        with suppress(TimeoutError):
            while stream.receive(PROVIDE_LIMIT + time_limit(self._sizes.values())) is not None:
                pass

    def close(self) -> None:
        """Listen no more, and disconnect the receivers: what they wait for may never come."""
        self._loop.stop()
        self._sizes = {}  # a receiver that comes now gets nothing
        for receiver in (self._socket, *self._receivers):  # threads wait for them
            with suppress(OSError):
                receiver.shutdown(socket.SHUT_RDWR)

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
        self._receivers.add(receiver)  # first: `close` finds it there, or has left nothing to send
        try:
            with receiver, suppress(OSError, ValueError, VerbError):  # the receiver reports its side
                if len(self._receivers) <= self.most:
                    self._serve(receiver)
        finally:
            self._receivers.remove(receiver)

    def _serve(self, receiver: socket.socket) -> None:
        stream = PeerStream(receiver, MAX_NAME * len(self._sizes) + MAX_LINE)
        frame = stream.receive_frame(SILENCE_LIMIT)
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
) -> Optional[Exception]:
    """Take what is missing from a provider; return what went wrong: CC-SYNC-009 if its contents are not those.

    `missing` keeps what did not come. A content of which only a part has come goes on there with the next provider,
    unless it was wrong. `observe` receives for each frame its bytes, or the seconds that the provider had nothing to
    send; where it returns True, the client has named another or left.
    An OSError is the store's.
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
                return None
        if missing:
            return VerbError("CC-SYNC-009", "it does not have all contents")
    except TransferError as error:
        return error if missing else None
    except VerbError as error:
        store.abandon()
        return VerbError(error.code, f"{error}; its first part came from another node") if held else error
    return None


def _store_contents(
    store: Store, sizes: Dict[Sha, int], missing: Set[Sha], header: Dict[str, Any], body: memoryview
) -> int:
    """Store what a provider has sent in a frame; return its bytes."""
    try:
        parts = list(unpack_frame(header, body))
    except ValueError as error:
        raise TransferError(f"what it sent cannot be read: {error}") from None
    for sha, data, last in parts:
        if sha not in missing:
            raise TransferError("it sent something that was not requested")
        if "blobs" in header:
            store.drop(sha)
        if store.add(sha, data, sizes[sha], last=last):
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


def unpack_frame(header: Dict[str, Any], body: memoryview) -> Iterator[Tuple[Sha, Data, bool]]:
    """Cut a frame into (sha256, data, whether the content is complete with it); ValueError if it is none.

    The data stays what it is until the next frame comes.
    """
    fields = Untrusted(header)
    if "blobs" in fields:
        position = 0
        for row in fields.rows("blobs", fields.length("blobs")):
            size = row.integer(1, 0, len(body) - position)
            if size is None:
                raise ValueError("a content of an impossible size")
            yield row.text(0), body[position : position + size], True
            position += size
    elif "blob" in fields:
        yield fields.text("blob"), body, fields.choice("last") is not False


def _frames_from(
    provider: Source, missing: Set[str], sizes: Dict[str, int], held: Dict[Sha, int]
) -> Iterator[Tuple[Dict[str, Any], memoryview]]:
    total = sum(sizes[sha] for sha in missing)
    # the provider may lack more than this node; the first of a chain to give up is the one that sees the fault
    waits = sum(sizes.values()) / MIN_RELAY_RATE + GRACE * provider["index"]
    deadline = time.monotonic() + time_limit([total])
    try:
        with connect_to_provider(provider) as connection:
            stream = PeerStream(connection, MAX_HEADER)
            stream.deadline = deadline
            wanted: HashesFrame = {
                "hashes": sorted(missing),
                "held": [[sha, size] for sha, size in held.items()],
            }
            stream.send(wanted)
            while True:
                frame = stream.receive_frame(SILENCE_LIMIT)
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
