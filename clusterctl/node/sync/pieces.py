"""Files of this node: how they are listed, and how one leaves in pieces, from where the receiver's part of it ends.

A row is [source, path, kind, size, mtime_ns, ctime_ns, inode, content, mode]. `source` is the number of what was asked
for, and `path` lies below it; empty is that itself. kind is file, link, dir (empty) or other. `content` is a link's
target, or a file's SHA-256 if that was asked for. Links are not followed. Names that are not UTF-8 have their odd bytes
as U+DC80 and up.

Not here: which files (node/verbs/files), and contents by their hash (files_by_hash, transfer).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from ..logs.truncation import Truncation
from ..runtime.heartbeat import Heartbeat

PART = 1 << 18
BATCH = 1000
LARGEST_BATCH = 1 << 20  # bytes of JSON, beyond which no further row joins
SAMPLE = 1 << 12

if TYPE_CHECKING:
    Row = List[Any]


class ListedFile(NamedTuple):
    """Where a row's file lies, and what was seen of it."""

    path: bytes
    status: Any  # os.stat_result, None for a directory
    truncation: Optional[Truncation] = None  # what is gone of a log
    sha256: str = ""  # of its content, if that was asked for


def walk(
    source: int,
    root: bytes,
    *,
    strict: bool = False,
    is_selected: Callable[[bytes], bool] = lambda _: True,
    describe: Callable[[bytes, Any], ListedFile] = ListedFile,
) -> Iterator[Tuple[Row, ListedFile]]:
    """Walk a directory without following links; `is_selected` chooses among the names at its top.

    With `strict`, a directory that cannot be read is an OSError; else it seems to be empty.
    """
    folders = [b""]
    while folders:
        folder = folders.pop()
        entries = list_entries(os.path.join(root, folder), strict=strict)
        if folder and not entries:
            yield folder_row(source, folder)
        for entry in entries:
            if not folder and not is_selected(entry.name):
                continue
            path = os.path.join(folder, entry.name)
            with suppress(OSError):  # it has just been removed
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                else:
                    file = describe(entry.path, status)
                    yield file_row(source, path, file), file


def list_entries(folder: bytes, *, strict: bool) -> List[Any]:
    """List a directory in order; without `strict`, nothing if it is gone or closed."""
    try:
        with os.scandir(folder) as scanner:
            return sorted(scanner, key=lambda entry: entry.name)
    except OSError:
        if strict:
            raise
        return []


def folder_row(source: int, path: bytes) -> Tuple[Row, ListedFile]:
    """Describe an empty directory."""
    return [source, decode_name(path), "dir", 0, 0, 0, 0, "", 0], ListedFile(b"", None)


