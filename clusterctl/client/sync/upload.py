"""Send a tree to nodes: only what each lacks, from here or from another node that has it, and verify that it arrived.

Nodes that share a work directory are sent it in turns: the first alone, then all others together.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from clusterctl.client.rpc.session import ReplyReader, Session
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.node_texts import translate_node_text
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import Offer, Source

Via = Literal["auto", "direct", "tree"]

MIN_NODES = 3  # nodes for which passing on can win
MIN_TOTAL_BYTES = 256_000_000  # bytes for all nodes together; below, the rounds cost more than they save
# receivers that failed, before any had it, from which it follows that the nodes do not reach each other
MAX_FAILURES = 2
# seconds, bytes a second: no longer does anybody wait for a node that is to give
BASE_WAIT_LIMIT, MIN_TRANSFER_RATE = 60.0, 1e6
EVIDENCE_LENGTH = 80  # characters of a senseless answer that are shown
HASH_LENGTH = 64  # characters of the name of a content
MAX_DIFFERING = 20  # paths that are named
ATTEMPTS = 3  # times that a node looks what it lacks (node/verbs/sync.py)
# Each time it may add what another node did not give it, and then that it has all; place, stored and tree are the rest.
MAX_ANSWERS = 3 * ATTEMPTS + 4


@dataclass(frozen=True)
class TransferAddress:
    """Where a node can be reached by the others, and on which ports it may listen."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Provider:
    """A node that has all contents, and the port where it gives them on."""

    node: str
    address: str
    port: int


@dataclass
class Distribution:
    """Assigns providers to receivers; used by one thread for each node, and closed when all have the code.

    `addresses` are the training addresses by node; with `auto` the code is passed on where that saves much sending.
    """

    via: Via
    addresses: Mapping[str, TransferAddress]
    notice: Callable[[str], None] = lambda _: None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[Provider] = []
        self._busy: dict[str, Provider] = {}  # by receiver
        # who is sent the contents by us, so that the others can wait for him
        self._first_receiver: str | None = None
        self._open_sessions: list[Session] = []
        self._failures = 0
        self._any_succeeded = False  # one node has had it from another

    def offer(self, node: str, size: int) -> Offer | None:
        """Return where a node is to provide contents, of a tree of `size` bytes; None if it is not."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        address = self.addresses[node]
        return {"address": address.address, "ports": address.ports, "token": self.token}

    def wait_for_provider(self, node: str, size: int) -> Provider | None:
        """Wait for a provider of `size` bytes; None if they are to come from us."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        deadline = time.monotonic() + BASE_WAIT_LIMIT + size / MIN_TRANSFER_RATE
        with self._changed:
            while not self._idle:
                if self._should_give_up or time.monotonic() > deadline:
                    return None
                if self._first_receiver is None and not self._busy:
                    self._first_receiver = node
                    return None
                self._changed.wait(deadline - time.monotonic())
            if self._should_give_up:
                return None
            self._busy[node] = self._idle.pop(0)
            return self._busy[node]

    def release(self, node: str, problem: str = "") -> None:
        """A receiver has what it wanted, or reports why not; a provider that failed is dropped, and we send instead."""
        with self._changed:
            provider = self._busy.pop(node, None)
            if provider is not None and not problem:
                self._idle.append(provider)
                self._any_succeeded = True
            if problem and self._first_receiver is None:
                self._first_receiver = node
            self._failures += bool(problem)
            self._changed.notify_all()
        if provider is not None and problem:
            self.notice(
                tr(
                    "{node} could not fetch the code from {provider} ({problem}); it is sent from this machine",
                    node=node,
                    provider=provider.node,
                    problem=translate_node_text(problem),
                )
            )

    def add_provider(self, node: str, port: int) -> None:
        """A node has all contents and gives them on."""
        with self._changed:
            if all(provider.node != node for provider in (*self._idle, *self._busy.values())):
                self._idle.insert(0, Provider(node, self.addresses[node].address, port))
            self._changed.notify_all()

    def remove_node(self, node: str) -> None:
        """A node is done, or has failed: no other waits for it any more."""
        with self._changed:
            if self._first_receiver == node:
                self._first_receiver = None
            provider = self._busy.pop(node, None)
            if provider is not None:
                self._idle.append(provider)
            self._changed.notify_all()

    def keep_open(self, session: Session) -> None:
        """Leave a conversation open until all have the code."""
        self._open_sessions.append(session)

    def close(self) -> None:
        """Stop the providers: they close their listeners."""
        while self._open_sessions:
            with suppress(Exception):
                self._open_sessions.pop().close()

    @property
    def _should_give_up(self) -> bool:
        """Return whether the nodes do not reach each other: then each is sent it from here, all at the same time."""
        return not self._any_succeeded and self._failures >= MAX_FAILURES

    def _is_worthwhile(self, size: int) -> bool:
        """Decide whether passing on beats sending `size` bytes to every node."""
        if self.via == "auto":
            return len(self.addresses) >= MIN_NODES and size * len(self.addresses) >= MIN_TOTAL_BYTES
        return self.via == "tree" and len(self.addresses) > 1


