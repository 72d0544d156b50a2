"""One node at a time stages a name to a directory: nodes may share it, whether they share the work directory or not.

DIRECTORY/.clusterctl-lock-<hash of the name>   who holds its lock; removed at the end

The locks of the places of one node, also of those within each other, are in target_lock.py.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import select
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Callable, Iterator, List, Tuple, Union

from ...runtime.heartbeat import Heartbeat
from ...state.workdir import open_workdir, workdir_id
from .target_lock import MAX_BY, POLL_INTERVAL, UNSUPPORTED, hold_target

if TYPE_CHECKING:
    from ....protocol.messages.verbs import DownloadRequest, TakeRequest

MAX_HOLDERS = 3  # that are named to the client

PREFIX = ".clusterctl-lock-"


@contextmanager
def hold_staged(
    request: Union[TakeRequest, DownloadRequest],
    root: bytes,
    path: str,
    heartbeat: Heartbeat,
    is_lacking: Callable[[], bool],
) -> Iterator[None]:
    """Hold the locks of a path for what is staged while it lacks something; BrokenPipeError when the client leaves."""
    holders: List[str] = []

    def on_wait(by: str) -> None:
        heartbeat.step()
        if by not in holders and len(holders) < MAX_HOLDERS:
            holders.append(by)
            heartbeat.send({"held_by": by})
        if select.select([heartbeat.stream], [], [], 0)[0] and heartbeat.stream.receive() is None:
            raise BrokenPipeError(errno.EPIPE, "the client left")

    staged = request["staged"]
    if staged is None:
        is_lacking()
        yield
        return
    by, workdir = f"{staged['by']} ({request['node']})", open_workdir(request["workdir"])
    workdir_id(workdir)  # makes the mark without which `clean` removes nothing
    folder, name = os.fsdecode(root), os.path.basename(path)
    with hold_target(workdir, path, by, on_wait), hold_in_folder(folder, name, by, on_wait, is_lacking):
        yield


@contextmanager
def hold_in_folder(
    folder: str, name: str, by: str, on_wait: Callable[[str], None], is_needed: Callable[[], bool]
) -> Iterator[None]:
    """Hold the lock of a name in a directory if that is needed; after a wait, that is decided again without the lock.

    So all nodes that have waited compare what is there now at the same time.
    """
    path = os.path.join(folder, PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()[:16])
    descriptor, waited = -1, True
    try:
        while is_needed():
            descriptor, waited = _lock_file(path, by, on_wait)
            if descriptor < 0 or not waited:
                break
            _unlock_file(path, descriptor)
            descriptor = -1
        yield
    finally:
        if descriptor >= 0:
            _unlock_file(path, descriptor)


def _lock_file(path: str, by: str, on_wait: Callable[[str], None]) -> Tuple[int, bool]:
    """Return the descriptor of a locked file and whether it was waited for; -1 where that cannot be locked."""
    waited = False
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return -1, waited  # of another account, or nothing can be written here, which is reported later
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, by[:MAX_BY].encode("utf-8", "replace"))
                return descriptor, waited
        except BlockingIOError:
            waited = True
            on_wait(os.read(descriptor, MAX_BY).decode("utf-8", "replace"))
            time.sleep(POLL_INTERVAL)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                _unlock_file(path, descriptor)
                return -1, waited
            if error.errno != errno.ESTALE:  # removed by another node
                os.close(descriptor)
                raise
        os.close(descriptor)


def _unlock_file(path: str, descriptor: int) -> None:
    with suppress(OSError):
        os.unlink(path)
    os.close(descriptor)