def file_row(source: int, path: bytes, file: ListedFile) -> Row:
    """Describe what is no directory; OSError if it is a link that has just been removed."""
    status = file.status
    kind = "link" if stat.S_ISLNK(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "other"
    size, mode = (sent_size(file), status.st_mode & 0o777) if kind == "file" else (0, 0)
    target = os.readlink(file.path) if kind == "link" else b""
    times = [status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return [source, decode_name(path), kind, size, *times, decode_name(target), mode]


def decode_name(name: bytes) -> str:
    """Decode a name, whatever the locale."""
    return name.decode("utf-8", "surrogateescape")


def send_rows(
    rows: Iterator[Tuple[Row, ListedFile]], most: int, heartbeat: Heartbeat
) -> Tuple[List[ListedFile], bool]:
    """Send at most so many rows; returns where their files lie, and whether there are more."""
    files: List[ListedFile] = []
    batch: List[Row] = []
    size = 0
    for row, file in rows:
        if len(files) >= most:
            send_batch(heartbeat, batch)
            return files, True
        heartbeat.step()
        files.append(file)
        batch.append(row)
        # what JSON makes of odd names at the most
        size += 6 * sum(len(value) for value in row if isinstance(value, str)) + 100
        if len(batch) == BATCH or size > LARGEST_BATCH:
            send_batch(heartbeat, batch)
            batch, size = [], 0
    send_batch(heartbeat, batch)
    return files, False


def send_batch(heartbeat: Heartbeat, batch: List[Row]) -> None:
    """Send some rows."""
    heartbeat.send({"rows": len(batch)}, zlib.compress(json.dumps(batch).encode("ascii"), 1))


def send_file(
    heartbeat: Heartbeat, index: int, file: ListedFile, held: int, sha256: str, with_data: bool
) -> None:
    """Send a file, as long as it was when it was listed, and its hash, or why it cannot be read.

    The bytes that the receiver has held since an earlier time, with a hash, are not sent if they still begin the file.
    """
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "no longer a regular file")
            digest, size = hashlib.sha256(), sent_size(file)
            position = 0
            for at, data in read_pieces(
                heartbeat, descriptor, file, 0, min(held, size) if with_data else size
            ):
                digest.update(data)
                position = at + len(data)
            if with_data and held and digest.hexdigest() != sha256:
                digest, position = hashlib.sha256(), 0
            packer = Packer()
            for at, data in read_pieces(heartbeat, descriptor, file, position, size):
                digest.update(data)
                packed, body = packer.pack(data)
                heartbeat.send({"file": index, "at": at, "packed": packed}, body)
                position = at + len(data)
            same = file_stamp(os.fstat(descriptor)) == file_stamp(file.status)
        finally:
            os.close(descriptor)
        heartbeat.send({"whole": index, "sha256": digest.hexdigest(), "size": position, "same": same})
    except BrokenPipeError:
        raise
    except OSError as error:
        heartbeat.send({"failed": index, "why": str(error.strerror)})


def read_pieces(
    heartbeat: Heartbeat, descriptor: int, file: ListedFile, begin: int, end: int
) -> Iterator[Tuple[int, bytes]]:
    """Yield pieces of a file with their positions, as far as the file goes."""
    position = begin
    while position < end:
        data = read_at(descriptor, file.truncation, position, min(PART, end - position))
        if not data:
            return
        heartbeat.step()
        yield position, data
        position += len(data)


def read_at(descriptor: int, truncation: Optional[Truncation], position: int, most: int) -> bytes:
    """Read bytes of a file; a line stands for what is gone of a log."""
    if truncation is None:
        return os.pread(descriptor, most, position)
    note, beyond = gap_note(truncation), position - truncation.begin
    if beyond < 0:
        return os.pread(descriptor, min(most, -beyond), position)
    if beyond < len(note):
        return note[beyond : beyond + most]
    return os.pread(descriptor, most, truncation.end + beyond - len(note))


def file_stamp(status: os.stat_result) -> Tuple[int, int, int]:
    """Return what is unchanged while a file is not written to."""
    return status.st_size, status.st_mtime_ns, status.st_ino


class Packer:
    """Compresses a file's pieces as long as that is worth the time; checkpoints are dense."""

    def __init__(self) -> None:
        self._worthwhile: Optional[bool] = None

    def pack(self, data: bytes) -> Tuple[bool, bytes]:
        """Return whether the data is compressed, and the data."""
        if self._worthwhile is None:
            sample = data[:SAMPLE]
            self._worthwhile = len(zlib.compress(sample, 1)) < 0.7 * len(sample)
        if not self._worthwhile:
            return False, data
        body = zlib.compress(data, 1)
        if len(body) > 0.8 * len(data):
            self._worthwhile = False
        return True, body


def gap_note(truncation: Truncation) -> bytes:
    """Render the line that stands for what is gone of a log."""
    return b"[clusterctl: %d bytes of this log were dropped here to hold log_limit]\n" % (
        truncation.end - truncation.begin
    )


def sent_size(file: ListedFile) -> int:
    """Return how many bytes of a file there are to send."""
    size: int = file.status.st_size
    truncation = file.truncation
    return size - (truncation.end - truncation.begin) + len(gap_note(truncation)) if truncation else size
