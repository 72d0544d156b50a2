"""What one receiver gets of contents that are here, and of those that are still coming."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Tuple

from .hashing import Sha
from .peers import PART, PeerStream
from .received import Progress
from .store import Store

if TYPE_CHECKING:
    from ...protocol.messages.contents import ContentPart
    from ...protocol.messages.verbs import PlainClientFrame

RENAME_LIMIT = 0.5  # seconds for a content to get its name
WAIT_INTERVAL = 2.0  # seconds between two reports to a receiver that nothing has come here
SMALL_CONTENT = 1 << 16  # bytes; smaller contents travel together
GROUP_BYTES = 1 << 19
GROUP_CONTENTS = 4096  # contents in one frame


class Outgoing:
    """What one receiver gets; `held` is how much of a content it has already."""

    def __init__(self, store: Store, sizes: Dict[str, int], stream: PeerStream, held: Dict[Sha, int]) -> None:
        self._store, self._sizes, self._stream, self._held = store, sizes, stream, held
        self._waited = 0.0  # seconds that have not been reported

    def send(self, hashes: List[Sha], coming: FrozenSet[Sha]) -> None:
        """Send what is here, then the rest in the order in which it comes."""
        self._send_whole([sha for sha in hashes if sha not in coming])
        pending, count = {sha for sha in hashes if sha in coming}, 0
        while pending:
            with self._waiting():
                whole, unfinished, count = self._store.received.wait(pending, count, WAIT_INTERVAL)
            self._send_whole(whole)
            pending.difference_update(whole)
            for sha in unfinished:
                self._follow(sha)
                pending.discard(sha)
        done: PlainClientFrame = {"done": True}
        self._stream.send(done)

    def _send_whole(self, hashes: List[Sha]) -> None:
        """Send contents that are here, small ones together and without what the receiver holds.

        One that has gone is left out, and the receiver sees that.
        """
        group: List[Tuple[Sha, bytes]] = []
        for sha in hashes:
            try:
                source = open_content(self._store.path(sha))
            except OSError:
                continue
            try:
                size = os.fstat(source).st_size
                if size > SMALL_CONTENT:
                    self._send_parts(sha, source, self._held.get(sha, 0), size, size)
                else:
                    group.append((sha, os.pread(source, SMALL_CONTENT, 0)))
            finally:
                os.close(source)
            if len(group) >= GROUP_CONTENTS or sum(len(content) for _, content in group) > GROUP_BYTES:
                self._send_group(group)
                group = []
        if group:
            self._send_group(group)

    def _send_group(self, contents: List[Tuple[Sha, bytes]]) -> None:
        header: PlainClientFrame = {"blobs": [[sha, len(content)] for sha, content in contents]}
        self._stream.send(header, b"".join(content for _, content in contents))

    def _send_parts(self, sha: Sha, source: int, sent: int, end: int, size: int) -> None:
        """Send a content of `size` bytes from where it was sent up to `end`."""
        while sent < end:
            part = min(PART, end - sent)
            header: ContentPart = {"blob": sha, "last": sent + part >= size}
            self._stream.send_from_file(header, source, sent, part)
            sent += part

    def _follow(self, sha: Sha) -> None:
        """Send a content while it is written; begin again where what was written turned out wrong."""
        size, seen, source = self._sizes[sha], Progress("", self._held.get(sha, 0)), -1
        try:
            while seen.size < size:
                with self._waiting():
                    progress = self._store.received.wait_for_more(sha, seen, size, WAIT_INTERVAL)
                if progress.path != seen.path:
                    if seen.path:
                        self._send_again(sha)
                    if source >= 0:
                        os.close(source)
                    source, sent = -1, 0 if seen.path else seen.size
                    source, seen = self._open(sha, progress.path), Progress(progress.path, sent)
                if seen.size < progress.size:
                    self._send_parts(sha, source, seen.size, progress.size, size)
                    seen = progress
        finally:
            if source >= 0:
                os.close(source)

    def _open(self, sha: Sha, path: str) -> int:
        """Open a content by the name that it is written under, or the one that it has once it is whole.

        While it gets the other name, it may have neither. Returns -1 if nothing of it is here.
        """
        for name in (path, self._store.path(sha)) if path else ():
            with suppress(FileNotFoundError):
                return open_content(name)
        if path:
            time.sleep(RENAME_LIMIT)
            return open_content(self._store.path(sha))
        return -1

    def _send_again(self, sha: Sha) -> None:
        again: PlainClientFrame = {"again": sha}
        self._stream.send(again)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count how long contents take to come here, and report it: for the receiver's limit that does not count."""
        began = time.monotonic()
        yield
        self._waited += time.monotonic() - began
        while self._waited >= WAIT_INTERVAL:
            self._waited -= WAIT_INTERVAL
            if self._stream.deadline is not None:
                self._stream.deadline += WAIT_INTERVAL
            waiting: PlainClientFrame = {"wait": True}
            self._stream.send(waiting)


def open_content(path: str) -> int:
    """Open a file of the store, and no link in its place."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
