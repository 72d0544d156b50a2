"""Parts of generations from other nodes: as mirrors while the run goes on, in their places before it goes on again."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ....protocol.manifest import TreeEntry, encode_name
from ....protocol.messages.checkpoints import Address, KeeperSettings, Part, Restore, Seal
from ...runtime.stream import VerbError
from ..files_by_hash import Destination
from ..hashing import CHUNK, Sha
from ..removal import Step, remove_quietly
from ..staging.parts import find_parts, open_part, part_path
from ..staging.room import show_amount
from ..store import Store
from ..transfer import content_sizes, receive
from .mirror import Mirror

if TYPE_CHECKING:
    from ....protocol.messages.contents import Source

RETRY_DELAY = 1.0  # seconds between two rounds of all sources
NO_DATA_LIMIT = 240.0  # seconds without a byte, or an answer of all; less than a start waits (gang/limits.py)
MAX_FAILURES = 2  # of a source that answers
NO_SOURCE = Exception("no node has it")
WRONG_CONTENT = "CC-SYNC-009"  # what a source has is not what is needed
MAX_MARGIN = 1 << 30  # bytes that mirrors leave free at most
MARGIN_SHARE = 20  # of the file system, one such part is left free


Piece = Tuple[Part, List[TreeEntry]]


class CancelledError(Exception):
    """The hub or the agent no longer wants it."""


class Restored(NamedTuple):
    """What was put in its place."""

    path: str
    files: int
    bytes: int


class Transfer:
    """Takes contents from nodes that know the token, with so many bytes a second, until it is cancelled.

    `on_progress` is called several times a minute even where no bytes come.
    """

    def __init__(
        self,
        token: str,
        is_cancelled: Callable[[], bool],
        rate: Optional[float],
        on_progress: Step,
    ) -> None:
        self._token, self._is_cancelled, self._rate = token, is_cancelled, rate
        self._on_progress = on_progress
        self._came, self._began = 0, time.monotonic()

    def step(self) -> None:
        """Count a piece of work on this node; CancelledError if it is no longer wanted."""
        self._on_progress()
        if self._is_cancelled():
            raise CancelledError

    def _observe(self, size: int, _: float) -> bool:
        self._came += size
        self._on_progress()
        if self._rate:
            time.sleep(max(0.0, self._began + self._came / self._rate - time.monotonic()))
        return self._is_cancelled()

    def fetch(
        self, store: Store, sizes: Dict[Sha, int], missing: Set[Sha], sources: Tuple[Address, ...]
    ) -> Optional[Exception]:
        """Take what is missing from the first source that has it; return why it did not come."""
        problem: Optional[Exception] = NO_SOURCE
        for address in sources if missing else ():
            source: Source = {
                "address": address.address,
                "port": address.port,
                "token": self._token,
                "index": 1,
                "turn": 0,
            }
            problem = receive(store, sizes, missing, source, self._observe)
            if self._is_cancelled():
                store.abandon()
            self.step()
            if not missing:
                break
        return problem if missing else None

    def retry(
        self, store: Store, sizes: Dict[Sha, int], missing: Set[Sha], sources: Tuple[Address, ...]
    ) -> None:
        """Fetch what is missing, again and again as long as something comes; VerbError if nothing does.

        A source that has answered that it lacks a content, or has sent another one, is not asked a third time. Only
        if all have, the generation is at fault; one that is busy or unreachable may still have it.
        """
        problem: Exception = NO_SOURCE
        due = time.monotonic() + NO_DATA_LIMIT
        failures = dict.fromkeys(sources, 0)
        while missing:
            for source in [source for source in sources if failures[source] < MAX_FAILURES]:
                came = self._came
                problem = self.fetch(store, sizes, missing, (source,)) or problem
                if self._came > came:
                    due = time.monotonic() + NO_DATA_LIMIT
                failures[source] += isinstance(problem, VerbError) and problem.code == WRONG_CONTENT
                if not missing:
                    return
            if min(failures.values(), default=MAX_FAILURES) >= MAX_FAILURES:
                raise VerbError("CC-CKPT-013", f"no node gives the files: {problem}")
            if time.monotonic() > due:
                raise VerbError("CC-NET-030", f"no node gives the files: {problem}")
            time.sleep(RETRY_DELAY)


def fetch_manifest(
    mirror: Mirror, name: str, part: Part, fetch: Callable[[Dict[Sha, int], Set[Sha]], None]
) -> List[TreeEntry]:
    """Return the files of a part, whose manifest is here or comes from another node; VerbError if it is refused."""
    rows = mirror.rows(name, part)
    if rows is None:
        remove_quietly(mirror.store.path(part.manifest))
        fetch({part.manifest: part.size}, {part.manifest})
        rows = mirror.rows(name, part)
    if rows is None:
        raise VerbError("CC-CKPT-013", "the manifest is not the one of the seal")
    return rows


def mirror_part(
    mirror: Mirror, transfer: Transfer, name: str, part: Part, sources: Tuple[Address, ...]
) -> str:
    """Take a part as a mirror; return why it did not come. An OSError is the disk's."""

    def fetch(sizes: Dict[Sha, int], missing: Set[Sha]) -> None:
        problem = transfer.fetch(mirror.store, sizes, missing, sources)
        if problem:
            raise VerbError("CC-CKPT-011", str(problem))

    try:
        rows = fetch_manifest(mirror, name, part, fetch)
        sizes = content_sizes(rows)
        missing = {sha for sha, size in sizes.items() if not mirror.has_mirrored(sha, size)}
        check_margin(mirror.root, sum(sizes[sha] for sha in missing))
        fetch(sizes, missing)
        mirror.remember_mirrored(rows)
    except VerbError as error:
        if error.code == "CC-CKPT-010":
            raise
        return str(error)
    finally:
        mirror.store.abandon()
    return ""


