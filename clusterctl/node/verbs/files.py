"""Verb `files`: lists files of this node and sends what the client lacks, or gives them to other nodes.

ListRequest                                 the messages are defined in protocol/messages
node   `rows`, repeated, then Listed; then as often as the client wants, until it closes the session:
client `fetch`; FilePiece, repeated, from what the client has if that is right, else from 0; then
       FileWhole or FileFailed; after the last file `fetched`
client `provide`: `provided`, other nodes fetch at that port (node/sync/transfer)

A source is [kind, path]: `path` is a file or a directory, `inside` what is in a directory, both relative to the home
directory or to the working directory of a run, where they may begin with `${output_dir}`. `outputs` are those of a job
of this name, `logs` those of the run, and `code` is what was not sent with the run's code, or was changed.

A row is [source, path, kind, size, mtime_ns, ctime_ns, inode, content, mode]. `source` is the number of what was asked
for, and `path` lies below it; empty is that itself. kind is file, link, dir (empty) or other. `content` is a link's
target, or a file's SHA-256 if that was asked for. Links are not followed. Names that are not UTF-8 have their odd bytes
as U+DC80 and up.

`mark` is that of the node that was the first to write the client's file `shared_home_probe`: nodes that share a home
report the same one, and no other node can know it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Tuple, cast

from ...protocol.manifest import TreeEntry, decode_name, encode_name
from ...protocol.run_paths import RunPaths, WorkdirPaths, is_pulled_log
from ..logs.truncation import Truncation, read_truncation
from ..runtime.heartbeat import Heartbeat
from ..runtime.stream import Stream, VerbError
from ..state.run_files import run_dirs
from ..state.workdir import component, make_private, read_bytes
from ..sync.checkpoints.folders import mirror_folder
from ..sync.checkpoints.kept import find_kept
from ..sync.given_files import GivenFiles
from ..sync.outside_files import find_outside, read_sent, summarise
from ..sync.paths import resolve_path
from ..sync.removal import Step, ignore_step, list_entries, remove_stale
from ..sync.staging.remembered_hashes import RememberedHashes
from ..sync.transfer import Provider, start_provider

if TYPE_CHECKING:
    from ...protocol.messages.verbs import ListRequest, PlainClientFrame

    Row = List[Any]
    Rows = Iterator[Tuple[Row, "ListedFile"]]

PART = 1 << 18  # bytes of a file in a frame
BATCH = 1000  # rows in a frame
MAX_BATCH = 1 << 20  # bytes of JSON, beyond which no further row joins
SAMPLE = 1 << 12  # bytes by which it is seen whether a file can be compressed


class ListedFile(NamedTuple):
    """Where a row's file lies, and what was seen of it."""

    path: bytes
    status: Any  # os.stat_result, None for a directory
    truncation: Optional[Truncation] = None  # what is gone of a log
    sha256: str = ""  # of its content, if that was asked for


