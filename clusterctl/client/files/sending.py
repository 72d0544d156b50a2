"""Files for nodes: those of this machine, and those that another node gives."""

from __future__ import annotations

import os
import posixpath
import stat
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.files.node_files import FileRequest, NodeFiles, Piece
from clusterctl.client.rpc.frames import sync_limits
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.client.sync.contents import (
    Contents,
    Shipment,
    hash_stable_file,
    render_listing,
    unreadable,
)
from clusterctl.client.sync.scan import THREADS, ScanResult
from clusterctl.errors import UsageError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.listed_files import EXECUTABLE, PLAIN, ListedEntry, RelayPlan
from clusterctl.plans.sync.manifest import MOST_FILES, Manifest, decode_name, make_manifest
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import Blob, TakeRequest


@dataclass(frozen=True)
class FilesToSend:
    """A tree that nodes take: access to its contents, and whether only the account may read it there."""

    scan: ScanResult
    private: bool


def open_taking(c: Any, interpreter: Interpreter, request: TakeRequest, manifest: Manifest) -> Session:
    """Open a conversation in which a node takes files; it names all contents that it lacks in one frame."""
    limits = SessionLimits(frames=sync_limits(len(manifest.blobs)))
    return Session(c, "files", request, interpreter, limits=limits)


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


class RelayedContents(Contents):
    """Contents of another node, fetched from it while they are sent on; for one receiver at a time."""

    def __init__(self, files: NodeFiles, sources: Mapping[str, ListedEntry], manifest: Manifest) -> None:
        super().__init__(b"", manifest)
        self._files, self._sources = files, sources
        self._turn = threading.Lock()

    def shipments(self, missing: Collection[str]) -> Iterator[Shipment]:
        """Yield what a node lacks; what a receiver that fails has left, only the next one has to read away.

        A file that the node cannot send is left out, and the receiver reports it.
        """
        requests = [FileRequest(self._sources[sha]) for sha in sorted(missing)]
        with self._turn:
            for arrived in self._files.fetch(requests):
                entry = arrived.request.entry
                if isinstance(arrived, Piece):
                    last = arrived.at + len(arrived.data) == entry.size
                    body = arrived.packed or zlib.compress(arrived.data, 0)
                    yield Shipment(_header(entry.content, last=last), body, len(arrived.data))
                elif not entry.size and arrived.is_whole:
                    yield Shipment(_header(entry.content, last=True), zlib.compress(b""), 0)


def _header(sha: str, *, last: bool) -> Blob:
    return {"blob": sha, "part": 0, "last": last}


def relayed(files: NodeFiles, plan: RelayPlan, manifest: Manifest) -> FilesToSend:
    """Return what a node gives, or a part of it, as a tree for other nodes."""
    contents = RelayedContents(files, plan.sources, manifest)
    return FilesToSend(ScanResult(manifest, (), Path(), contents), plan.private)
