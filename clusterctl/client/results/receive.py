"""One file: part, hash, install; disk budget."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterctl.client.results.target_dir import FULL, InTheWayError, Landing, refusal
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import NodeError, SystemRefusal
from clusterctl.plans.sync.manifest import megabytes
from clusterctl.plans.sync.results import Entry, Refused, Stamp
from clusterctl.protocol.untrusted import Untrusted

LARGEST_PART = 1 << 20
CHUNK = 1 << 20


@dataclass(frozen=True)
class Want:
    """A file to ask for: what is here of it, and whether the rest is wanted or only its hash.

    `arrived` says that this is a part which came before, not the file of that name; `before` is the latter's stamp.
    """

    entry: Entry
    offset: int = 0
    sha256: str = ""
    data: bool = True
    arrived: bool = False
    before: Stamp | None = None


@dataclass
class Account:
    """What became of a node's files."""

    files: int = 0
    bytes: int = 0
    unchanged: int = 0
    kept: list[str] = field(default_factory=list)  # changed here, so left alone
    moving: list[str] = field(default_factory=list)  # written to while they were read
    refused: list[Refused] = field(default_factory=list)

    def add(self, other: Account) -> None:
        """Put another account of the same node to this one."""
        self.files, self.bytes = self.files + other.files, self.bytes + other.bytes
        self.unchanged += other.unchanged
        self.kept.extend(other.kept)
        self.moving.extend(other.moving)
        self.refused.extend(other.refused)

    @property
    def is_empty(self) -> bool:
        """Tell whether the node had nothing at all."""
        return not (self.files or self.unchanged or self.kept or self.refused)