def run(request: ListRequest, stream: Stream) -> None:
    """Serve one client until it hangs up."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    with Heartbeat(stream) as heartbeat, shared_home_probe(workdir, request) as mark:
        serve_files(list_files(request, workdir, heartbeat, mark), stream, heartbeat)


def list_files(request: ListRequest, workdir: str, heartbeat: Heartbeat, mark: str) -> List[ListedFile]:
    """Send all rows, at most one more than the client wants; returns where their files lie."""
    hashes = RememberedHashes(workdir) if request["hashed"] else None
    rows = find_rows(request, workdir)
    if hashes is not None and request["sources"][0][0] == "checkpoint":
        rows = list_checkpoint(request, workdir, hashes, heartbeat.step_for_client)
    if hashes is not None:
        rows = with_hashes(islice(rows, request["most"] + 1), hashes, heartbeat.step_for_client)
    files, more = send_rows(rows, request["most"], heartbeat)
    if hashes is not None:
        hashes.save()
    workdir_id = (read_bytes(WorkdirPaths(workdir).id) or b"").decode("ascii", "replace")
    of_run = any(kind == "outputs" for kind, _ in request["sources"])
    rundir = find_rundir(request, workdir) if of_run else ""
    outside = summarise(rundir, heartbeat.step) if rundir else None
    heartbeat.send(
        {"listed": len(files), "more": more, "mark": mark, "workdir_id": workdir_id, "outside": outside}
    )
    return files


def find_rows(request: ListRequest, workdir: str) -> Rows:
    """Walk what is asked for; a path that is itself a link is followed, others are not."""
    for source, (kind, path) in enumerate(request["sources"]):
        if kind in ("path", "inside"):
            yield from list_path(
                source, path, os.path.realpath(resolve_path(request, path)), kind == "inside"
            )
            continue
        rundir = find_rundir(request, workdir)
        if kind == "outputs":
            outputs = os.path.join(WorkdirPaths(workdir).outputs, component(path))
            yield from walk(source, os.fsencode(os.path.realpath(outputs)))
        elif rundir and kind == "logs":
            yield from walk(source, os.fsencode(rundir), only_logs=True)
        elif rundir:
            for outside in find_outside(rundir, read_sent(rundir), ignore_step):
                file = ListedFile(outside.entry.path, outside.stat)
                with suppress(OSError):  # it has just been removed
                    yield file_row(source, outside.path, file), file


def list_checkpoint(request: ListRequest, workdir: str, hashes: RememberedHashes, step: Step) -> Rows:
    """List what is here of a generation of the run; of files that all nodes see, each node lists all."""
    rundir, name = find_rundir(request, workdir), request["sources"][0][1]
    top, files = find_kept(mirror_folder(workdir, rundir), name, hashes, step) if rundir else (b"", [])
    for kept in files:
        path, entry = f"{kept.node_rank}/{kept.row.path}", kept.row
        if entry.kind == "link":
            yield [0, path, "link", 0, 0, 0, 0, entry.content, 0], ListedFile(b"", None)
        else:
            file = ListedFile(kept.source, os.lstat(kept.source))
            yield [*file_row(0, encode_name(path), file)[:8], entry.mode], file
    if top:
        for row, file in list_path(0, name, top, inside=False):
            row[1] = f"0/{name.partition('/')[2]}" + (f"/{row[1]}" if row[1] else "")
            yield row, file


def list_path(source: int, text: str, top: bytes, inside: bool) -> Rows:
    """List a file, or walk a directory."""
    try:
        file = ListedFile(top, os.stat(top))
    except (FileNotFoundError, NotADirectoryError):
        raise VerbError("CC-COPY-002", f"{text} does not exist") from None
    if stat.S_ISDIR(file.status.st_mode):
        if not inside and not os.listdir(top):
            yield folder_row(source, b"")
        yield from walk(source, top, strict=True)
    elif inside:
        # what is in it was asked for: others would make a directory of a file
        raise VerbError("CC-COPY-003", f"{text} is not a directory")
    elif stat.S_ISREG(file.status.st_mode):
        yield file_row(source, b"", file), file
    else:
        raise VerbError("CC-COPY-002", f"{text} is neither a file nor a directory")


def walk(
    source: int,
    root: bytes,
    *,
    strict: bool = False,
    only_logs: bool = False,
) -> Rows:
    """Walk a directory without following links; `only_logs` keeps of a run's directory the logs and what holds them.

    With `strict`, a directory that cannot be read is an OSError; else it seems to be empty.
    """
    folders = [b""]
    while folders:
        folder = folders.pop()
        entries = list_entries(os.path.join(root, folder), strict=strict)
        if folder and not entries:
            yield folder_row(source, folder)
        for entry in entries:
            if only_logs and not folder and not is_pulled_log(os.fsdecode(entry.name)):
                continue
            path = os.path.join(folder, entry.name)
            with suppress(OSError):  # it has just been removed
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                else:
                    truncation = find_truncation(entry.path, status) if only_logs else None
                    file = ListedFile(entry.path, status, truncation)
                    yield file_row(source, path, file), file


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


def with_hashes(rows: Rows, hashes: RememberedHashes, step: Step) -> Rows:
    """Hash every file, and list it as long as it was then."""
    found = []
    for listed in rows:
        step()
        found.append(listed)
    hashes.read_ahead([(file.path, file.status) for row, file in found if row[2] == "file"], step)
    for row, file in found:
        if row[2] == "file":
            row[7], row[3] = hashes.hash(file.path, step)
        yield row, file._replace(sha256=row[7] if row[2] == "file" else "")


def find_rundir(request: ListRequest, workdir: str) -> str:
    """Return the directory of the run's part on this node; empty if it has none, or no run is asked for."""
    run_id = request["run"]
    rundirs = run_dirs(workdir, component(run_id), request["node"]) if run_id else iter(())
    return next((path for path in rundirs if RunPaths(path).run_id == run_id), "")


def find_truncation(path: bytes, status: os.stat_result) -> Optional[Truncation]:
    """Return what is gone of a file of a run's directory, if it is a log."""
    is_file = stat.S_ISREG(status.st_mode) and path.endswith(b".log")
    truncation = read_truncation(os.fsdecode(path)) if is_file else None
    return truncation if truncation and truncation.end <= status.st_size else None


@contextmanager
def shared_home_probe(workdir: str, request: ListRequest) -> Iterator[str]:
    """Return the mark of the node that was first to write the client's file in this work directory.

    The session removes the file.
    """
    mark, name = request["mark"], request["shared_home_probe"]
    if not name or not mark or not os.path.isdir(workdir):
        yield mark
        return
    folder = make_private(WorkdirPaths(workdir).shared_home_probes)
    remove_stale(folder)
    path = os.path.join(folder, component(name))
    try:
        os.symlink(mark, path)  # made with its content in one step, on network file systems too
    except FileExistsError:
        yield os.readlink(path)
        return
    try:
        yield mark
    finally:
        with suppress(OSError):
            os.unlink(path)


def serve_files(files: List[ListedFile], stream: Stream, heartbeat: Heartbeat) -> None:
    """Send what the client requests of these files, or give them to other nodes, until the client hangs up."""
    provider = None
    try:
        while True:
            frame = stream.receive()
            if frame is None:
                return
            if "provide" in frame[0]:
                if provider is not None:
                    provider.close()
                provider = provide_files(files, cast("PlainClientFrame", frame[0]))
                heartbeat.send({"provided": provider.port if provider else None})
                continue
            for index, held, sha256, with_data in cast("PlainClientFrame", frame[0])["fetch"]:
                send_file(heartbeat, index, files[index], held, sha256, with_data)
            heartbeat.send({"fetched": True})
    finally:
        if provider is not None:
            provider.close()


def provide_files(files: List[ListedFile], order: PlainClientFrame) -> Provider | None:
    """Begin to give the files that were hashed to other nodes."""
    given, rows = GivenFiles(), []
    for file in files:
        if file.sha256:
            given.add_file(file.sha256, file.path)
            rows.append(TreeEntry("", "file", 0, file.sha256, file.status.st_size))
    return start_provider(given, rows, order["provide"])


def send_rows(rows: Rows, most: int, heartbeat: Heartbeat) -> Tuple[List[ListedFile], bool]:
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
        if len(batch) == BATCH or size > MAX_BATCH:
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
