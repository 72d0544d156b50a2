"""One file: part, hash, install."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clusterctl.client.results.target_dir import (
    DISK_FULL_ERRNOS,
    PathOccupiedError,
    TargetDirectory,
    write_refused,
)
from clusterctl.client.rpc.frames import Frame
from clusterctl.client.rpc.session import ANSWER_SILENCE_LIMIT, ReplyReader
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import NodeError
from clusterctl.node_texts import describe_system_error, translate_node_text
from clusterctl.plans.sync.received_names import OutputEntry, RefusedEntry, Stamp
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import tr

LARGEST_PART = 1 << 20
CHUNK = 1 << 20


@dataclass(frozen=True)
class FileRequest:
    """A file to request: how much of it is here, and whether its data or only its hash is needed.

    `is_partial`: what is here is a part that arrived before, not the file of that name; `local_stamp` is the latter's
    stamp.
    """

    entry: OutputEntry
    offset: int = 0
    sha256: str = ""
    data: bool = True
    is_partial: bool = False
    local_stamp: Stamp | None = None


@dataclass
class PullReport:
    """What became of a node's files."""

    files: int = 0
    bytes: int = 0
    unchanged: int = 0
    kept: list[str] = field(default_factory=list)  # changed here, so left alone
    changing: list[str] = field(default_factory=list)  # written to while they were read
    refused: list[RefusedEntry] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether the node had nothing at all."""
        return not (self.files or self.unchanged or self.kept or self.refused)


class FileReceiver:
    """One file on its way."""

    def __init__(
        self,
        request: FileRequest,
        target: TargetDirectory,
        report: PullReport,
        node: str,
        on_bytes: Callable[[int], None],
    ) -> None:
        self.request = request
        self._target, self._report, self._node, self._on_bytes = target, report, node, on_bytes
        self._partial = target.partial_name(request.entry)
        self._descriptor = -1
        self._digest: Any = None
        self._size = 0
        self._received = 0  # bytes, also of what cannot be written here
        self._error = ""

    def on_data(self, header: Untrusted, body: bytes) -> None:
        """Write a piece; an empty one is an error, since the transfer would never end."""
        entry = self.request.entry
        try:
            data = decompress(body, LARGEST_PART) if header.flag("packed") else body
        except zlib.error as error:
            raise protocol_error(self._node, str(error)) from error
        self._received += len(data)
        if not data or self._received > entry.size:
            raise self._wrong_piece()
        self._on_bytes(len(data))
        if self._error:
            return
        try:
            if self._descriptor < 0:
                self._open(header.integer("at"))
            if (
                header.integer("at") != self._size
                or self._size + len(data) > entry.size
                or not self.request.data
            ):
                raise self._wrong_piece()
            _write_all(self._descriptor, data)
        except (OSError, PathOccupiedError) as error:
            self._on_error(error)
            return
        self._digest.update(data)
        self._size += len(data)

    def _wrong_piece(self) -> NodeError:
        detail = tr("{path}: a piece of the wrong size or position", path=self.request.entry.path)
        return protocol_error(self._node, detail)

    def _open(self, offset: int | None) -> None:
        """Begin at the start, or continue where the local file ends."""
        resumed = offset == self.request.offset and self.request.offset > 0
        truncate = 0 if resumed and self.request.is_partial else os.O_TRUNC
        self._descriptor = self._target.open_partial(self._partial, os.O_RDWR | os.O_CREAT | truncate)
        if resumed and not self.request.is_partial:
            self._copy_existing()
        self._digest = hash_descriptor(self._descriptor)
        self._size = os.fstat(self._descriptor).st_size

    def _copy_existing(self) -> None:
        """Begin with the file that was downloaded before, which is the beginning of the new one."""
        with self._target.open_file(self.request.entry.path) as source:
            remaining = self.request.offset
            while remaining and (data := os.read(source, min(CHUNK, remaining))):
                _write_all(self._descriptor, data)
                remaining -= len(data)

    def finish(self, header: Untrusted) -> None:
        """Install the file if it has the size and hash that the node reports."""
        entry = self.request.entry
        try:
            if "failed" in header:
                why = translate_node_text(header.text("why", 200))
                self._report_refused(tr("the node could not read it: {why}", why=why))
            elif self._error:
                self._report_refused(self._error)
            elif header.integer("size") != entry.size:
                self._target.remove_partial(self._partial)
                self._report_refused(tr("it became shorter while it was read; pull again"))
            else:
                self._verify_and_install(header.text("sha256", 64))
                if not header.flag("same"):
                    self._report.changing.append(entry.path)
        except (OSError, PathOccupiedError) as error:
            self._on_error(error)
            self._report_refused(self._error)
        finally:
            self.close()

    def _verify_and_install(self, sha256: str) -> None:
        entry = self.request.entry
        if self._descriptor < 0 and self.request.offset == entry.size and sha256 == self.request.sha256 != "":
            self._accept_existing(sha256)
            return
        if not self.request.data:
            self._report.kept.append(entry.path)
            return
        if self._descriptor < 0:
            self._open(0)
        if self._digest.hexdigest() != sha256:
            self._target.remove_partial(self._partial)
            raise protocol_error(
                self._node, tr("{path}: the content does not match its hash", path=entry.path)
            )
        if self._install(sha256):
            self._report.bytes += entry.size

    def _accept_existing(self, sha256: str) -> None:
        """Nothing had to travel: what is here is what is there."""
        if self.request.is_partial:
            self._install(sha256)
            return
        entry, file_stat = self.request.entry, self._target.find(self.request.entry.path)
        if file_stat is not None and stamp_of(file_stat) == self.request.local_stamp:
            self._target.record(entry, sha256, file_stat)
            self._report.unchanged += 1
        else:
            self._report.kept.append(entry.path)

    def _install(self, sha256: str) -> bool:
        """Return the file its name, unless what has that name was changed here while it was on its way."""
        entry, target = self.request.entry, self._target
        file_stat = target.find(entry.path)
        if (file_stat and stamp_of(file_stat)) != self.request.local_stamp:
            self._report.kept.append(entry.path)
            return False
        target.install(self._partial, entry, sha256)
        self._report.files += 1
        return True

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            raise write_refused(error, self._target.path) from error
        self._error = describe_system_error(error)

    def _report_refused(self, reason: str) -> None:
        self._report.refused.append(RefusedEntry(self.request.entry.path, reason))

    def close(self) -> None:
        """Let go of the file; what has arrived of it stays for the next time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Decompress; zlib.error beyond a limit."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(body, max_bytes)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise zlib.error(tr("more data than allowed"))
    return data