@dataclass
class _HomeLock:
    filled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedHomeLocks:
    """Gives turns by the random id of the place; used by one thread for each node."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, _HomeLock] = defaultdict(_HomeLock)
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, workdir_id: str) -> Iterator[None]:
        """Wait for the turn: the first goes alone, and when it is through all others go together.

        One that fails passes the turn to the next; a work directory without an id is not shared.
        """
        with self._lock:
            entry = self._locks[workdir_id] if workdir_id else _HomeLock()
        with entry.lock:
            if not entry.filled:
                yield
                entry.filled = True
                return
        yield


@dataclass(frozen=True)
class SyncResult:
    """What a node holds now, and how much had to come (bytes of file content): sent by us, or taken from a node."""

    tree: str
    files: int
    bytes: int
    sent: int
    taken: int = 0  # from another node
    provider: str = ""  # that node


@dataclass(frozen=True)
class TreeUpload:
    """A tree that many nodes get.

    With `home_locks`, of the nodes that share a work directory one is sent what it lacks, and then the others look.
    With `distribution`, nodes may take contents from each other; a session whose node gives them is kept by it.
    `on_expected` receives how many bytes a node lacks, once that is known, `on_taken` how many it got from another.
    """

    scan: ScanResult
    home_locks: SharedHomeLocks | None = None
    distribution: Distribution | None = None
    on_expected: Callable[[int], None] = lambda _: None
    on_taken: Callable[[int], None] = lambda _: None


def send_tree(
    session: Session,
    upload: TreeUpload,
    *,
    node: str,
    progress: Callable[[int], None] = lambda _: None,
) -> SyncResult:
    """Send the tree; `progress` receives the bytes of each piece that was sent.

    Raises SyncError if the node cannot take it, or holds something else in the end (CC-SYNC-003).
    """
    scan, home_locks, distribution = upload.scan, upload.home_locks, upload.distribution
    transfer = _Transfer(session, node, progress, upload)
    try:
        session.send({"manifest": True}, scan.contents.listing)
        if home_locks is not None:
            with home_locks.acquire(transfer.receive_until("workdir_id").text("workdir_id", HASH_LENGTH)):
                session.send({"check_store": True})
                transfer.receive_until("stored")
        return transfer.verify(transfer.receive_until("tree"))
    finally:
        if distribution is not None:
            distribution.remove_node(node)


@dataclass(frozen=True)
class SentFiles:
    """What became of the files that a node was to take; `kept` are some of those that it has with other content."""

    files: int
    bytes: int
    unchanged: int
    kept: tuple[str, ...]
    kept_count: int
    sent: int
    taken: int

    def __add__(self, other: SentFiles) -> SentFiles:
        return SentFiles(
            self.files + other.files,
            self.bytes + other.bytes,
            self.unchanged + other.unchanged,
            self.kept + other.kept,
            self.kept_count + other.kept_count,
            self.sent + other.sent,
            self.taken + other.taken,
        )


def send_files(
    session: Session,
    upload: TreeUpload,
    *,
    node: str,
    progress: Callable[[int], None] = lambda _: None,
) -> SentFiles:
    """Send files that go anywhere on a node; SyncError if it cannot take them."""
    transfer = _Transfer(session, node, progress, upload)
    try:
        session.send({"manifest": True}, upload.scan.contents.listing)
        report = transfer.receive_until("copied").record("copied")
        return SentFiles(
            report.count("files"),
            report.count("bytes"),
            report.count("unchanged"),
            report.texts("kept", MAX_DIFFERING, 300),
            report.count("kept_count"),
            transfer.sent,
            transfer.taken,
        )
    finally:
        if upload.distribution is not None:
            upload.distribution.remove_node(node)


class _Transfer:
    def __init__(
        self,
        session: Session,
        node: str,
        progress: Callable[[int], None],
        upload: TreeUpload,
    ) -> None:
        self.session, self.scan, self.node, self.progress = session, upload.scan, node, progress
        self._on_expected, self._on_taken = upload.on_expected, upload.on_taken
        self.sent = self.taken = self._answers = self._rounds = 0
        self._distribution = upload.distribution
        self._provider: Provider | None = None
        self._missing_bytes = 0  # bytes that were missing at the last report
        self._listener = ReplyReader(session, on_closed=self._closed_error, on_stalled=self._stalled_error)

    def receive_until(self, key: str) -> Untrusted:
        """Send what is requested until the node sends a certain key."""
        while True:
            header, _ = self._listener.receive()
            self._answers += 1
            if self._answers > MAX_ANSWERS:
                raise self._protocol_error(
                    tr("{answers} answers, and the code is still not complete", answers=self._answers)
                )
            if "missing" in header:
                self._supply_missing(self._parse_missing(header), header.text("source_problem", 200))
            elif "stored" in header:
                self._on_stored(header.integer("port", 1, 65535))
            if key in header:
                return header

    def _supply_missing(self, missing: frozenset[str], problem: str) -> None:
        """Have what is missing sent: by another node, or by us where there is none or that failed."""
        size = sum(self.scan.manifest.blobs[sha].size for sha in missing)
        first, previously_missing, self._missing_bytes = self._missing_bytes == 0, self._missing_bytes, size
        if first:
            self._on_expected(size)
        if problem and self._distribution is not None and self._provider is not None:
            self._count_taken(previously_missing - size)
            self._distribution.release(self.node, problem)
        if missing and first and self._distribution is not None:
            provider = self._distribution.wait_for_provider(self.node, size)
            if provider is not None:
                self._provider = provider
                address: Source = {
                    "address": provider.address,
                    "port": provider.port,
                    "token": self._distribution.token,
                }
                self.session.send({"source": address})
                return
        self._rounds += bool(missing)
        if self._rounds > ATTEMPTS:
            raise self._protocol_error(tr("it requested contents {rounds} times", rounds=self._rounds))
        self.send_contents(missing)

    def _on_stored(self, port: int | None) -> None:
        """All contents are there: the provider is free again, and this node may give them on."""
        if self._distribution is None:
            return
        if self._provider is not None and not self.sent:
            self._count_taken(self._missing_bytes)
        self._distribution.release(self.node)
        if port is not None:
            self._distribution.add_provider(self.node, port)
        self._distribution.remove_node(self.node)

    def _count_taken(self, size: int) -> None:
        self.taken += size
        self._on_taken(size)

    def _closed_error(self) -> ConnectionLost:
        return ConnectionLost("CC-SYNC-008", "closed", node=self.node)

    def _stalled_error(self, case: str, limit: float) -> SyncError:
        return SyncError("CC-SYNC-012", case, node=self.node, limit=limit)

    def _parse_counts(self, header: Untrusted) -> tuple[int, int]:
        files, size = header.integer("files", 0), header.integer("bytes", 0)
        if files is None or size is None:
            raise self._protocol_error(tr("it does not report how many files and bytes it has"))
        return files, size

    def _parse_missing(self, header: Untrusted) -> frozenset[str]:
        """Read what the node lacks, each content as often as it may be lost and requested again."""
        blobs = self.scan.manifest.blobs
        missing = frozenset(header.texts("missing", len(blobs) + 1, HASH_LENGTH))
        if not header.is_list("missing") or len(missing) != header.length("missing"):
            raise self._protocol_error(tr("its list of missing contents is malformed"))
        unknown = missing - blobs.keys()
        if unknown:
            raise self._protocol_error(
                tr("it requests {content}, which is not in the tree", content=min(unknown)[:EVIDENCE_LENGTH])
            )
        return missing

    def _protocol_error(self, evidence: str) -> SyncError:
        return SyncError("CC-SYNC-008", "answer", node=self.node, evidence=evidence)

    def send_contents(self, missing: Collection[str]) -> None:
        """Send some contents, then a frame that this was all."""
        for shipment in self.scan.contents.shipments(missing):
            self.session.send(shipment.header, shipment.body)
            self.sent += shipment.size
            self.progress(shipment.size)
        if missing:
            self.session.send({"done": True})

    def verify(self, header: Untrusted) -> SyncResult:
        if header.text("tree") == self.scan.manifest.hash:
            provider = self._provider.node if self._provider and self.taken else ""
            return SyncResult(
                self.scan.manifest.hash, *self._parse_counts(header), self.sent, self.taken, provider
            )
        differing = ", ".join(header.texts("differs", MAX_DIFFERING, 300))
        raise SyncError(
            "CC-SYNC-003",
            "" if differing else "unknown",
            node=self.node,
            evidence=tr(
                "tree on this machine {here}, on the node {there}",
                here=self.scan.manifest.hash,
                there=header.text("tree", HASH_LENGTH),
            ),
            paths=differing,
        )
