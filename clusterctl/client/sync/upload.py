"""Bringing the source tree to one node: only what it lacks, and proof that it arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from clusterctl.client.rpc.session import Listener, Talk
from clusterctl.client.sync.distribute import Giver, Passing, Turns
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.protocol.untrusted import Untrusted

NAMED = 80  # characters of a senseless answer that are shown
SHA = 64  # characters of the name of a content
MOST_DIFFERING = 20  # paths that are named
ATTEMPTS = 3  # times that a node looks what it lacks (node/verbs/sync.py)
# Each time it may add what another node did not give it, and then that it has all; place, stored and tree are the rest.
MOST_ANSWERS = 3 * ATTEMPTS + 4


@dataclass(frozen=True)
class Synced:
    """What a node holds now, and how much had to come (bytes of file content): sent by us, or taken from a node."""

    tree: str
    files: int
    bytes: int
    sent: int
    taken: int = 0  # from another node
    giver: str = ""  # that node


def send_tree(
    session: Talk,
    scan: ScanResult,
    *,
    node: str,
    turns: Turns | None = None,
    passing: Passing | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Synced:
    """Send the tree; `progress` is told the bytes of each piece that left.

    With `turns`, of the nodes that share a work directory one is sent what it lacks, and then the others look.
    With `passing`, nodes may take contents from each other; a session whose node gives them is kept by it.
    Raises SyncError if the node cannot take it, or holds something else in the end (CC-SYNC-003).
    """
    transfer = _Transfer(session, scan, node, progress, passing)
    try:
        session.send({"manifest": True}, scan.contents.listing)
        if turns is not None:
            with turns.take(transfer.hear("place").text("place", SHA)):
                session.send({"look": True})
                transfer.hear("stored")
        return transfer.judge(transfer.hear("tree"))
    finally:
        if passing is not None:
            passing.leave(node)


class _Transfer:
    def __init__(
        self,
        session: Talk,
        scan: ScanResult,
        node: str,
        progress: Callable[[int], None],
        passing: Passing | None,
    ) -> None:
        self.session, self.scan, self.node, self.progress = session, scan, node, progress
        self.sent = self.taken = self._answers = self._rounds = 0
        self._passing = passing
        self._giver: Giver | None = None
        self._lacked = 0  # bytes that were missing when it was last said what is
        self._listener = Listener(session, hung_up=self._hung_up, stalled=self._stalled)

    def hear(self, wanted: str) -> Untrusted:
        """Send what is asked for until the node says a word."""
        while True:
            header, _ = self._listener.answer()
            self._answers += 1
            if self._answers > MOST_ANSWERS:
                raise self._senseless(f"{self._answers} answers, and it still does not hold the code")
            if "missing" in header:
                self._bring(self._named(header), header.text("untaken", 200))
            elif "stored" in header:
                self._pass_on(header.integer("port", 1, 65535))
            if wanted in header:
                return header

    def _bring(self, missing: frozenset[str], untaken: str) -> None:
        """Have what is missing brought: by another node, or by us where there is none or that went wrong."""
        size = sum(self.scan.manifest.blobs[sha].size for sha in missing)
        first, lacked, self._lacked = self._lacked == 0, self._lacked, size
        if untaken and self._passing is not None and self._giver is not None:
            self.taken += lacked - size
            self._passing.release(self.node, untaken)
        if missing and first and self._passing is not None:
            giver = self._passing.find(self.node, size)
            if giver is not None:
                self._giver = giver
                where = {"address": giver.address, "port": giver.port, "token": self._passing.token}
                self.session.send({"take": where})
                return
        self._rounds += bool(missing)
        if self._rounds > ATTEMPTS:
            raise self._senseless(f"it asked for contents {self._rounds} times")
        self.send_contents(missing)

    def _pass_on(self, port: int | None) -> None:
        """All contents are there: the giver is free again, and this node may give them on."""
        if self._passing is None:
            return
        if self._giver is not None and not self.sent:
            self.taken += self._lacked
        self._passing.release(self.node)
        if port is not None:
            self._passing.join(self.node, port)
        self._passing.leave(self.node)

    def _hung_up(self) -> ConnectionLost:
        return ConnectionLost("the node hung up during the sync", code="CC-SYNC-008", node=self.node)

    def _stalled(self, what: str) -> SyncError:
        return SyncError(
            what,
            code="CC-SYNC-012",
            node=self.node,
            fix="the file system of the node's work directory hangs; look at it, or set another `workdir`",
        )

    def _counted(self, header: Untrusted) -> tuple[int, int]:
        files, size = header.integer("files", 0), header.integer("bytes", 0)
        if files is None or size is None:
            raise self._senseless("it does not tell how many files and bytes it holds")
        return files, size

    def _named(self, header: Untrusted) -> frozenset[str]:
        """Read what the node lacks, each content as often as it may be lost and asked for again."""
        blobs = self.scan.manifest.blobs
        missing = frozenset(header.texts("missing", len(blobs) + 1, SHA))
        if not header.is_list("missing") or len(missing) != header.length("missing"):
            raise self._senseless("what it lacks is no list of contents")
        unknown = missing - blobs.keys()
        if unknown:
            raise self._senseless(f"it asks for {min(unknown)[:NAMED]}, which is not in the tree")
        return missing

    def _senseless(self, evidence: str) -> SyncError:
        return SyncError(
            "the node's answer makes no sense",
            code="CC-SYNC-008",
            node=self.node,
            evidence=evidence,
            fix="launch again; if it stays so, please report it",
        )

    def send_contents(self, missing: Collection[str]) -> None:
        """Send some contents, and say that this was all."""
        for shipment in self.scan.contents.shipments(missing):
            self.session.send(shipment.header, shipment.body)
            self.sent += shipment.size
            self.progress(shipment.size)
        if missing:
            self.session.send({"done": True})

    def judge(self, header: Untrusted) -> Synced:
        if header.text("tree") == self.scan.manifest.hash:
            giver = self._giver.node if self._giver and self.taken else ""
            return Synced(self.scan.manifest.hash, *self._counted(header), self.sent, self.taken, giver)
        odd = ", ".join(header.texts("differs", MOST_DIFFERING, 300))
        raise SyncError(
            "the code on the node is not the code that is here" + (f"; it differs in: {odd}" if odd else ""),
            code="CC-SYNC-003",
            node=self.node,
            evidence=f"tree here {self.scan.manifest.hash}, there {header.text('tree', SHA)}",
            fix="look at the file system of the node's work directory: it does not keep what is written",
        )
