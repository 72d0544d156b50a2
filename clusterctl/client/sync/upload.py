"""Send a tree to nodes: only what each lacks, from here or from another node that has it, and verify that it arrived.

Nodes that share a work directory are sent it in turns: the first alone, then all others together.
"""

from __future__ import annotations

import secrets
import threading
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
    from clusterctl.protocol.messages.contents import Offer, Source

Via = Literal["auto", "direct", "tree"]

MIN_NODES = 3  # nodes for which passing on can win
MIN_TOTAL_BYTES = 256_000_000  # bytes for all nodes together; below, the rounds cost more than they save
# receivers that failed, before any had it, from which it follows that the nodes do not reach each other
MAX_FAILURES = 2
MAX_RECEIVERS = 3  # at once from one node, which turns away more than four (node/sync/transfer.py)
EVIDENCE_LENGTH = 80  # characters of a senseless answer that are shown
HASH_LENGTH = 64  # characters of the name of a content
MAX_DIFFERING = 20  # paths that are named
ATTEMPTS = 3  # times that a node looks what it lacks (node/verbs/sync.py)
MAX_PROVIDERS = 6  # that a node may report a problem with; after that we send it the rest
# Each time it reports what it lacks, and then that it has all; problems, place, stored and tree are the rest.
MAX_ANSWERS = 2 * ATTEMPTS + MAX_PROVIDERS + 4


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
    """Puts the nodes that lack contents into a chain; used by one thread for each node, and closed when all have them.

    The first is sent them from here. Each other receives them from the one that was last before it, which sends on what
    it receives while it receives it. A node that fails is left out: the next continues with the one before it.
    `addresses` are the training addresses by node; with `auto` there is a chain where that saves much sending.
    """

    via: Via
    addresses: Mapping[str, TransferAddress]
    notice: Callable[[str], None] = lambda _: None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._chain: list[Provider] = []  # to which more receivers may go
        self._before: dict[Provider, Provider | None] = {}
        self._own: dict[str, Provider] = {}  # by receiver: at which it sends on
        self._provider_of: dict[str, Provider] = {}  # by receiver that is not done
        self._complaints: defaultdict[Provider, set[str]] = defaultdict(set)
        self._open_sessions: list[Session] = []
        self._any_succeeded = False  # one node has had it from another

    def offer(self, node: str, size: int) -> Offer | None:
        """Return where a node is to provide contents, of a tree of `size` bytes; None if it is not."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        address = self.addresses[node]
        return {"address": address.address, "ports": address.ports, "token": self.token}

    def add_source(self, node: str, port: int) -> None:
        """Begin the chain with a node that has everything."""
        with self._lock:
            self._append(node, port)

    def join(self, node: str, port: int | None, size: int) -> Provider | None:
        """Put a node that lacks `size` bytes at the end, if it provides at a port; return whom it receives from.

        None: it lacks nothing, or we send it.
        """
        with self._lock:
            last = self._chain[-1] if self._chain else None
            if port is not None and node in self.addresses:
                self._own[node] = self._append(node, port)
            if size and node in self.addresses and self._is_worthwhile(size):
                return self._assign(node, last)
            return None

    def replace_provider(self, node: str, problem: str) -> Provider | None:
        """Return the provider before that of a node, which reports a problem with it; None if we send."""
        with self._lock:
            failed = self._provider_of.pop(node, None)
            if failed is None:
                return None
            self._complaints[failed].add(node)
            if len(self._complaints[failed]) >= MAX_FAILURES:
                self._leave_out(failed)
            before = self._assign(node, self._before[failed])
        facts = {"node": node, "provider": failed.node, "problem": translate_node_text(problem)}
        if before is None:
            text = tr(
                "{node} could not fetch files from {provider} ({problem}); they are sent from this machine",
                **facts,
            )
        else:
            text = tr(
                "{node} could not fetch files from {provider} ({problem}); it continues with {other}",
                other=before.node,
                **facts,
            )
        self.notice(text)
        return before

    def index_of(self, provider: Provider) -> int:
        """Return how far a provider is from the beginning of the chain, from 1."""
        with self._lock:
            index, before = 1, self._before[provider]
            while before is not None:
                index, before = index + 1, self._before[before]
            return index

    def succeed(self, node: str) -> None:
        """A node has all contents: one that had them from another shows that the nodes reach each other."""
        with self._lock:
            provider = self._provider_of.pop(node, None)
            self._any_succeeded = self._any_succeeded or provider is not None

    def remove_node(self, node: str) -> None:
        """A node has failed: no other is to receive from it."""
        with self._lock:
            self._provider_of.pop(node, None)
            if node in self._own:
                self._leave_out(self._own[node])

    def keep_open(self, session: Session) -> None:
        """Leave a conversation open until all have the code."""
        self._open_sessions.append(session)

    def close(self) -> None:
        """Stop the providers: they close their listeners."""
        while self._open_sessions:
            with suppress(Exception):
                self._open_sessions.pop().close()

    def _append(self, node: str, port: int) -> Provider:
        provider = Provider(node, self.addresses[node].address, port)
        self._before[provider] = self._chain[-1] if self._chain else None
        self._chain.append(provider)
        return provider

    def _assign(self, node: str, provider: Provider | None) -> Provider | None:
        """Assign a node to a provider, or to the next before it that may have one receiver more."""
        if not self._any_succeeded and len(set().union(*self._complaints.values())) >= MAX_FAILURES:
            return None  # the nodes do not reach each other: each is sent it from here, all at the same time
        while provider is not None:
            receivers = list(self._provider_of.values()).count(provider)
            if (
                provider in self._chain
                and receivers < MAX_RECEIVERS
                and node not in self._complaints[provider]
            ):
                self._provider_of[node] = provider
                return provider
            provider = self._before[provider]
        return None

    def _leave_out(self, provider: Provider) -> None:
        if provider in self._chain:
            self._chain.remove(provider)

    def _is_worthwhile(self, size: int) -> bool:
        """Decide whether a chain beats sending `size` bytes to every node."""
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
    `on_expected` receives how many bytes a node lacks, once that is known, `on_taken` the node and how many more it got
    from another, while they come.
    """

    scan: ScanResult
    home_locks: SharedHomeLocks | None = None
    distribution: Distribution | None = None
    on_expected: Callable[[int], None] = lambda _: None
    on_taken: Callable[[str, int], None] = lambda _node, _size: None


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
    except BaseException:
        if distribution is not None:
            distribution.remove_node(node)
        raise


