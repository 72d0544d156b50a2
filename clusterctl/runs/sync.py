"""Bringing the source tree to one node: only what it lacks, and proof that it arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.runs.conversation import Listener, Talk
from clusterctl.runs.source import ScanResult
from clusterctl.runs.turns import Turns


@dataclass(frozen=True)
class Synced:
    """What a node holds now, and how much had to be sent (bytes of file content)."""

    tree: str
    files: int
    bytes: int
    sent: int


def send_tree(
    session: Talk,
    scan: ScanResult,
    *,
    node: str,
    turns: Turns | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Synced:
    """Send the tree; `progress` is told the bytes of each piece that left.

    With `turns`, of the nodes that share a work directory one is sent what it lacks, and then the others look.
    Raises SyncError if the node cannot take it, or holds something else in the end (CC-SYNC-003).
    """
    transfer = _Transfer(session, scan, node, progress)
    session.send({"manifest": True}, scan.contents.listing)
    if turns is not None:
        with turns.take(str(transfer.hear("place")["place"])):
            session.send({"look": True})
            transfer.hear("stored")
    return transfer.judge(transfer.hear("tree"))


class _Transfer:
    def __init__(self, session: Talk, scan: ScanResult, node: str, progress: Callable[[int], None]) -> None:
        self.session, self.scan, self.node, self.progress = session, scan, node, progress
        self.sent = 0
        self._listener = Listener(session, hung_up=self._hung_up, stalled=self._stalled)

    def hear(self, wanted: str) -> Mapping[str, Any]:
        """Send what is asked for until the node says a word."""
        while True:
            header, _ = self._listener.answer()
            if wanted in header:
                return header
            if "missing" in header:
                self.send_contents(header["missing"])

    def _hung_up(self) -> ConnectionLost:
        return ConnectionLost("the node hung up during the sync", code="CC-SYNC-008", node=self.node)

    def _stalled(self, what: str) -> SyncError:
        return SyncError(
            what,
            code="CC-SYNC-012",
            node=self.node,
            fix="the file system of the node's work directory hangs; look at it, or set another `workdir`",
        )

    def send_contents(self, missing: Sequence[str]) -> None:
        unknown = set(missing) - self.scan.manifest.blobs.keys()
        if unknown:
            raise SyncError("the node asks for what is not in the tree", code="CC-SYNC-008", node=self.node)
        for shipment in self.scan.contents.shipments(set(missing)):
            self.session.send(shipment.header, shipment.body)
            self.sent += shipment.size
            self.progress(shipment.size)
        if missing:
            self.session.send({"done": True})

    def judge(self, header: Mapping[str, Any]) -> Synced:
        if header["tree"] == self.scan.manifest.hash:
            return Synced(header["tree"], int(header["files"]), int(header["bytes"]), self.sent)
        odd = ", ".join(str(path) for path in header.get("differs") or ())
        raise SyncError(
            "the code on the node is not the code that is here" + (f"; it differs in: {odd}" if odd else ""),
            code="CC-SYNC-003",
            node=self.node,
            evidence=f"tree here {self.scan.manifest.hash}, there {header['tree']}",
            fix="look at the file system of the node's work directory: it does not keep what is written",
        )
