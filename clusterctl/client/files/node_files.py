"""Files of one node: what it lists, what is fetched of it and passed on; all that it sends is read and bounded here."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.rpc.frames import Frame, sync_limits
from clusterctl.client.rpc.session import (
    FIRST_ANSWER_LIMIT,
    MAX_ANSWER_TIME,
    Interpreter,
    ReplyReader,
    Session,
    SessionLimits,
)
from clusterctl.client.sync.contents import NOTHING_HELD, Contents, HeldPart, Shipment, changed
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.sync.listed_files import (
    ROW_VALUES,
    FileSource,
    ListedEntry,
    OutsideFiles,
    RelayPlan,
    Stamp,
    parse_listing,
    parse_outside,
)
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.untrusted import Untrusted, parse_rows
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.contents import Blob, Offer
    from clusterctl.protocol.messages.verbs import ListRequest, TakeRequest

MAX_BATCH = 4 << 20  # bytes of a batch of rows, unpacked; a node sends 1 MiB and a row
MAX_ROWS = 1000  # in a batch
MAX_MARK = 64  # characters
MAX_PIECE = 1 << 20  # bytes
FILES_PER_REQUEST = 200  # files that are requested together
# A node's list comes in full batches, all of them in time: it has an end.
FULL_BATCH = 1000  # rows of a node's list that are sent together
FULL_BATCH_BYTES = 150_000  # of fewer rows with long names
MAX_SHORT_BATCHES = 8  # an honest node sends one, the last
MAX_LISTING_TIME = 3600.0  # seconds for all of it, unless each file is hashed

PATIENCE = 600.0  # seconds that a node may keep us waiting beyond what it needs at the slowest speed
SLOWEST = 4096  # bytes in a second; a line that takes 20 s for a piece of 256 KiB has lost its node already
FILE_TIME = 1.0  # seconds in which a node sends any file, however small
HASHED = 1 << 20  # bytes in a second that a node hashes of what is here before


@dataclass(frozen=True)
class NodeListing:
    """What a node has, as it reports.

    `mark` is that of the first node that came to its work directory, by which nodes that share it are known;
    `workdir_id` is the directory's lasting id. `outside` is what the run has left outside the output directory,
    whether it is among the entries or not.
    """

    entries: tuple[ListedEntry, ...]
    mark: str
    workdir_id: str
    outside: OutsideFiles | None = None


@dataclass(frozen=True)
class FileRequest:
    """A file to request: how much of it is here, and whether its data or only its hash is needed.

    `is_partial`: what is here is a part that arrived before, not the file of that name; `local_stamp` is the latter's
    stamp.
    """

    entry: ListedEntry
    offset: int = 0
    sha256: str = ""
    data: bool = True
    is_partial: bool = False
    local_stamp: Stamp | None = None


@dataclass(frozen=True)
class Piece:
    """A part of a file's content; `packed` is how it came, if it was compressed."""

    request: FileRequest
    at: int
    data: bytes
    packed: bytes = b""


@dataclass(frozen=True)
class FileEnd:
    """All of a file was sent: its hash and size, and whether it was left unchanged meanwhile; or why it was not."""

    request: FileRequest
    sha256: str
    is_whole: bool
    same: bool
    problem: str = ""


