"""Verb `pull`: lists a job's outputs and a run's logs, then sends what the client lacks.

PullRequest                                 the messages are defined in protocol/messages/verbs.py
node   RowsFrame, repeated, then Listed
client FetchFiles, as often as it wants; then it closes the session
node   FilePiece, repeated, from what the client has if that is right, else from 0; then FileWhole or FileFailed;
       after the last file Fetched

A row is [part, path, kind, size, mtime_ns, ctime_ns, inode, target]; part is "outputs", "logs" or "code" (what was not
sent, or was changed), kind is file, link, dir (empty) or other. Links are not followed. Names that are not UTF-8 have
their odd bytes as U+DC80 and up. `mark` is that of the node that was the first to write the client's file
`shared_home_probe`: nodes that share a home report the same one, and no other node can know it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Tuple, cast

from ....protocol.run_paths import RunPaths, WorkdirPaths, is_pulled_log
from ...logs.truncation import Truncation, read_truncation
from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import Stream
from ...state.run_record import run_dirs
from ...state.workdir import component, make_private, read_bytes
from ...sync.outside_files import find_outside, read_sent, summarise

if TYPE_CHECKING:
    from ....protocol.messages.files import OutsideSummary
    from ....protocol.messages.verbs import FetchFiles, PullRequest


def gap_note(truncation: Truncation) -> bytes:
    """Say what is missing where it is."""
    return b"[clusterctl: %d bytes of this log were dropped here to hold log_limit]\n" % (
        truncation.end - truncation.begin
    )


def truncation_in(path: bytes, status: os.stat_result) -> Optional[Truncation]:
    """Tell what is gone of a log."""
    truncation = read_truncation(os.fsdecode(path)) if path.endswith(b".log") else None
    return truncation if truncation is not None and truncation.end <= status.st_size else None


def sent_size(status: os.stat_result, truncation: Optional[Truncation]) -> int:
    """Give how much there is to send."""
    return (
        status.st_size
        if truncation is None
        else truncation.begin + len(gap_note(truncation)) + status.st_size - truncation.end
    )


class FileSource:
    """Reads on and on, as from one file; the caller closes the descriptor."""

    def __init__(self, descriptor: int, truncation: Optional[Truncation]) -> None:
        self.descriptor = descriptor
        self._truncation = truncation
        self._position = 0

    def read(self, most: int) -> bytes:
        """Take what comes next."""
        data = self._read(most)
        self._position += len(data)
        return data

    def rewind(self) -> None:
        """Begin again."""
        self._position = 0

    def _read(self, most: int) -> bytes:
        if self._truncation is None:
            return os.pread(self.descriptor, most, self._position)
        begin, note = self._truncation.begin, gap_note(self._truncation)
        beyond = self._position - begin
        if beyond < 0:
            return os.pread(self.descriptor, min(most, -beyond), self._position)
        if beyond < len(note):
            return note[beyond : beyond + most]
        return os.pread(self.descriptor, most, self._truncation.end + beyond - len(note))


PART = 1 << 18
BATCH = 1000
LARGEST_BATCH = 1 << 20  # bytes of JSON, beyond which no further row joins
SAMPLE = 1 << 12
STALE = 86400.0  # seconds after which such a file was left by a client that died

Row = List[Any]


class ListedFile(NamedTuple):
    """Where a row's file lies, and what was seen of it."""

    path: bytes
    status: Any  # os.stat_result, None for a directory
    truncation: Optional[Truncation] = None  # what is gone of a log


class FileRequest(NamedTuple):
    """What the client has of a file, and whether it wants the rest."""

    offset: int
    sha256: str
    data: bool


