"""List and send outputs and logs.

The verb `pull`: lists what a job has put out and a run has logged, then sends what the client lacks.

request {"workdir", "node", "job", "run": id or null, "parts": of "logs" and "code", those of the run that are wanted,
        "most": entries, "beacon": random name or null, "mark": random}
node    {"rows": count} + zlib(JSON rows), repeated; then {"listed": count, "more": bool, "mark": text, "place": id,
        "outside": what the run has left outside the output directory, see outside_files.py; null if that is not known}
client  {"bring": [[index, bytes the client has, their sha256, whether data is wanted], ...]}, as often as it
        wants; then it hangs up
node    {"file": index, "at": offset, "packed": bool} + data, repeated, from what the client has if that is right,
        else from 0; {"whole": index, "sha256": of all of it, "size": n, "same": whether it kept still} or
        {"failed": index, "why": text}; at last {"brought": true}.
In between the node sends {"beat": n, "steps": n} every 2 s.

A row is [part, path, kind, size, mtime_ns, ctime_ns, inode, target]; part is "outputs", "logs" or "code" (what was not
sent, or was changed), kind is file, link, dir (empty) or other. Links are not followed. Names that are not UTF-8 have
their odd bytes as U+DC80 and up. `mark` is that of the node that was the first to light the beacon: nodes that share a
home tell the same one, and no other node can know it. `place` is the work directory's id, by which it is known again
another time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import zlib
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..logs.truncation import Cut, read_cut
from ..runtime.heartbeat import Voice
from ..runtime.stream import Stream
from ..state.run_record import run_dirs
from ..state.workdir import component, make_private, read_bytes
from ..sync.outside_files import find_outside, read_sent, summarise


def note_of(cut: Cut) -> bytes:
    """Say what is missing where it is."""
    return b"[clusterctl: %d bytes of this log were dropped here to hold log_limit]\n" % (cut.end - cut.begin)


def cut_in(path: bytes, found: os.stat_result) -> Optional[Cut]:
    """Tell what is gone of a log."""
    cut = read_cut(os.fsdecode(path)) if path.endswith(b".log") else None
    return cut if cut is not None and cut.end <= found.st_size else None


def size_of(found: os.stat_result, cut: Optional[Cut]) -> int:
    """Give how much there is to send."""
    return found.st_size if cut is None else cut.begin + len(note_of(cut)) + found.st_size - cut.end


class Source:
    """Reads on and on, as from one file; the caller closes the descriptor."""

    def __init__(self, descriptor: int, cut: Optional[Cut]) -> None:
        self.descriptor = descriptor
        self._cut = cut
        self._place = 0

    def read(self, most: int) -> bytes:
        """Take what comes next."""
        data = self._read(most)
        self._place += len(data)
        return data

    def rewind(self) -> None:
        """Begin again."""
        self._place = 0

    def _read(self, most: int) -> bytes:
        if self._cut is None:
            return os.pread(self.descriptor, most, self._place)
        begin, note = self._cut.begin, note_of(self._cut)
        beyond = self._place - begin
        if beyond < 0:
            return os.pread(self.descriptor, min(most, -beyond), self._place)
        if beyond < len(note):
            return note[beyond : beyond + most]
        return os.pread(self.descriptor, most, self._cut.end + beyond - len(note))


PART = 1 << 18
BATCH = 1000
LARGEST_BATCH = 1 << 20  # bytes of JSON, beyond which no further row joins
SAMPLE = 1 << 12
STALE = 86400.0  # seconds after which a beacon was left by a client that died
LOGGED = ("state.json", "events.jsonl", "agent.log", "setup.log")
ATTEMPT = "attempt-"

Row = List[Any]


class Place(NamedTuple):
    """Where a row's file lies, and what was seen of it."""

    path: bytes
    found: Any  # os.stat_result, None for a directory
    cut: Optional[Cut] = None  # what is gone of a log


class Wish(NamedTuple):
    """What the client has of a file, and whether it wants the rest."""

    offset: int
    sha256: str
    data: bool


