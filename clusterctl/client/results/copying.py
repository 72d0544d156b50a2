"""Files for nodes: those of this machine, and those that another node gives (`cp`)."""

from __future__ import annotations

import os
import posixpath
import stat
import threading
import zlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clusterctl.client.results.file_receiver import ListingProgress, Pace, decompress, protocol_error
from clusterctl.client.rpc.session import (
    FIRST_ANSWER_LIMIT,
    MAX_ANSWER_TIME,
    Interpreter,
    ReplyReader,
    Session,
)
from clusterctl.client.sync.contents import (
    Contents,
    Shipment,
    hash_stable_file,
    render_listing,
    unreadable,
)
from clusterctl.client.sync.scan import THREADS, ScanResult
from clusterctl.errors import ConnectionLost, NodeError, UsageError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.copy import EXECUTABLE, PLAIN, GivenTree, parse_given
from clusterctl.plans.sync.manifest import MOST_FILES, Manifest, decode_name, make_manifest
from clusterctl.plans.sync.received_names import MAX_NAMES
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.protocol.untrusted import Untrusted, parse_json
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from fabric import Connection

    from clusterctl.protocol.messages.copying import CopyRequest, Offer
    from clusterctl.protocol.messages.verbs import Blob, Blobs

LARGEST_BATCH = 4 << 20  # bytes of a batch of rows, unpacked
MOST_VALUES = 6000  # in a batch of a thousand rows
LARGEST_PIECE = 2 << 20  # bytes of contents in one frame
MOST_GROUPED = 5000  # contents in one frame
SHA_LENGTH = 64


@dataclass(frozen=True)
class CopyOrder:
    """What a node is to do: `sources` are paths there with the names under which they are listed."""

    do: Literal["send", "give", "take"]
    sources: Sequence[tuple[str, str]]
    run_id: str = ""
    folder: bool = False
    overwrite: bool = False
    private: bool = False
    provide: Offer | None = None


def open_copy(c: Connection, node: Node, interpreter: Interpreter, order: CopyOrder) -> Session:
    """Open a conversation about files on a node."""
    request: CopyRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": order.run_id,
        "do": order.do,
        "sources": [list(source) for source in order.sources],
        "most": MOST_FILES,
        "folder": order.folder,
        "overwrite": order.overwrite,
        "private": order.private,
        "provide": order.provide,
    }
    return Session(c, "copy", request, interpreter)


@dataclass(frozen=True)
class FilesToSend:
    """A tree that nodes take: access to its contents, and whether only the account may read it there."""

    scan: ScanResult
    private: bool


def scan_files(source: str, name: str) -> FilesToSend:
    """Walk and hash a file or a directory of this machine; nothing is left out but what is no file.

    With a name all paths begin with it. UsageError if there is nothing, SyncError for what cannot be read.
    """
    decode_name(os.fsencode(name))  # refused like any name below it
    try:
        top = Path(source).expanduser().resolve(strict=True)
        is_folder = top.is_dir()
    except (OSError, RuntimeError) as error:
        raise UsageError("CC-COPY-002", "here", path=source, reason=describe_system_error(error)) from None
    root = os.fsencode(top if is_folder else top.parent)
    found = _Walk(root)
    if is_folder:
        found.walk("")
    else:
        found.add(decode_name(os.fsencode(top.name)), top.lstat())
    if len(found.files) > MOST_FILES:
        raise UsageError("CC-SYNC-002", "files", count=len(found.files), most=MOST_FILES)
    with ThreadPoolExecutor(THREADS, "hash") as pool:
        hashed = pool.map(lambda path: hash_stable_file(root, path), found.files)
        files = [_file_entry(path, *result) for path, result in zip(found.files, hashed, strict=True)]
    private = any(not file_stat.st_mode & 0o077 for file_stat in found.stats)
    manifest = make_manifest([*found.others, *files])
    prefix = f"{name}/" if name else ""
    shown = [
        replace_path(entry, (prefix + entry.path) if is_folder else name or entry.path)
        for entry in manifest.entries
    ]
    if is_folder and name and not shown:
        shown = [TreeEntry(name, "dir", 0, "")]
    contents = RenamedContents(root, manifest, make_manifest(shown))
    return FilesToSend(
        ScanResult(make_manifest(shown), tuple(found.warnings), Path(os.fsdecode(root)), contents), private
    )