def run(request: PullRequest, stream: Stream) -> None:
    """Serve one client until it hangs up."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    with Heartbeat(stream) as heartbeat, shared_home_probe(workdir, request) as mark:
        send_requested(stream, heartbeat, send_rows(request, workdir, heartbeat, mark))


def send_requested(stream: Stream, heartbeat: Heartbeat, files: List[ListedFile]) -> None:
    """Send what the client requests of these files, until it hangs up."""
    while True:
        frame = stream.receive()
        if frame is None:
            return
        order = cast("FetchFiles", frame[0])
        for index, *fields in order["fetch"]:
            send_file(heartbeat, index, files[index], FileRequest(*fields))
        heartbeat.send({"fetched": True})


@contextmanager
def shared_home_probe(workdir: str, request: PullRequest) -> Iterator[str]:
    """Tell which node was first to write the client's file in this work directory; the session removes it."""
    mark, name = str(request.get("mark") or ""), request.get("shared_home_probe")
    if name is None or not mark or not os.path.isdir(workdir):
        yield mark
        return
    folder = make_private(WorkdirPaths(workdir).shared_home_probes)
    remove_stale(folder)
    path = os.path.join(folder, component(name))
    try:
        os.symlink(mark, path)  # made with what it says in one step, on network file systems too
    except FileExistsError:
        yield os.readlink(path)
        return
    try:
        yield mark
    finally:
        with suppress(OSError):
            os.unlink(path)


def remove_stale(folder: str) -> None:
    """Put out what a client that died has left."""
    oldest = time.time() - STALE
    with os.scandir(folder) as scanner:
        for entry in scanner:
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)


def send_rows(request: PullRequest, workdir: str, heartbeat: Heartbeat, mark: str) -> List[ListedFile]:
    """Send all rows, at most one more than the client wants; gives where their files lie."""
    files, more = send_batches(find_rows(request, workdir), int(request["most"]), heartbeat)
    workdir_id = (read_bytes(WorkdirPaths(workdir).id) or b"").decode("ascii", "replace")
    outside = summarise_outside(request, workdir, heartbeat)
    heartbeat.send(
        {"listed": len(files), "more": more, "mark": mark, "workdir_id": workdir_id, "outside": outside}
    )
    return files


def send_batches(
    rows: Iterator[Tuple[Row, ListedFile]], most: int, heartbeat: Heartbeat
) -> Tuple[List[ListedFile], bool]:
    """Send at most so many rows; gives where their files lie, and whether there are more."""
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


def find_rows(request: PullRequest, workdir: str) -> Iterator[Tuple[Row, ListedFile]]:
    """Walk the job's outputs and, for a run, what is wanted of its part on this node."""
    outputs = os.path.join(WorkdirPaths(workdir).outputs, component(request["job"]))
    yield from walk("outputs", os.fsencode(os.path.realpath(outputs)), None)
    rundir, parts = find_rundir(request, workdir), request.get("parts") or ()
    if rundir is not None and "logs" in parts:
        yield from walk("logs", os.fsencode(rundir), is_log)
    if rundir is not None and "code" in parts:
        for outside_file in find_outside(rundir, read_sent(rundir), lambda: None):
            yield from describe_entry("code", outside_file.path, outside_file.entry, outside_file.stat)


def find_rundir(request: PullRequest, workdir: str) -> Optional[str]:
    """Return the directory of the run's part on this node; None if it has none, or no run is asked for."""
    run_id = request["run"]
    if run_id is None:
        return None
    rundirs = run_dirs(workdir, component(run_id), str(request["node"]))
    return next((path for path in rundirs if RunPaths(path).run_id == run_id), None)


def summarise_outside(request: PullRequest, workdir: str, heartbeat: Heartbeat) -> Optional[OutsideSummary]:
    """Tell what the run has left outside the output directory."""
    rundir = find_rundir(request, workdir)
    return summarise(rundir, heartbeat.step) if rundir is not None else None


def is_log(name: bytes) -> bool:
    """Whether an entry of a run's directory is a log or holds logs."""
    return is_pulled_log(os.fsdecode(name))