def run(request: Dict[str, Any], stream: Stream) -> None:
    """Serve one client until it hangs up."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    with Voice(stream) as voice, beacon(workdir, request) as mark:
        places = tell_rows(request, workdir, voice, mark)
        while True:
            frame = stream.receive()
            if frame is None:
                return
            for index, *wish in frame[0]["bring"]:
                send_file(voice, index, places[index], Wish(*wish))
            voice.send({"brought": True})


@contextmanager
def beacon(workdir: str, request: Dict[str, Any]) -> Iterator[str]:
    """Tell who was first to light the client's beacon in this work directory; it goes out with the client."""
    mark, name = str(request.get("mark") or ""), request.get("beacon")
    if name is None or not mark or not os.path.isdir(workdir):
        yield mark
        return
    folder = make_private(os.path.join(workdir, "beacons"))
    sweep(folder)
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


def sweep(folder: str) -> None:
    """Put out what a client that died has left."""
    oldest = time.time() - STALE
    with os.scandir(folder) as found:
        for entry in found:
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)


def tell_rows(request: Dict[str, Any], workdir: str, voice: Voice, mark: str) -> List[Place]:
    """Send all rows, at most one more than the client wants; gives where their files lie."""
    most = int(request["most"])
    places: List[Place] = []
    batch: List[Row] = []
    size, more = 0, False
    for row, place in find_rows(request, workdir):
        if len(places) >= most:
            more = True
            break
        voice.step()
        places.append(place)
        batch.append(row)
        size += 6 * (len(row[1]) + len(row[-1])) + 100  # what JSON makes of odd names at the most
        if len(batch) == BATCH or size > LARGEST_BATCH:
            tell_batch(voice, batch)
            batch, size = [], 0
    tell_batch(voice, batch)
    known = (read_bytes(os.path.join(workdir, "id")) or b"").decode("ascii", "replace")
    outside = look_outside(request, workdir, voice)
    voice.send({"listed": len(places), "more": more, "mark": mark, "place": known, "outside": outside})
    return places


def tell_batch(voice: Voice, batch: List[Row]) -> None:
    """Send some rows."""
    voice.send({"rows": len(batch)}, zlib.compress(json.dumps(batch).encode("ascii"), 1))


def find_rows(request: Dict[str, Any], workdir: str) -> Iterator[Tuple[Row, Place]]:
    """Walk the job's outputs and, for a run, what is wanted of its part on this node."""
    outputs = os.path.join(workdir, "outputs", component(request["job"]))
    yield from walk("outputs", os.fsencode(os.path.realpath(outputs)), None)
    rundir, parts = find_part(request, workdir), request.get("parts") or ()
    if rundir is not None and "logs" in parts:
        yield from walk("logs", os.fsencode(rundir), is_log)
    if rundir is not None and "code" in parts:
        for found in find_outside(rundir, read_sent(rundir), lambda: None):
            yield from row_and_place("code", found.path, found.entry, found.stat)


def find_part(request: Dict[str, Any], workdir: str) -> Optional[str]:
    """Return the directory of the run's part on this node; None if it has none, or no run is asked for."""
    if request.get("run") is None:
        return None
    found = run_dirs(workdir, component(request["run"]), str(request["node"]))
    return next((path for path in found if os.path.basename(os.path.dirname(path)) == request["run"]), None)


def look_outside(request: Dict[str, Any], workdir: str, voice: Voice) -> Optional[Dict[str, Any]]:
    """Tell what the run has left outside the output directory."""
    rundir = find_part(request, workdir)
    return summarise(rundir, voice.step) if rundir is not None else None


def is_log(name: bytes) -> bool:
    """Whether an entry of a run's directory is a log or holds logs."""
    return os.fsdecode(name) in LOGGED or os.fsdecode(name).startswith(ATTEMPT)


def walk(part: str, root: bytes, wanted: Any) -> Iterator[Tuple[Row, Place]]:
    """Walk a directory without following links; `wanted` chooses among the names at its top."""
    folders = [b""]
    while folders:
        folder = folders.pop()
        entries = listed(os.path.join(root, folder))
        if folder and not entries:
            yield [part, text(folder), "dir", 0, 0, 0, 0, ""], Place(b"", None)
        for entry in entries:
            if not folder and wanted is not None and not wanted(entry.name):
                continue
            path = os.path.join(folder, entry.name)
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has just been removed
            if stat.S_ISDIR(found.st_mode):
                folders.append(path)
            else:
                yield from row_and_place(part, path, entry, found)