def replace_path(entry: TreeEntry, path: str) -> TreeEntry:
    """Return an entry under another path."""
    return entry._replace(path=path)


def _file_entry(path: str, file_stat: os.stat_result, sha: str) -> TreeEntry:
    return TreeEntry(
        path, "file", EXECUTABLE if file_stat.st_mode & stat.S_IXUSR else PLAIN, sha, file_stat.st_size
    )


class RenamedContents(Contents):
    """Contents of this machine, which nodes know under other names."""

    def __init__(self, root: bytes, manifest: Manifest, shown: Manifest) -> None:
        super().__init__(root, manifest)
        self._shown = shown

    def _render_listing(self) -> bytes:
        return render_listing(self._shown)


class _Walk:
    """Files, links and empty directories below a root."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self.files: list[str] = []
        self.stats: list[os.stat_result] = []
        self.others: list[TreeEntry] = []
        self.warnings: list[str] = []

    def walk(self, top: str) -> None:
        """Go through a directory and those below."""
        pending = [top]
        while pending and len(self.files) <= MOST_FILES:
            folder = pending.pop()
            try:
                with os.scandir(posixpath.join(self._root, folder.encode())) as scanner:
                    entries = sorted(scanner, key=lambda entry: entry.name)
            except OSError as error:
                raise unreadable(folder or ".", error) from None
            if folder and not entries:
                self.others.append(TreeEntry(folder, "dir", 0, ""))
            for entry in entries:
                name = decode_name(entry.name)
                path = f"{folder}/{name}" if folder else name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                else:
                    self.add(path, entry.stat(follow_symlinks=False))

    def add(self, path: str, file_stat: os.stat_result) -> None:
        """Note what is no directory."""
        if stat.S_ISREG(file_stat.st_mode):
            self.files.append(path)
            self.stats.append(file_stat)
        elif stat.S_ISLNK(file_stat.st_mode):
            target = decode_name(os.readlink(posixpath.join(self._root, path.encode())))  # noqa: PTH115 - a name in bytes
            self.others.append(TreeEntry(path, "link", 0, target))
        else:
            self.warnings.append(tr("{path} is not a file, link or directory: not sent", path=path))


class GivingNode:
    """A node that gives files: what it lists, where others fetch them, and contents that are passed on from here."""

    def __init__(self, session: Session, node: str, names: Sequence[str]) -> None:
        """Receive the list; NodeError for one that is malformed."""
        self.session, self.node = session, node
        self._reader = ReplyReader(
            session,
            on_closed=lambda: ConnectionLost("CC-PULL-003", "closed", node=node),
            on_stalled=lambda case, limit: NodeError("CC-PULL-006", case, node=node, limit=limit),
            first_limit=FIRST_ANSWER_LIMIT,
        )
        self._unread: Iterator[Shipment] = iter(())  # of what was requested last
        self.tree = self._receive_tree(names)
        self.manifest = make_manifest(self.tree.entries)

    def provide(self, offer: Offer) -> int | None:
        """Let the node give its files to others; returns the port."""
        self.session.send({"provide": offer})
        header, _ = self._reader.receive()
        return header.integer("provided", 1, 65535)

    def fetch(self, hashes: Collection[str]) -> Iterator[Shipment]:
        """Give contents as they come; what was requested before and is not read is read away only now."""
        for _ in self._unread:
            pass
        self._unread = self._receive_contents(hashes)
        return self._unread

    def _receive_contents(self, hashes: Collection[str]) -> Iterator[Shipment]:
        """Yield contents; no more than was requested is taken."""
        self.session.send({"hashes": sorted(hashes)})
        remaining, expected = sum(self.manifest.blobs[sha].size for sha in hashes), set(hashes)
        pace = Pace(self.node, self._reader)
        while True:
            lacking = len(expected)
            header, body = pace.receive()
            if header.flag("done"):
                return
            shipment = self._parse_shipment(header, body, expected)
            remaining -= shipment.size
            if remaining < 0:
                raise protocol_error(self.node, tr("more data than allowed"))
            pace.on_received(shipment.size, lacking - len(expected))
            yield shipment

    def _receive_tree(self, names: Sequence[str]) -> GivenTree:
        rows: list[object] = []
        name_bytes = 0
        progress = ListingProgress(self.node, MAX_ANSWER_TIME)  # it hashes what it lists
        while True:
            header, body = self._reader.receive()
            if header.flag("more"):
                raise self._too_many()
            if "listed" in header:
                break
            if "rows" not in header:
                raise protocol_error(self.node, tr("an answer that was not requested"))
            try:
                text = decompress(body, LARGEST_BATCH)
                batch = parse_json(text, LARGEST_BATCH, MOST_VALUES)
            except (ValueError, zlib.error) as error:
                raise protocol_error(self.node, str(error)) from error
            if not isinstance(batch, list):
                raise protocol_error(self.node, tr("an answer that was not requested"))
            progress.on_batch(len(batch), len(text))
            rows += batch
            name_bytes += len(text)
            if len(rows) > MOST_FILES or name_bytes > 4 * MAX_NAMES:
                raise self._too_many()
        try:
            return parse_given(rows, names)
        except (ValueError, TypeError) as error:
            raise protocol_error(self.node, str(error)) from error

    def _too_many(self) -> NodeError:
        excess = tr("more than {limit} files", limit=MOST_FILES)
        return NodeError("CC-PULL-001", node=self.node, excess=excess)

    def _parse_shipment(self, header: Untrusted, body: bytes, expected: set[str]) -> Shipment:
        """Read a frame of contents; each that is whole is `expected` no more, so that no stream is endless."""
        try:
            size = len(decompress(body, LARGEST_PIECE))
        except zlib.error as error:
            raise protocol_error(self.node, str(error)) from error
        if "blobs" in header:
            pairs = [
                (row.text(0, SHA_LENGTH), row.integer(1, 0) or 0)
                for row in header.rows("blobs", MOST_GROUPED)
            ]
            names = {sha for sha, _ in pairs}
            if names and names <= expected:
                expected -= names
                group: Blobs = {"blobs": [[sha, count] for sha, count in pairs]}
                return Shipment(group, body, size)
        sha = header.text("blob", SHA_LENGTH)
        if sha not in expected or not size:
            raise protocol_error(self.node, tr("an answer that was not requested"))
        part: Blob = {"blob": sha, "part": 0, "last": header.flag("last")}
        if part["last"]:
            expected.discard(sha)
        return Shipment(part, body, size)


class RelayedContents(Contents):
    """Contents of another node, fetched from it while they are sent on; for one receiver at a time."""

    def __init__(self, giving: GivingNode, manifest: Manifest) -> None:
        super().__init__(b"", manifest)
        self._giving = giving
        self._turn = threading.Lock()

    def shipments(self, missing: Collection[str]) -> Iterator[Shipment]:
        """Yield what a node lacks; what a receiver that fails has left, only the next one has to read away."""
        with self._turn:
            for shipment in self._giving.fetch(missing):  # noqa: UP028 - `yield from` would end it, too
                yield shipment


def relayed(giving: GivingNode, manifest: Manifest) -> FilesToSend:
    """Return what a node gives, or a part of it, as a tree for other nodes."""
    return FilesToSend(
        ScanResult(manifest, (), Path(), RelayedContents(giving, manifest)), giving.tree.private
    )
