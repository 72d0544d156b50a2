"""Bringing the source tree to one node: only what it lacks, and proof that it arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clusterctl.errors import ConnectionLost, SyncError
from clusterctl.runs.source import ScanResult
from clusterctl.runs.turns import Turns

START = 90.0  # seconds until the first word; the interpreter may come from a cold network home
SILENCE = 20.0  # seconds; after that the node says something every 2 s
STALL = 300.0  # seconds without a step of work on the node, which may copy a large file to a slow disk

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
    session: Channel,
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


@dataclass
class _Transfer:
    session: Channel
    scan: ScanResult
    node: str
    progress: Callable[[int], None]
    sent: int = 0
    heard: bool = False

    def answer(self) -> Mapping[str, Any]:
        """Wait for an answer; the node's beats are heard, and must tell of progress."""
        steps: object = None
        since = time.monotonic()
        while True:
            frame = self.session.receive(SILENCE if self.heard else START)
            self.heard = True
            if frame is None:
                raise ConnectionLost("the node hung up during the sync", code="CC-SYNC-008", node=self.node)
            header = frame[0]
            if "beat" not in header:
                return header
            if header.get("steps") != steps:
                steps, since = header.get("steps"), time.monotonic()
            elif time.monotonic() - since > STALL:
                raise self._stalled()

    def hear(self, wanted: str) -> Mapping[str, Any]:
        """Send what is asked for until the node says a word."""
        while True:
            header = self.answer()
            if wanted in header:
                return header
            if "missing" in header:
                self.send_contents(header["missing"])

    def _stalled(self) -> SyncError:
        return SyncError(
            f"nothing moved on the node for {STALL:.0f} s",
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
