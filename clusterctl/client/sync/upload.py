"""Send a tree to nodes: only what each lacks, from here or from another node that has it, and verify that it arrived.

Nodes that share a work directory are sent it in turns: the first alone, then all others together.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterctl.client.rpc.session import ReplyReader, Session
from clusterctl.client.sync.contents import HeldPart
from clusterctl.client.sync.distribution import Distribution, Provider
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.contents import Source

EVIDENCE_LENGTH = 80  # characters of a senseless answer that are shown
HASH_LENGTH = 64  # characters of the name of a content
MAX_PARTS = 16  # contents of which a node has a part; a node of ours reports half as many
MAX_HOLDER = 300  # characters of the name of one who stages to the same place
MAX_DIFFERING = 20  # paths that are named
ATTEMPTS = 3  # times that a node looks what it lacks (node/verbs/sync.py)
MAX_PROVIDERS = 6  # that a node may report a problem with; after that we send it the rest
# Each time it reports what it lacks, and then that it has all; problems, those that it waits for (node/verbs/staging/
# take.py), place, stored and tree are the rest.
MAX_ANSWERS = 2 * ATTEMPTS + MAX_PROVIDERS + 3 + 4


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
    from another, while they come, `on_held` the node and who stages to the same place, while it waits.
    """

    scan: ScanResult
    home_locks: SharedHomeLocks | None = None
    distribution: Distribution | None = None
    on_expected: Callable[[int], None] = lambda _: None
    on_taken: Callable[[str, int], None] = lambda _node, _size: None
    on_held: Callable[[str, str], None] = lambda _node, _holder: None


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
        self._on_held = upload.on_held
        self.sent = self.taken = self._answers = self._rounds = self._problems = 0
        self._named = 0  # providers that the node was sent
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
            if "held_by" in header:
                self._on_held(self.node, header.text("held_by", MAX_HOLDER))
            elif "missing" in header:
                self._supply_missing(self._parse_missing(header), header)
            elif "stored" in header:
                self._on_stored()
            if key in header:
                return header

    def _supply_missing(self, missing: frozenset[str], header: Untrusted) -> None:
        """Have what is missing sent: by another node, or by us where there is none or that failed."""
        size = sum(self.scan.manifest.blobs[sha].size for sha in missing)
        held = self._parse_held(missing, header)
        size -= sum(part.size for part in held.values())
        first, self._reported = not self._reported, True
        previously_missing, self._missing_bytes = self._missing_bytes, size
        provider, problem = None, header.text("source_problem", 200)
        if first:
            self._on_expected(size)
            if self._distribution is not None:
                provider = self._distribution.join(self.node, header.integer("port", 1, 65535), size)
        elif problem and self._provider is not None and self._distribution is not None:
            self._count_taken(max(0, previously_missing - size))
            self._count_taken(previously_missing - size)
            if header.integer("turn", 0) != self._named:
                return  # it reports a provider that it is to leave anyway: the next one is on its way to it
            self._problems += 1
            if self._problems <= MAX_PROVIDERS:
                provider = self._distribution.replace_provider(self.node, problem)
        if provider is not None and self._distribution is not None:
            self._name_provider(self._distribution, provider)
            return
        self._rounds += bool(missing)
        if self._rounds > ATTEMPTS:
            raise self._protocol_error(tr("it requested contents {rounds} times", rounds=self._rounds))
        self.send_contents(missing, held)

    def _on_stored(self) -> None:
        """All contents are there."""
        if self._distribution is not None:
            if self._provider is not None and not self.sent:
                self._count_taken(self._missing_bytes)
            self._distribution.succeed(self.node)

    def _on_beat(self, beat: Untrusted) -> None:
        """Report what has come from another node since the last beat, and name a provider that is faster."""
        if self._provider is None or self._distribution is None:
            return
        taken = beat.integer("taken", 0) or 0
        self._report_taken(min(taken, self.taken + self._missing_bytes))
        moved = self._distribution.report_progress(self.node, taken, beat.integer("waited", 0) or 0)
        if moved is not None and self._named < MAX_PROVIDERS:
            self._name_provider(self._distribution, moved)

    def _name_provider(self, distribution: Distribution, provider: Provider) -> None:
        self._provider, self._named = provider, self._named + 1
        address: Source = {
            "address": provider.address,
            "port": provider.port,
            "token": distribution.token,
            "index": distribution.index_of(provider),
            "turn": self._named,
        }
        self.session.send({"source": address})

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

    def _parse_held(self, missing: frozenset[str], header: Untrusted) -> dict[str, HeldPart]:
        """Read of which contents that it lacks the node has a part."""
        blobs, held = self.scan.manifest.blobs, {}
        for row in header.rows("held", MAX_PARTS):
            sha = row.text(0, HASH_LENGTH)
            size = row.integer(1, 1, blobs[sha].size - 1) if sha in missing else None
            if size is not None:
                held[sha] = HeldPart(size, row.text(2, HASH_LENGTH))
        return held

    def _protocol_error(self, evidence: str) -> SyncError:
        return SyncError("CC-SYNC-008", "answer", node=self.node, evidence=evidence)

    def send_contents(self, missing: Collection[str], held: Mapping[str, HeldPart]) -> None:
        """Send some contents, without what the node has of them, then a frame that this was all."""
        for shipment in self.scan.contents.shipments(missing, held):
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