@dataclass(frozen=True)
class SentFiles:
    """What became of the files that a node was to take; `kept` are some of those that it has with other content.

    `replaced` are files that had other content.
    """

    files: int
    bytes: int
    unchanged: int
    kept: tuple[str, ...]
    kept_count: int
    sent: int
    taken: int
    replaced: int = 0

    def __add__(self, other: SentFiles) -> SentFiles:
        return SentFiles(
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            unchanged=self.unchanged + other.unchanged,
            kept=self.kept + other.kept,
            kept_count=self.kept_count + other.kept_count,
            sent=self.sent + other.sent,
            taken=self.taken + other.taken,
            replaced=self.replaced + other.replaced,
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
            files=report.count("files"),
            bytes=report.count("bytes"),
            unchanged=report.count("unchanged"),
            kept=report.texts("kept", MAX_DIFFERING, 300),
            kept_count=report.count("kept_count"),
            sent=transfer.sent,
            taken=transfer.taken,
            replaced=report.count("replaced"),
        )
    except BaseException:
        if upload.distribution is not None:
            upload.distribution.remove_node(node)
        raise


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
        self.sent = self.taken = self._answers = self._rounds = self._problems = 0
        self._reported_taken = 0  # bytes from other nodes that `on_taken` has received
        self._distribution = upload.distribution
        self._provider: Provider | None = None
        self._reported = False
        self._missing_bytes = 0  # bytes that were missing at the last report
        self._listener = ReplyReader(session, on_closed=self._closed_error, on_stalled=self._stalled_error)

    def receive_until(self, key: str) -> Untrusted:
        """Send what is requested until the node sends a certain key."""
        while True:
            header, _ = self._listener.receive(self._on_beat)
            self._answers += 1
            if self._answers > MAX_ANSWERS:
                raise self._protocol_error(
                    tr("{answers} answers, and the code is still not complete", answers=self._answers)
                )
            if "missing" in header:
                self._supply_missing(self._parse_missing(header), header)
            elif "stored" in header:
                self._on_stored()
            if key in header:
                return header

    def _supply_missing(self, missing: frozenset[str], header: Untrusted) -> None:
        """Have what is missing sent: by another node, or by us where there is none or that failed."""
        size = sum(self.scan.manifest.blobs[sha].size for sha in missing)
        first, self._reported = not self._reported, True
        previously_missing, self._missing_bytes = self._missing_bytes, size
        provider, problem = None, header.text("source_problem", 200)
        if first:
            self._on_expected(size)
            if self._distribution is not None:
                provider = self._distribution.join(self.node, header.integer("port", 1, 65535), size)
        elif problem and self._provider is not None and self._distribution is not None:
            self._count_taken(previously_missing - size)
            self._problems += 1
            if self._problems <= MAX_PROVIDERS:
                provider = self._distribution.replace_provider(self.node, problem)
        self._provider = provider or self._provider
        if provider is not None and self._distribution is not None:
            address: Source = {
                "address": provider.address,
                "port": provider.port,
                "token": self._distribution.token,
                "index": self._distribution.index_of(provider),
            }
            self.session.send({"source": address})
            return
        self._rounds += bool(missing)
        if self._rounds > ATTEMPTS:
            raise self._protocol_error(tr("it requested contents {rounds} times", rounds=self._rounds))
        self.send_contents(missing)

    def _on_stored(self) -> None:
        """All contents are there."""
        if self._distribution is not None:
            if self._provider is not None and not self.sent:
                self._count_taken(self._missing_bytes)
            self._distribution.succeed(self.node)

    def _on_beat(self, beat: Untrusted) -> None:
        """Report what has come from another node since the last beat."""
        if self._provider is not None:
            self._report_taken(min(beat.integer("taken", 0) or 0, self.taken + self._missing_bytes))

    def _count_taken(self, size: int) -> None:
        self.taken += size
        self._report_taken(self.taken)

    def _report_taken(self, taken: int) -> None:
        """Report bytes that no earlier report has counted; a content that comes twice counts once."""
        if taken > self._reported_taken:
            self._on_taken(self.node, taken - self._reported_taken)
            self._reported_taken = taken

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
