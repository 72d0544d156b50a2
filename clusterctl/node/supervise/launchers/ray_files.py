"""The agent's part of Ray: what the node's program is given, the directory of Ray's sockets and logs, and its end.

Ray puts sockets and logs below one directory. The path of a Unix socket has at most 107 characters, of which Ray takes
65, so the directory is not the run's own but a short one in /tmp. It is removed once the last of the run's nodes that
use it has ended (two nodes may be one machine): each agent holds a shared lock on it. Ray opens its own directory
to every account, so it is below one that is closed. What Ray logged is copied into the run's directory before.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Iterator, List, Optional

from ....protocol.run_paths import RunPaths

if TYPE_CHECKING:
    from ....protocol.messages.files import Spec
    from ....protocol.messages.local import RayOrder

TEMPORARY = "/tmp"  # only a directory there that is ours and closed to others is used
PREFIX = "cc-ray-"
OWN = "r"  # what Ray gets, and makes writable for everyone
LOGS = "ray"  # in the attempt's directory
MOST_FILES, LARGEST_FILE = 200, 512 << 10  # of Ray's logs; bytes, of each the end
COLLECT_LIMIT = 20.0  # seconds


def temp_dir(run_id: str, attempt: int) -> str:
    """Name Ray's directory; it is the same on all nodes, because older Rays use the head's on every node."""
    return os.path.join(TEMPORARY, "%s%s" % (_own_prefix(run_id), attempt))


def _own_prefix(run_id: str) -> str:
    return "%s%s-" % (PREFIX, hashlib.sha256(run_id.encode("utf-8")).hexdigest()[:10])


def make_order(spec: Spec, head: str, port: int) -> RayOrder:
    """Make what the program is given at GO."""
    ray = spec["ray"]
    return {
        "address": spec["address"] or head,
        "head": "%s:%s" % (head, port),
        "nodes": spec["nnodes"],
        "gpus": ray["gpus"],
        "all_gpus": ray["all_gpus"],
        "ports": ray["ports"],
        "own_ports": ray["own_ports"],
        "names": ray["names"],
        "temp_dir": os.path.join(temp_dir(spec["run"], spec["attempt"]), OWN),
    }


class RayFiles:
    """Ray's directory during one attempt."""

    def __init__(self, rundir: str, spec: Spec) -> None:
        self._folder = temp_dir(spec["run"], spec["attempt"])
        self._logs = os.path.join(RunPaths(rundir).attempt(spec["attempt"]), LOGS)
        self._held: Optional[int] = None

    def hold(self) -> None:
        """Make the directory, and keep it until `remove`."""
        if self._held is None:
            with suppress(FileExistsError):  # a node of this run that shares /tmp
                os.mkdir(self._folder, 0o700)
            self._held = _open_own(self._folder)
            fcntl.flock(self._held, fcntl.LOCK_SH)

    def collect(self) -> None:
        """Copy the end of each of Ray's logs into the run's directory, and remove Ray's own."""
        with suppress(OSError):
            copy_logs(os.path.join(self._folder, OWN), self._logs)
        self.remove()

    def remove(self) -> None:
        """Remove the directory, unless another node of this run still uses it."""
        if self._held is not None:
            _remove_unused(self._folder, self._held)
            self._held = None


def remove_all(run_id: str) -> None:
    """Remove what a run has left of such directories; for when its agent could not."""
    with suppress(OSError):
        for name in os.listdir(TEMPORARY):
            if name.startswith(_own_prefix(run_id)):
                folder = os.path.join(TEMPORARY, name)
                with suppress(OSError):
                    _remove_unused(folder, _open_own(folder))


def _open_own(folder: str) -> int:
    """Open a directory that is ours alone; OSError for one that another account has put there."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise PermissionError("%s belongs to another account, or is open to others" % folder)
    return descriptor


def _remove_unused(folder: str, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # in use
        pass
    finally:
        os.close(descriptor)


def copy_logs(folder: str, target: str) -> None:
    """Copy the end of each log of a Ray session; it wrote them for itself, so links and other files are left out."""
    for path in list_logs(folder)[:MOST_FILES]:
        with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - LARGEST_FILE))
            content = source.read(LARGEST_FILE)
            os.makedirs(target, 0o700, exist_ok=True)
            new = os.open(
                os.path.join(target, os.path.basename(path)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with open(new, "wb") as sink:
                sink.write(content)


def list_logs(folder: str) -> List[str]:
    """Name the logs that are not empty: those of Ray's own processes first, then those of its workers."""
    found = [
        entry for name in os.listdir(folder) if name.startswith("session_2") for entry in _scan(folder, name)
    ]
    regular = [entry for entry in found if entry.is_file(follow_symlinks=False) and entry.stat().st_size]
    return [entry.path for entry in sorted(regular, key=lambda entry: ("worker" in entry.name, entry.name))]


def _scan(folder: str, session: str) -> Iterator[os.DirEntry[str]]:
    try:
        yield from os.scandir(os.path.join(folder, session, "logs"))
    except OSError:
        return
