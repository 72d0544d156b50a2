"""Contents that come from outside: in order, over several connections, and passed on to other nodes meanwhile.

          segments of 8 MiB, each by a thread of its own
server ----------------------------------------------------> pending --in order--> part file --whole--> its names
                                                                                     |
                                                                                 `received`: other nodes read on

A part file holds a beginning of its content and nothing else, so that its size is how much has come: it is continued
after an interruption, and can be read while it grows. A content gets its names once it has its hash.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import deque
from contextlib import closing, suppress
from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

from ....protocol.manifest import TreeEntry, encode_name
from ...runtime.stream import VerbError
from ..given_files import GivenFiles
from ..hashing import CHUNK, Sha
from ..hashing import Path as WrittenPath
from ..layout import copy_file
from ..removal import Step, remove_quietly
from ..staging.folders import open_parent
from ..staging.parts import open_part, part_path
from ..staging.remembered_hashes import RememberedHashes
from ..staging.room import refuse_access
from ..staging.written import mark_written
from ..store import write_all
from .http import Body, Http, Refusal, Stopped
from .placement import Content

SEGMENT = 8 << 20  # bytes
CONNECTIONS = 4
WINDOW = CONNECTIONS * SEGMENT  # bytes beyond what is written that may be requested
MAX_UNKNOWN = 1 << 40  # bytes of a file whose size the server does not report
MODE = 0o644


class Digest:
    """The hashes of what has come so far."""

    def __init__(self, content: Content) -> None:
        self.sha256 = hashlib.sha256()
        self._git: Any = None
        if content.git and not content.sha256:
            self._git = hashlib.sha1(b"blob %d\0" % content.size)

    def update(self, data: bytes) -> None:
        """Take in what comes next."""
        self.sha256.update(data)
        if self._git is not None:
            self._git.update(data)

    def is_right(self, content: Content) -> bool:
        """Return whether this is the content; one without a hash is taken as it is."""
        if content.sha256:
            return self.sha256.hexdigest() == content.sha256
        return self._git is None or self._git.hexdigest() == content.git


class Part:
    """A content that is coming, in a file of the root."""

    def __init__(self, content: Content, path: bytes) -> None:
        self.content, self.path = content, path
        self.lock = threading.Lock()
        self.size = content.size  # -1: unknown
        self.url, self.stamp = content.url, ""
        self.in_segments: Optional[bool] = None  # None: not known before the first answer
        self.is_open, self.resumed, self.descriptor = False, False, -1
        self._pending: Dict[int, bytes] = {}
        self.digest = Digest(content)
        self.position = self.requested = 0  # up to where it is written, and segments have been given out

    def open(self, step: Step) -> None:
        """Open the file, and hash what an earlier download has left in it."""
        self.descriptor = open_part(os.fsdecode(self.path), make=True)
        if self.descriptor < 0:
            refuse_access(self.path)
        held = os.fstat(self.descriptor).st_size
        if not self.content.key or held > self.size:
            os.ftruncate(self.descriptor, 0)
            held = 0
        while self.position < held:
            data = os.pread(self.descriptor, CHUNK, self.position)
            if not data:
                break
            step()
            self.digest.update(data)
            self.position += len(data)
        self.resumed, self.requested, self.is_open = self.position > 0, self.position, True

    def restart(self) -> None:
        """Begin again: what was kept was wrong."""
        os.ftruncate(self.descriptor, 0)
        self._pending.clear()
        self.position = self.requested = 0
        self.digest, self.resumed = Digest(self.content), False

    def add(self, begin: int, data: bytes) -> None:
        """Write what is next, and keep what comes after a gap."""
        with self.lock:
            self._pending[begin] = data
            while self.position in self._pending:
                ready = self._pending.pop(self.position)
                os.lseek(self.descriptor, self.position, os.SEEK_SET)
                write_all(self.descriptor, ready, self.path)
                self.digest.update(ready)
                self.position += len(ready)

    @property
    def done(self) -> bool:
        """Return whether all has come."""
        return 0 <= self.size <= self.position

    def close(self) -> None:
        """Close the file; what has come stays for the next time, if its hash shows then that it is the same."""
        with self.lock:
            useless = not self.position or not self.content.key
            if self.descriptor >= 0 and useless and not self.content.whole:
                remove_quietly(os.fsdecode(self.path))
            self.close_file()

    def close_file(self) -> None:
        """Close the file, by the thread that has the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Downloader(GivenFiles):
    """Contents below `root`, an existing directory: those that are here, and those that come."""

    def __init__(self, root: bytes, http: Http, hashes: RememberedHashes, step: Step) -> None:
        super().__init__()
        self.top, self._http, self._hashes, self._step = root, http, hashes, step
        self.probe = os.path.join(os.fsdecode(root), f".clusterctl-{os.urandom(8).hex()}")
        self._written: List[Tuple[WrittenPath, os.stat_result, Sha]] = []
        self.marks: List[TreeEntry] = []  # of files that were written
        self._changed = threading.Condition()
        self._parts: List[Part] = []
        self._queue: Deque[Part] = deque()  # those of which more is to be requested
        self._running = self._opening = 0  # threads; parts that are being opened
        self.failure: Optional[BaseException] = None
        self.bytes = 0  # that have come
        self.files = self.replaced = 0  # written; of them in place of others

    def inspect(self, contents: Iterable[Content]) -> None:
        """Find which contents are here already, with the right hash."""
        for content in contents:
            self._step()
            path = self.absolute(content.paths[0])
            if content.sha256:
                self.add_file(content.sha256, path)
            content.whole = self._is_here(content, path)

    def missing_bytes(self, contents: Iterable[Content]) -> int:
        """Return how many bytes are still to come."""
        return sum(
            max(content.size, 0) - min(self.size_here(content), max(content.size, 0))
            for content in contents
            if not content.whole
        )

    def start(self, contents: Iterable[Content]) -> None:
        """Begin to download contents, by threads; `failure` is set, or all are whole, when `running` is over."""
        self._parts = []
        for content in contents:
            if content.whole:
                continue
            path = self._part_path(content)
            if content.data is not None or content.size == 0:
                self._write(content, path)
                continue
            self._parts.append(Part(content, path))
        self._queue = deque(self._parts)
        self._running = CONNECTIONS
        for _ in range(CONNECTIONS):
            threading.Thread(target=self._work, daemon=True).start()

    @property
    def running(self) -> bool:
        """Return whether anything is still coming."""
        return self._running > 0

    def remember(self) -> None:
        """Remember the hashes of what was written and read, as what need not be read the next time."""
        self._hashes.remember_written(self._written)
        self._hashes.save()
        self._written = []

    def absolute(self, path: str) -> bytes:
        """Return where a path below the root is."""
        return os.path.join(self.top, encode_name(path))

    def _part_path(self, content: Content) -> bytes:
        name = content.key or hashlib.sha256(content.url.encode("utf-8", "replace")).hexdigest()
        return os.fsencode(part_path(os.fsdecode(self.top), name))

    def size_here(self, content: Content) -> int:
        """Return how many bytes of a content are here, as far as sizes show."""
        for path in (self.absolute(content.paths[0]), self._part_path(content)):
            with suppress(OSError):
                size = os.lstat(path).st_size
                if content.key and size <= content.size:
                    return size
        return 0

    def _is_here(self, content: Content, path: bytes) -> bool:
        """Return whether all names of a content have it; finds the SHA-256 of one that has only git's hash."""
        try:
            for name in content.paths:
                status = os.lstat(self.absolute(name))
                if not stat.S_ISREG(status.st_mode) or content.size not in (-1, status.st_size):
                    return False
            if content.sha256:
                return self._hashes.hash(path, self._step)[0] == content.sha256
            if not content.git:
                return False
            digest = Digest(content)
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", 0) as source:
                while data := source.read(CHUNK):
                    self._step()
                    digest.update(data)
        except OSError:
            return False
        if not digest.is_right(content):
            return False
        self._identify(content, digest)
        return True

    def _identify(self, content: Content, digest: Digest) -> None:
        if not content.sha256:
            content.sha256 = digest.sha256.hexdigest()
            self.add_file(content.sha256, self.absolute(content.paths[0]))

    def _work(self) -> None:
        """Download segments until there are no more."""
        try:
            while (segment := self._next_segment()) is not None:
                part, begin, end = segment
                if part.is_open:
                    self._fetch(part, begin, end)
                else:
                    self._open_part(part)
        except Stopped:
            pass
        except BaseException as error:
            with self._changed:
                self.failure = self.failure or error
            self._http.stopped.set()
        finally:
            with self._changed:
                self._running -= 1
                if not self._running:
                    for part in self._parts:
                        part.close()
                self._changed.notify_all()

    def _next_segment(self) -> Optional[Tuple[Part, int, Optional[int]]]:
        """Return the next segment, in order, or a part that is to be opened; wait while it is too far ahead."""
        with self._changed:
            while not self._http.stopped.is_set():
                while self._queue and self._queue[0].is_open and not self._has_more(self._queue[0]):
                    self._queue.popleft()
                if not self._queue:
                    if not self._opening:
                        return None
                    self._changed.wait(1.0)
                    continue
                part = self._queue[0]
                begin = part.requested
                if not part.is_open:
                    self._opening += 1
                    return self._queue.popleft(), 0, None
                if part.in_segments is None and begin > part.position:
                    pass  # whether it can be requested in segments is seen by the first
                elif begin - part.position < WINDOW:
                    end = min(begin + SEGMENT, part.size) if part.size >= 0 else None
                    part.requested = part.size if end is None else end
                    if end is None:
                        part.requested = MAX_UNKNOWN
                    return part, begin, end
                self._changed.wait(1.0)
            return None

    def _open_part(self, part: Part) -> None:
        """Open a part; of many small files only a few are open at a time."""
        part.open(self._step)
        if part.done:
            self._finish(part)
        elif part.position and part.content.sha256:
            self.received.grow(part.content.sha256, os.fsdecode(part.path), part.position)
        with self._changed:
            self._opening -= 1
            if self._has_more(part):
                self._queue.appendleft(part)
            self._changed.notify_all()

    @staticmethod
    def _has_more(part: Part) -> bool:
        limit = part.size if part.size >= 0 else MAX_UNKNOWN
        return part.in_segments is not False and not part.content.whole and part.requested < limit

    def _fetch(self, part: Part, begin: int, end: Optional[int]) -> None:
        """Download one segment, or the whole file from a server that sends no segments."""
        buffer = bytearray()

        def attempt() -> None:
            at = begin + len(buffer)
            body = self._http.get(part.url, at, end, part.stamp)
            with closing(body.response):
                self._check(part, body)
                if body.begin != at or body.end is None:
                    self._stream(part, body)
                    return
                self._open_others(part, body)
                for piece in self._http.read(body):
                    buffer.extend(piece)
                    self._count_bytes(len(piece))
                if begin + len(buffer) < (end or 0):
                    raise OSError(0, "the connection was closed early")

        try:
            self._http.repeat(attempt)
        except Refusal:
            if part.url == part.content.url:
                raise
            part.url = part.content.url  # the address of a file at another host, which is valid for a time
            self._http.repeat(attempt)
        if buffer:
            self._add(part, begin, bytes(buffer))
        if part.done:
            self._finish(part)

    def _check(self, part: Part, body: Body) -> None:
        if part.size < 0 and body.total is not None:
            part.size = body.total
        if part.size >= 0 and body.total not in (None, part.size):
            raise VerbError(
                "CC-STAGE-015",
                f"{part.content.name}: the server sends {body.total} bytes, and {part.size} were listed",
            )
        is_other = body.stamp != part.stamp and not part.content.key
        if part.in_segments and (is_other or (body.begin == 0 and body.end is None)):
            raise VerbError("CC-STAGE-015", f"{part.content.name} changed while it was downloaded")

    def _open_others(self, part: Part, body: Body) -> None:
        """Allow other threads to request segments from where the first came from."""
        if part.in_segments is None:
            with self._changed:
                part.in_segments, part.url, part.stamp = True, body.url, body.stamp
                self._changed.notify_all()

    def _stream(self, part: Part, body: Body) -> None:
        """Read a file from its beginning to its end, without what is here already."""
        with self._changed:
            part.in_segments = False
            self._changed.notify_all()
        if part.position and body.stamp != part.stamp and not part.content.key:
            with part.lock:
                part.restart()  # another version, which a hash would show, and it has none
        part.stamp = body.stamp
        at, limit = 0, part.size if part.size >= 0 else MAX_UNKNOWN
        for piece in self._http.read(body):
            if at + len(piece) > limit:
                raise VerbError("CC-STAGE-015", f"{part.content.name}: more than {limit} bytes come")
            new = piece[max(0, part.position - at) :]
            at += len(piece)
            if new:
                self._count_bytes(len(new))
                self._add(part, part.position, new)
        if part.size < 0:
            part.size = part.content.size = at
        if at < part.size:
            raise OSError(0, "the connection was closed early")

    def _count_bytes(self, size: int) -> None:
        with self._changed:
            self.bytes += size

    def _add(self, part: Part, begin: int, data: bytes) -> None:
        part.add(begin, data)
        if part.content.sha256:
            self.received.grow(part.content.sha256, os.fsdecode(part.path), part.position)
        with self._changed:
            self._changed.notify_all()

    def _finish(self, part: Part) -> None:
        """Install a content if its hash is right; one that was continued wrongly begins again, once."""
        content = part.content
        with part.lock:
            if content.whole or part.descriptor < 0:
                return
            if not part.digest.is_right(content):
                self.received.drop(content.sha256)
                if part.resumed:
                    with self._changed:
                        part.restart()
                        if part not in self._queue:
                            self._queue.appendleft(part)
                        self._changed.notify_all()
                    return
                remove_quietly(os.fsdecode(part.path))
                raise VerbError(
                    "CC-STAGE-015", f"{content.name}: what came does not have the hash that was listed"
                )
            self._identify(content, part.digest)
            self._install(part.descriptor, part.path, content)
            content.whole = True
            part.close_file()
        self.received.complete(content.sha256, os.fsdecode(part.path))

    def _install(self, descriptor: int, path: bytes, content: Content) -> None:
        """Move a whole file to its first name, and copy it to the others."""
        os.fchmod(descriptor, MODE)
        first, *others = content.paths
        for name in others:
            twin = path + b"-twin"
            try:
                copy_file(os.fsdecode(path), twin, MODE)
                self._rename(twin, name, content.sha256)
            finally:
                remove_quietly(os.fsdecode(twin))
        self._rename(path, first, content.sha256)

    def _write(self, content: Content, path: bytes) -> None:
        """Write a content that needs no download: one that is known, or is empty."""
        data, digest = content.data or b"", Digest(content)
        digest.update(data)
        if not digest.is_right(content):
            raise VerbError(
                "CC-STAGE-015", f"{content.name}: it is listed as empty, and with a hash of something"
            )
        self._identify(content, digest)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            write_all(descriptor, data, path)
            self._install(descriptor, path, content)
        finally:
            os.close(descriptor)
        content.whole = True
        self.received.complete(content.sha256, os.fsdecode(path))

    def _rename(self, path: bytes, name: str, sha256: Sha) -> None:
        with open_parent(self.top, name, make=True) as (folder, last):
            with suppress(OSError):
                os.stat(last, dir_fd=folder, follow_symlinks=False)
                self.replaced += 1
            os.replace(path, last, dst_dir_fd=folder)
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
            self._written.append((self.absolute(name), status, sha256))
            self.marks.append(mark_written(name, status))
        self.files += 1
