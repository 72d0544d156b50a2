"""Bringing the source tree to one node: only what it lacks, and proof that it arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.runs.source import ScanResult

SILENCE = 120.0  # seconds; a working node says something every 2 s, but one slow fsync may take long

Frame = tuple[Mapping[str, Any], bytes]


class Channel(Protocol):
    """What is needed of a session: frames both ways; what the node reports as wrong is raised by either."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""

    def receive(self, timeout: float) -> Frame | None:
        """Wait for a frame; None at the end of the conversation."""


@dataclass(frozen=True)
class Synced:
    """What a node holds now, and how much had to be sent (bytes of file content)."""

    tree: str
    files: int
    bytes: int
    sent: int


def send_tree(
    session: Channel, scan: ScanResult, *, node: str, progress: Callable[[int], None] = lambda _: None
) -> Synced:
    """Send the tree; `progress` is told the bytes of each piece that left.

    Raises SyncError if the node cannot take it, or holds something else in the end (CC-SYNC-003).
    """
    transfer = _Transfer(session, scan, node, progress)
    session.send({"manifest": True}, scan.contents.listing)
    while True:
        header = transfer.answer()
        if "missing" in header:
            transfer.send_contents(header["missing"])
        elif "tree" in header:
            return transfer.judge(header)


@dataclass
class _Transfer:
    session: Channel
    scan: ScanResult
    node: str
    progress: Callable[[int], None]
    sent: int = 0

    def answer(self) -> Mapping[str, Any]:
        frame = self.session.receive(SILENCE)
        if frame is None:
            raise ConnectionLost("the node hung up during the sync", code="CC-SYNC-008", node=self.node)
        return frame[0]

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