class Arrival:
    """One file on its way."""

    def __init__(
        self, want: Want, landing: Landing, account: Account, node: str, moved: Callable[[int], None]
    ) -> None:
        self.want = want
        self._landing, self._account, self._node, self._moved = landing, account, node, moved
        self._part: Path = landing.part_of(want.entry)
        self._descriptor = -1
        self._digest: Any = None
        self._size = 0
        self._came = 0  # bytes, also of what cannot be written here
        self._broken = ""

    def take(self, header: Untrusted, body: bytes) -> None:
        """Write a piece; an empty one brings nothing nearer to the end, so that it is nonsense."""
        entry = self.want.entry
        try:
            data = unpack(body, LARGEST_PART) if header.flag("packed") else body
        except zlib.error as error:
            raise nonsense(self._node, str(error)) from error
        self._came += len(data)
        if not data or self._came > entry.size:
            raise nonsense(self._node, f"{entry.path}: a piece that does not fit")
        self._moved(len(data))
        if self._broken:
            return
        try:
            if self._descriptor < 0:
                self._open(header.integer("at"))
            if (
                header.integer("at") != self._size
                or self._size + len(data) > entry.size
                or not self.want.data
            ):
                raise nonsense(self._node, f"{entry.path}: a piece that does not fit")
            _write_all(self._descriptor, data)
        except (OSError, InTheWayError) as error:
            self._give_up(error)
            return
        self._digest.update(data)
        self._size += len(data)

    def _open(self, at: int | None) -> None:
        """Begin anew, or go on where what is here ends."""
        resumed = at == self.want.offset and self.want.offset > 0
        kept = 0 if resumed and self.want.arrived else os.O_TRUNC
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | kept
        self._descriptor = os.open(self._part, flags, 0o666)
        if resumed and not self.want.arrived:
            self._seed()
        self._digest = hash_of(self._descriptor)
        self._size = os.fstat(self._descriptor).st_size

    def _seed(self) -> None:
        """Begin with the file that was brought before, which is the beginning of the new one."""
        with self._landing.read(self.want.entry.path) as source:
            left = self.want.offset
            while left and (data := os.read(source, min(CHUNK, left))):
                _write_all(self._descriptor, data)
                left -= len(data)

    def end(self, header: Untrusted) -> None:
        """Put the file in its place if it is what the node says it is."""
        entry = self.want.entry
        try:
            if "failed" in header:
                self._refuse(f"the node could not read it: {header.text('why', 200)}")
            elif self._broken:
                self._refuse(self._broken)
            elif header.integer("size") != entry.size:
                self._part.unlink(missing_ok=True)
                self._refuse("it became shorter while it was read; pull again")
            else:
                self._finish(header.text("sha256", 64))
                if not header.flag("same"):
                    self._account.moving.append(entry.path)
        except (OSError, InTheWayError) as error:
            self._give_up(error)
            self._refuse(self._broken)
        finally:
            self.leave()

    def _finish(self, sha256: str) -> None:
        entry = self.want.entry
        if self._descriptor < 0 and self.want.offset == entry.size and sha256 == self.want.sha256 != "":
            self._adopt(sha256)
            return
        if not self.want.data:
            self._account.kept.append(entry.path)
            return
        if self._descriptor < 0:
            self._open(0)
        if self._digest.hexdigest() != sha256:
            self._part.unlink(missing_ok=True)
            raise nonsense(self._node, f"{entry.path}: its content does not have its hash")
        if self._install(sha256):
            self._account.bytes += entry.size

    def _adopt(self, sha256: str) -> None:
        """Nothing had to travel: what is here is what is there."""
        if self.want.arrived:
            self._install(sha256)
            return
        entry, found = self.want.entry, self._landing.find(self.want.entry.path)
        if found is not None and stamp_of(found) == self.want.before:
            self._landing.note(entry, sha256, found)
            self._account.unchanged += 1
        else:
            self._account.kept.append(entry.path)

    def _install(self, sha256: str) -> bool:
        """Give the file its name, unless what has that name was changed here while it was on its way."""
        entry, landing = self.want.entry, self._landing
        found = landing.find(entry.path)
        if (found and stamp_of(found)) != self.want.before:
            self._account.kept.append(entry.path)
            return False
        landing.install(self._part, entry, sha256)
        self._account.files += 1
        return True

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in FULL:
            raise refusal(error, self._landing.place) from error
        self._broken = reason_of(error)

    def _refuse(self, why: str) -> None:
        self._account.refused.append(Refused(self.want.entry.path, why))

    def leave(self) -> None:
        """Let go of the file; what has arrived of it stays for the next time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def unpack(body: bytes, most: int) -> bytes:
    """Decompress; zlib.error beyond a limit."""
    packed = zlib.decompressobj()
    data = packed.decompress(body, most)
    if packed.unconsumed_tail or not packed.eof:
        raise zlib.error("more data than there may be")
    return data


def nonsense(node: str, why: str) -> NodeError:
    """Say that a node does not keep to what it announced."""
    return NodeError(
        "what the node sends is not what it announced", code="CC-PULL-003", node=node, evidence=why
    )


def hash_of(descriptor: int) -> Any:
    """Hash all of an open file, which then stands at its end."""
    digest = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data := os.read(descriptor, CHUNK):
        digest.update(data)
    return digest


def reason_of(error: Exception) -> str:
    """Say what the system refused, or what was in the way."""
    return str(getattr(error, "strerror", None) or error)


FAREWELL = 2.0  # seconds in which those who write remember what has arrived


class Room:
    """What is free below a directory, less what is expected; used by many threads."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._free = self._measured = shutil.disk_usage(place).free
        self._writers = 0
        self._changed = threading.Condition()
        self._closed = False
        self._refusal: SystemRefusal | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Count as one who writes."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def reserve(self, size: int) -> bool:
        """Take so many bytes; False if others have announced too many to begin now, NodeError if they never fit.

        What a node announces keeps nobody out for good: once the others are through, what they really brought counts.
        """
        with self._changed:
            if size > self._measured:
                lacking = megabytes(size - self._measured)
                raise NodeError(
                    f"{megabytes(size)} to bring, {lacking} more than are free at {self._place}",
                    code="CC-PULL-002",
                    fix="make room, or give a DIR on another disk",
                )
            if size > self._free:
                return False
            self._free -= size
            return True

    def measure(self) -> None:
        """Look again what is free; nobody is writing now."""
        with self._changed:
            self._free = self._measured = shutil.disk_usage(self._place).free

    def check(self) -> None:
        """Raise SystemRefusal once the room is closed."""
        if self._closed:
            raise self._refusal or SystemRefusal("interrupted", code="CC-PULL-002")

    def close(self, refusal: SystemRefusal | None = None) -> None:
        """Let nobody go on; without a refusal, wait until those who write have remembered what they have."""
        with self._changed:
            self._closed, self._refusal = True, self._refusal or refusal
            if refusal is None:
                self._changed.wait_for(lambda: self._writers == 0, FAREWELL)
