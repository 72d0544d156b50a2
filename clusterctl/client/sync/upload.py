"""Send the source tree to one node: only what it lacks, and verify that it arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.client.rpc.session import ReplyReader, Session
from clusterctl.client.sync.distribute import Distribution, Provider, SharedHomeLocks
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import Source

EVIDENCE_LENGTH = 80  # characters of a senseless answer that are shown
HASH_LENGTH = 64  # characters of the name of a content
MOST_DIFFERING = 20  # paths that are named
ATTEMPTS = 3  # times that a node looks what it lacks (node/verbs/sync.py)
# Each time it may add what another node did not give it, and then that it has all; place, stored and tree are the rest.
MOST_ANSWERS = 3 * ATTEMPTS + 4


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
            report.texts("kept", MOST_DIFFERING, 300),
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
            if self._answers > MOST_ANSWERS:
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
        differing = ", ".join(header.texts("differs", MOST_DIFFERING, 300))
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