class NodeFiles:
    """A conversation with a node about its files."""

    def __init__(self, session: Session, node: str) -> None:
        self.node = node
        self._session = session
        self._reader = ReplyReader(
            session,
            on_closed=lambda: ConnectionLost("CC-PULL-003", "closed", node=node),
            on_stalled=lambda case, limit: NodeError("CC-PULL-006", case, node=node, limit=limit),
            first_limit=FIRST_ANSWER_LIMIT,
        )
        self._pace = Pace(node, self._reader)
        self._unread: Iterator[Piece | FileEnd] = iter(())  # of what was requested last
        self._stopped = False

    def __enter__(self) -> NodeFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation."""
        self._session.close()

    def receive_listing(
        self, sources: Sequence[FileSource], most: int, most_name_bytes: int, *, hashed: bool = False
    ) -> NodeListing:
        """Return what a node has; NodeError for malformed data, too many files or too many bytes of names."""
        entries: list[ListedEntry] = []
        name_bytes, began, short_batches = 0, time.monotonic(), 0
        limit = MAX_ANSWER_TIME if hashed else MAX_LISTING_TIME
        while True:
            header, body = self._reader.receive()
            if "rows" in header:
                batch, size = self._parse_batch(body, len(entries), sources)
                short_batches += len(batch) < FULL_BATCH and size < FULL_BATCH_BYTES
                if short_batches > MAX_SHORT_BATCHES:
                    raise protocol_error(self.node, tr("a list that does not end"))
                if time.monotonic() - began > limit:
                    raise NodeError("CC-PULL-006", "unanswered", node=self.node, limit=limit / 3600)
                entries += batch
                name_bytes += sum(_count_name_bytes(entry) for entry in batch)
            elif "listed" not in header:
                raise protocol_error(self.node, tr("an answer that was not requested"))
            if name_bytes > most_name_bytes:
                excess = tr("too many bytes of file names")
                raise NodeError("CC-PULL-001", node=self.node, excess=excess)
            if len(entries) > most or header.flag("more"):
                excess = tr("more than {limit} files", limit=most)
                raise NodeError("CC-PULL-001", node=self.node, excess=excess)
            if "rows" not in header:
                outside = parse_outside(header.record("outside"))
                mark, workdir_id = (header.text(key, MAX_MARK) for key in ("mark", "workdir_id"))
                return NodeListing(tuple(entries), mark, workdir_id, outside)

    def _parse_batch(
        self, body: bytes, start: int, sources: Sequence[FileSource]
    ) -> tuple[list[ListedEntry], int]:
        try:
            text = decompress(body, MAX_BATCH)
            rows = parse_rows(text, MAX_BATCH, MAX_ROWS * (ROW_VALUES + 1) + 1)
            return list(parse_listing(rows, start, sources)), len(text)
        except (ValueError, zlib.error) as error:
            raise protocol_error(self.node, str(error)) from error

    def provide(self, offer: Offer) -> int | None:
        """Have the node give its files to others; returns the port."""
        self._session.send({"provide": offer})
        header, _ = self._reader.receive()
        return header.integer("provided", 1, 65535)

    def fetch(self, requests: Sequence[FileRequest]) -> Iterator[Piece | FileEnd]:
        """Yield pieces of files as they come, and the end of each; NodeError for what was not announced.

        What was requested together before, and was not read, is read only now.
        """
        self._stopped = True
        for _ in self._unread:
            pass
        self._stopped = False
        self._unread = self._receive_files(iter(requests))
        return self._unread

    def _receive_files(self, remaining: Iterator[FileRequest]) -> Iterator[Piece | FileEnd]:
        while not self._stopped and (batch := list(islice(remaining, FILES_PER_REQUEST))):
            self._session.send(
                {"fetch": [[one.entry.index, one.offset, one.sha256, one.data] for one in batch]}
            )
            for request in batch:
                yield from self._receive_file(request)
            if not self._pace.receive()[0].flag("fetched"):
                raise protocol_error(self.node, tr("an answer that was not requested"))

    def _receive_file(self, request: FileRequest) -> Iterator[Piece | FileEnd]:
        """Receive one file: pieces one after the other, which are not empty, and all together not larger than it."""
        index, position = request.entry.index, None
        while True:
            header, body = self._pace.receive(request.offset if position is None else 0)
            if header.integer("file") == index:
                piece = self._parse_piece(request, position, header, body)
                position = piece.at + len(piece.data)
                self._pace.on_received(len(piece.data))
                yield piece
                continue
            self._pace.on_received(0, files=1)
            if header.integer("whole") == index:
                is_whole = header.integer("size") == request.entry.size
                yield FileEnd(request, header.text("sha256", 64), is_whole, header.flag("same"))
            elif header.integer("failed") == index:
                why = translate_node_text(header.text("why", 200))
                yield FileEnd(request, "", False, False, tr("the node could not read it: {why}", why=why))
            else:
                raise protocol_error(self.node, tr("an answer that was not requested"))
            return

    def _parse_piece(
        self, request: FileRequest, position: int | None, header: Untrusted, body: bytes
    ) -> Piece:
        is_packed, at = header.flag("packed"), header.integer("at")
        try:
            data = decompress(body, MAX_PIECE) if is_packed else body
        except zlib.error as error:
            raise protocol_error(self.node, str(error)) from error
        expected = (0, request.offset) if position is None else (position,)
        size = request.entry.size
        if at is None or at not in expected or not (request.data and 0 < len(data) <= size - at):
            detail = tr("{path}: a piece of the wrong size or position", path=request.entry.path)
            raise protocol_error(self.node, detail)
        return Piece(request, at, data, body if is_packed else b"")


def list_request(
    node: Node,
    sources: Sequence[FileSource],
    most: int,
    *,
    run_id: str = "",
    hashed: bool = False,
    shared_home: tuple[str, str] = ("", ""),
) -> ListRequest:
    """Return what is asked of a node; `shared_home`: a file that all nodes try to make, and this one's own mark."""
    probe, mark = shared_home
    return {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "sources": [[source.kind, source.path] for source in sources],
        "most": most,
        "hashed": hashed,
        "shared_home_probe": probe,
        "mark": mark,
    }