def walk(part: str, root: bytes, is_selected: Any) -> Iterator[Tuple[Row, ListedFile]]:
    """Walk a directory without following links; `is_selected` chooses among the names at its top."""
    folders = [b""]
    while folders:
        folder = folders.pop()
        entries = list_entries(os.path.join(root, folder))
        if folder and not entries:
            yield [part, decode_name(folder), "dir", 0, 0, 0, 0, ""], ListedFile(b"", None)
        for entry in entries:
            if not folder and is_selected is not None and not is_selected(entry.name):
                continue
            path = os.path.join(folder, entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has just been removed
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
            else:
                yield from describe_entry(part, path, entry, status)


def describe_entry(
    part: str, path: bytes, entry: Any, status: os.stat_result
) -> Iterator[Tuple[Row, ListedFile]]:
    """Give an entry that is no directory, unless it has just been removed."""
    with suppress(OSError):
        target = os.readlink(entry.path) if entry.is_symlink() else b""
        truncation = (
            truncation_in(entry.path, status) if part == "logs" and stat.S_ISREG(status.st_mode) else None
        )
        file = ListedFile(entry.path, status, truncation)
        yield render_row(part, path, entry_kind(status), file, target), file


def list_entries(folder: bytes) -> List[Any]:
    """List a directory in order; nothing if it is gone or closed."""
    try:
        with os.scandir(folder) as scanner:
            return sorted(scanner, key=lambda entry: entry.name)
    except OSError:
        return []


def entry_kind(status: os.stat_result) -> str:
    """Name the kind of an entry that is no directory."""
    if stat.S_ISLNK(status.st_mode):
        return "link"
    return "file" if stat.S_ISREG(status.st_mode) else "other"


def render_row(part: str, path: bytes, kind: str, file: ListedFile, target: bytes) -> Row:
    """Render one row."""
    status = file.status
    times = [status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    size = sent_size(status, file.truncation) if kind == "file" else 0
    return [part, decode_name(path), kind, size, *times, decode_name(target)]


def decode_name(name: bytes) -> str:
    """Decode a name, whatever the locale."""
    return name.decode("utf-8", "surrogateescape")


def send_file(heartbeat: Heartbeat, index: int, file: ListedFile, request: FileRequest) -> None:
    """Send what the client lacks of a file, as long as it was when it was listed, and the hash of all of it."""
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "no longer a regular file")
            send_content(heartbeat, index, FileSource(descriptor, file.truncation), file, request)
        finally:
            os.close(descriptor)
    except BrokenPipeError:
        raise
    except OSError as error:
        heartbeat.send({"failed": index, "why": str(error.strerror)})


def send_content(
    heartbeat: Heartbeat, index: int, source: FileSource, file: ListedFile, request: FileRequest
) -> None:
    """Hash what the client has; send the rest, or all if that is something else."""
    digest, size = hashlib.sha256(), sent_size(file.status, file.truncation)
    position = hash_next(heartbeat, source, digest, min(request.offset, size))
    if request.offset and digest.hexdigest() != request.sha256:
        source.rewind()
        digest, position = hashlib.sha256(), 0
    if not request.data:
        position += hash_next(heartbeat, source, digest, size - position)
    packer = Packer()
    while position < size:
        data = source.read(min(PART, size - position))
        if not data:
            break
        heartbeat.step()
        digest.update(data)
        packed, body = packer.pack(data)
        heartbeat.send({"file": index, "at": position, "packed": packed}, body)
        position += len(data)
    same = file_stamp(os.fstat(source.descriptor)) == file_stamp(file.status)
    heartbeat.send({"whole": index, "sha256": digest.hexdigest(), "size": position, "same": same})


def hash_next(heartbeat: Heartbeat, source: FileSource, digest: Any, size: int) -> int:
    """Hash so many bytes from where the source stands; gives how many there were."""
    count = 0
    while count < size:
        data = source.read(min(PART, size - count))
        if not data:
            break
        heartbeat.step()
        digest.update(data)
        count += len(data)
    return count


def file_stamp(status: os.stat_result) -> Tuple[int, int, int]:
    """What is unchanged while a file keeps still."""
    return status.st_size, status.st_mtime_ns, status.st_ino


class Packer:
    """Compresses a file's parts as long as that is worth the time; checkpoints are dense."""

    def __init__(self) -> None:
        self._worthwhile: Optional[bool] = None

    def pack(self, data: bytes) -> Tuple[bool, bytes]:
        """Give whether the data is compressed, and the data."""
        if self._worthwhile is None:
            sample = data[:SAMPLE]
            self._worthwhile = len(zlib.compress(sample, 1)) < 0.7 * len(sample)
        if not self._worthwhile:
            return False, data
        body = zlib.compress(data, 1)
        if len(body) > 0.8 * len(data):
            self._worthwhile = False
        return True, body