def row_and_place(part: str, path: bytes, entry: Any, found: os.stat_result) -> Iterator[Tuple[Row, Place]]:
    """Give an entry that is no directory, unless it has just been removed."""
    with suppress(OSError):
        target = os.readlink(entry.path) if entry.is_symlink() else b""
        cut = cut_in(entry.path, found) if part == "logs" and stat.S_ISREG(found.st_mode) else None
        place = Place(entry.path, found, cut)
        yield row_of(part, path, kind_of(found), place, target), place


def listed(folder: bytes) -> List[Any]:
    """List a directory in order; nothing if it is gone or closed."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def kind_of(found: os.stat_result) -> str:
    """Name the kind of an entry that is no directory."""
    if stat.S_ISLNK(found.st_mode):
        return "link"
    return "file" if stat.S_ISREG(found.st_mode) else "other"


def row_of(part: str, path: bytes, kind: str, place: Place, target: bytes) -> Row:
    """Render one row."""
    found = place.found
    times = [found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    size = size_of(found, place.cut) if kind == "file" else 0
    return [part, text(path), kind, size, *times, text(target)]


def text(name: bytes) -> str:
    """Decode a name, whatever the locale."""
    return name.decode("utf-8", "surrogateescape")


def send_file(voice: Voice, index: int, place: Place, wish: Wish) -> None:
    """Send what the client lacks of a file, as long as it was when it was listed, and the hash of all of it."""
    try:
        descriptor = os.open(place.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "no longer a regular file")
            send_content(voice, index, Source(descriptor, place.cut), place, wish)
        finally:
            os.close(descriptor)
    except BrokenPipeError:
        raise
    except OSError as error:
        voice.send({"failed": index, "why": str(error.strerror)})


def send_content(voice: Voice, index: int, source: Source, listed: Place, wish: Wish) -> None:
    """Hash what the client has; send the rest, or all if that is something else."""
    digest, size = hashlib.sha256(), size_of(listed.found, listed.cut)
    place = read_on(voice, source, digest, min(wish.offset, size))
    if wish.offset and digest.hexdigest() != wish.sha256:
        source.rewind()
        digest, place = hashlib.sha256(), 0
    if not wish.data:
        place += read_on(voice, source, digest, size - place)
    packer = Packer()
    while place < size:
        data = source.read(min(PART, size - place))
        if not data:
            break
        voice.step()
        digest.update(data)
        packed, body = packer.pack(data)
        voice.send({"file": index, "at": place, "packed": packed}, body)
        place += len(data)
    same = stamp(os.fstat(source.descriptor)) == stamp(listed.found)
    voice.send({"whole": index, "sha256": digest.hexdigest(), "size": place, "same": same})


def read_on(voice: Voice, source: Source, digest: Any, size: int) -> int:
    """Hash so many bytes from where the source stands; gives how many there were."""
    place = 0
    while place < size:
        data = source.read(min(PART, size - place))
        if not data:
            break
        voice.step()
        digest.update(data)
        place += len(data)
    return place


def stamp(found: os.stat_result) -> Tuple[int, int, int]:
    """What is unchanged while a file keeps still."""
    return found.st_size, found.st_mtime_ns, found.st_ino


class Packer:
    """Compresses a file's parts as long as that is worth the time; checkpoints are dense."""

    def __init__(self) -> None:
        self._worth: Optional[bool] = None

    def pack(self, data: bytes) -> Tuple[bool, bytes]:
        """Give whether the data is compressed, and the data."""
        if self._worth is None:
            sample = data[:SAMPLE]
            self._worth = len(zlib.compress(sample, 1)) < 0.7 * len(sample)
        if not self._worth:
            return False, data
        body = zlib.compress(data, 1)
        if len(body) > 0.8 * len(data):
            self._worth = False
        return True, body