def open_node_files(
    c: Any,
    interpreter: Interpreter,
    request: ListRequest,
    sources: Sequence[FileSource],
    most_name_bytes: int,
) -> tuple[NodeFiles, NodeListing]:
    """Have a node list files; the conversation stays open for what is fetched of them."""
    files = NodeFiles(Session(c, "files", request, interpreter), request["node"])
    try:
        hashed = request["hashed"]
        return files, files.receive_listing(sources, request["most"], most_name_bytes, hashed=hashed)
    except BaseException:
        files.close()
        raise


def _count_name_bytes(entry: ListedEntry) -> int:
    return 4 * (len(entry.path) + (len(entry.content) if entry.kind == "link" else 0))


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Decompress; zlib.error beyond a limit."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(body, max_bytes)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise zlib.error(tr("more data than allowed"))
    return data


class Pace:
    """Bounds how slowly a node can send what it has announced: waiting uses time up, what arrives gives it back."""

    def __init__(self, node: str, reader: ReplyReader) -> None:
        self._node, self._reader = node, reader
        self._left, self._spare, self._last = PATIENCE, 0.0, 0.0

    def receive(self, hashed: int = 0) -> Frame:
        """Wait for an answer, before which the node hashes so many bytes; NodeError if it has been too slow."""
        self._spare, self._last = hashed / HASHED, time.monotonic()
        frame = self._reader.receive(lambda _: self._charge())
        self._charge()
        return frame

    def _charge(self) -> None:
        """Count the time since the last answer or beat; more than this it is only where this process was halted."""
        now = time.monotonic()
        waited, self._last = min(now - self._last, SILENCE_LIMIT), now
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


def open_taking(c: Any, interpreter: Interpreter, request: TakeRequest, manifest: Manifest) -> Session:
    """Open a conversation in which a node takes files; it names all contents that it lacks in one frame."""
    limits = SessionLimits(frames=sync_limits(len(manifest.blobs)))
    return Session(c, "take", request, interpreter, limits=limits)


class RelayedContents(Contents):
    """Contents of another node, fetched from it while they are sent on; for one receiver at a time."""

    def __init__(self, files: NodeFiles, sources: Mapping[str, ListedEntry], manifest: Manifest) -> None:
        super().__init__(b"", manifest)
        self._files, self._sources = files, sources
        self._turn = threading.Lock()

    def shipments(
        self, missing: Collection[str], held: Mapping[str, HeldPart] = NOTHING_HELD
    ) -> Iterator[Shipment]:
        """Yield what a node lacks; what a receiver that fails has left, only the next one has to read away.

        A file that the node cannot send is left out, and the receiver reports it. SyncError if one has changed since it
        was listed: its end is not sent.
        """
        requests = [FileRequest(self._sources[sha], *held.get(sha, ())) for sha in sorted(missing)]
        end: list[Shipment] = []
        with self._turn:
            for arrived in self._files.fetch(requests):
                entry = arrived.request.entry
                if isinstance(arrived, FileEnd):
                    if not arrived.problem and (not arrived.is_whole or arrived.sha256 != entry.content):
                        raise changed(f"{self._files.node}:{entry.path}")
                    if arrived.is_whole and not entry.size:
                        end.append(Shipment(_header(entry.content, 0, last=True), zlib.compress(b""), 0))
                    yield from end
                    end = []
                    continue
                last = arrived.at + len(arrived.data) == entry.size
                body = arrived.packed or zlib.compress(arrived.data, 0)
                shipment = Shipment(_header(entry.content, arrived.at, last=last), body, len(arrived.data))
                if last:
                    end = [shipment]
                else:
                    yield shipment


def _header(sha: str, at: int, *, last: bool) -> Blob:
    return {"blob": sha, "at": at, "last": last}


def relayed(files: NodeFiles, plan: RelayPlan, manifest: Manifest) -> ScanResult:
    """Return what a node gives, or a part of it, as a tree for other nodes."""
    return ScanResult(manifest, (), Path(), RelayedContents(files, plan.sources, manifest), plan.private)