FULL_BATCH = 1000  # rows of a node's list that are sent together
FULL_BATCH_BYTES = 150_000  # of fewer rows with long names
MOST_SHORT_BATCHES = 8  # an honest node sends one, the last
MAX_LISTING_TIME = 3600.0  # seconds


class ListingProgress:
    """Bounds how long a node can go on with its list: it comes in full batches, all of them within an hour."""

    def __init__(self, node: str, most_seconds: float = MAX_LISTING_TIME) -> None:
        self._node, self._most_seconds = node, most_seconds
        self._began = time.monotonic()
        self._short_batches = 0

    def on_batch(self, rows: int, size: int) -> None:
        """Count a batch of so many rows and bytes; NodeError for rows without end, or none."""
        if rows < FULL_BATCH and size < FULL_BATCH_BYTES:
            self._short_batches += 1
        if self._short_batches > MOST_SHORT_BATCHES:
            raise protocol_error(self._node, tr("a list that does not end"))
        if time.monotonic() - self._began > self._most_seconds:
            hours = self._most_seconds / 3600
            raise NodeError("CC-PULL-006", "unanswered", node=self._node, limit=hours)


PATIENCE = 600.0  # seconds that a node may keep us waiting beyond what it needs at the slowest speed
SLOWEST = 4096  # bytes in a second; a line that takes 20 s for a piece of 256 KiB has lost its node already
FILE_TIME = 1.0  # seconds in which a node sends any file, however small
HASHED = 1 << 20  # bytes in a second that a node hashes of what is here before


class Pace:
    """Bounds how slowly a node can send what it has announced: waiting uses time up, what arrives gives it back."""

    def __init__(self, node: str, reader: ReplyReader) -> None:
        self._node, self._reader = node, reader
        self._left, self._spare, self._last = PATIENCE, 0.0, 0.0

    def receive(self, hashed: int = 0) -> Frame:
        """Wait for an answer, before which the node hashes so many bytes; NodeError if it has been too slow."""
        self._spare, self._last = hashed / HASHED, time.monotonic()
        frame = self._reader.receive(self._charge)
        self._charge()
        return frame

    def _charge(self) -> None:
        """Count the time since the last answer or beat; more than this it is only where this process was halted."""
        now = time.monotonic()
        waited, self._last = min(now - self._last, ANSWER_SILENCE_LIMIT), now
        spared = min(waited, self._spare)
        self._spare -= spared
        self._left -= waited - spared
        if self._left < 0:
            raise NodeError("CC-PULL-006", "slow", node=self._node, rate=SLOWEST)

    def on_received(self, size: int, files: int = 0) -> None:
        """Count bytes that have arrived, and files that are whole."""
        self._left = min(PATIENCE, self._left + size / SLOWEST + files * FILE_TIME)


def protocol_error(node: str, detail: str) -> NodeError:
    """Report that a node does not keep to what it announced."""
    return NodeError("CC-PULL-003", node=node, evidence=detail)


def hash_descriptor(descriptor: int) -> Any:
    """Hash all of an open file, which then stands at its end."""
    digest = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data := os.read(descriptor, CHUNK):
        digest.update(data)
    return digest