def check_margin(root: str, needed: int) -> None:
    """Raise VerbError if a mirror would fill the disk, to which the script may write as well."""
    status = os.statvfs(root)
    margin = min(MAX_MARGIN, status.f_blocks * status.f_frsize // MARGIN_SHARE)
    free = status.f_bavail * status.f_frsize
    if needed and needed + margin > free:
        raise VerbError(
            "CC-CKPT-010",
            f"no room at {root}: {show_amount(needed + margin)} are needed, {show_amount(free)} are free",
        )


class Restoring:
    """Puts a generation in its place: what is there already stays, and the file that is written last comes last."""

    def __init__(self, mirror: Mirror, transfer: Transfer, folder: bytes, settings: KeeperSettings) -> None:
        self._mirror, self._transfer, self._folder, self._settings = mirror, transfer, folder, settings
        self._files = self._bytes = 0

    def restore(self, order: Restore, parts: List[Part]) -> Restored:
        """Restore some parts, of which the first wins where two have a file of one name."""
        seal = order.seal
        os.makedirs(self._folder, exist_ok=True)
        sources = {part.node_rank: part.sources for part in order.parts}
        pieces = [(part, self._fetch_rows(seal, part, sources.get(part.node_rank, ()))) for part in parts]
        if self._settings.needs == "own" and len(pieces) > 1:
            pieces = self._find_seen(pieces)
        taken: Set[str] = set()
        for number, (part, rows) in enumerate(pieces):
            pieces[number] = part, [row for row in rows if row.path not in taken]
            taken.update(row.path for row in rows)
        marker = f"{seal.name}/{self._settings.complete}"
        last = [(part, [row for row in rows if row.path == marker]) for part, rows in pieces]
        self._remove_other_marker(row for _, rows in last for row in rows)
        pieces = [(part, [row for row in rows if row.path != marker]) for part, rows in pieces]
        for part, rows in [*pieces, *last]:
            if rows:
                self._restore_files(rows, sources.get(part.node_rank, ()))
        return Restored(
            os.fsdecode(os.path.join(self._folder, encode_name(seal.name))), self._files, self._bytes
        )

    def _fetch_rows(self, seal: Seal, part: Part, sources: Tuple[Address, ...]) -> List[TreeEntry]:
        def fetch(sizes: Dict[Sha, int], missing: Set[Sha]) -> None:
            self._transfer.retry(self._mirror.store, sizes, missing, sources)

        try:
            return fetch_manifest(self._mirror, seal.name, part, fetch)
        finally:
            self._mirror.store.abandon()

    def _find_seen(self, pieces: List[Piece]) -> List[Piece]:
        """Return the part that a node without one sees in its place, or all; VerbError if they contradict."""
        for part, rows in pieces:
            if all(row.kind == "link" or self._mirror.is_unchanged(row) for row in rows):
                return [(part, rows)]
        files = {row for _, rows in pieces for row in rows}
        if len({row.path for row in files}) < len(files):
            raise VerbError(
                "CC-CKPT-013", "several nodes have a file of one name, and none is this node's own"
            )
        return pieces

    def _remove_other_marker(self, rows: Iterator[TreeEntry]) -> None:
        """Remove a marker that is not this generation's: with it a half restored one would seem whole."""
        for row in rows:
            path = self._mirror.path_of(row)
            with suppress(OSError):
                if self._mirror.hashes.hash(path, self._transfer.step)[0] != row.content:
                    os.unlink(path)

    def _restore_files(self, rows: List[TreeEntry], sources: Tuple[Address, ...]) -> None:
        hashes = self._mirror.hashes
        step = self._transfer.step
        with Destination(self._folder, rows, step, hashes, overwrite=True, private=False) as destination:
            sizes = content_sizes(rows)
            missing = {sha for sha, size in sizes.items() if not destination.has(sha, size)}
            destination.prepare(missing, sizes, step)
            for sha in sorted(missing):
                self._copy_mirrored(destination, sha, sizes[sha])
            missing = {sha for sha, size in sizes.items() if not destination.has(sha, size)}
            self._transfer.retry(destination, sizes, missing, sources)
            destination.finish(rows)
        report = destination.report
        if report["kept"]:
            raise VerbError("CC-COPY-003", f"{report['kept'][0]} is not a file")
        self._files, self._bytes = self._files + report["files"], self._bytes + report["bytes"]
        self._mirror.offer(rows)

    def _copy_mirrored(self, destination: Destination, sha: Sha, size: int) -> None:
        """Copy a content from the mirror, if it is there; one that turns out wrong is removed there."""
        try:
            source = os.open(self._mirror.store.path(sha), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            destination.drop(sha)
            left = size
            while left >= 0:
                self._transfer.step()
                data = os.read(source, min(CHUNK, left) or 1)
                left -= len(data)
                if not data and left:
                    raise VerbError("CC-SYNC-009", "a file became shorter")
                if destination.add(sha, data, size, last=not left):
                    return
        except VerbError:
            destination.drop(sha)
            remove_quietly(self._mirror.store.path(sha))
        finally:
            os.close(source)


def remove_parts(folder: bytes) -> None:
    """Remove what restores that were given up have left, for the next one to continue: there is none any more."""
    for sha in find_parts(os.fsdecode(folder)):
        path = part_path(os.fsdecode(folder), sha)
        descriptor = open_part(path, make=False)
        if descriptor >= 0:
            os.unlink(path)
            os.close(descriptor)


def parts_needed(seal: Seal, node_rank: int, needs: str) -> List[Part]:
    """Return the parts that a node needs: its own first, then the others, at each node from another one on.

    One without a part may have seen the files of another node; which one's is not written down.
    """
    count = max(1, len(seal.parts))
    ordered = sorted(seal.parts, key=lambda part: (part.node_rank - node_rank) % count)
    is_own = needs == "own" and any(part.files for part in ordered if part.node_rank == node_rank)
    return [part for part in ordered if part.files and (part.node_rank == node_rank or not is_own)]
