"""The agent's part of Ray and mpirun: what the node's program is given, and directories for sockets and shared memory.

Ray puts sockets and logs below one directory. The path of a Unix socket has at most 107 characters, of which Ray takes
65, so the directory is not the run's own but a short one in /tmp. It is removed once the last of the run's nodes that
use it has ended (two nodes may be one machine): each agent holds a shared lock on it, see `state/temp_dirs`. Other
accounts cannot know the name before the directory is there, and so cannot take it. Ray opens its own directory to every
account, so it is below one that is closed. What Ray logged is copied into the run's directory before.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, Iterator, List

from ....protocol.run_paths import RunPaths
from ...runtime.connections import prove
from ...runtime.stream import VerbError
from ...state import temp_dirs

if TYPE_CHECKING:
    from ....protocol.messages.files import Spec
    from ....protocol.messages.local import MpiOrder, RayOrder

SECRET_LENGTH = 8  # characters at the end of the name
OWN = "r"  # what Ray gets, and makes writable for everyone
LOGS = "ray"  # in the attempt's directory
MAX_FILES, MAX_FILE = 200, 512 << 10  # of Ray's logs; bytes, of each the end
COLLECT_LIMIT = 20.0  # seconds


def temp_dir(run_id: str, attempt: int, token: str) -> str:
    """Name Ray's directory; it is the same on all nodes, because older Rays use the head's on every node."""
    secret = prove(token.encode("utf-8"), "temporary files", run_id, attempt)[:SECRET_LENGTH]
    name = "%s%s-%s" % (temp_dirs.own_prefix(run_id), attempt, secret)
    return os.path.join(temp_dirs.TEMPORARY, name)


def make_order(spec: Spec, head: str, port: int, token: str) -> RayOrder:
    """Make what the program is given at GO."""
    return {
        **spec["ray"],
        "address": spec["address"] or head,
        "head": "%s:%s" % (head, port),
        "nodes": spec["nnodes"],
        "token": _make_secret("ray", spec, token),
        "temp_dir": os.path.join(temp_dir(spec["run"], spec["attempt"], token), OWN),
    }


def needs_temporary_files(spec: Spec) -> bool:
    """Return whether the launcher has such a directory."""
    return "ray" in spec or "mpi" in spec


def make_mpi_order(spec: Spec, head: str, port: int, token: str) -> MpiOrder:
    """Make what the program of a job under mpirun is given at GO."""
    folder = temp_dir(spec["run"], spec["attempt"], token)
    return {
        "head": "%s:%s" % (head, port),
        "key": _make_secret("mpi", spec, token),
        "node": spec["node"],
        "nic": spec["nic"],
        "grace": float(spec["grace"]),
        **spec["mpi"],
        "temp_dir": os.path.join(folder, OWN),
        "shared_memory": shared_memory_dir(folder),
    }


def _make_secret(purpose: str, spec: Spec, token: str) -> str:
    """Make a secret of an attempt, the same on all nodes, of what the nodes of a run prove to each other."""
    return prove(token.encode("utf-8"), purpose, spec["run"], spec["attempt"])


class TemporaryFiles:
    """The directories during one attempt: in /tmp, and of mpirun in /dev/shm too."""

    def __init__(self, rundir: str, spec: Spec, token: str) -> None:
        self._own = temp_dir(spec["run"], spec["attempt"], token)
        self._folders = [self._own, *([shared_memory_dir(self._own)] if "mpi" in spec else [])]
        self._logs = os.path.join(RunPaths(rundir).attempt(spec["attempt"]), LOGS)
        self._held: Dict[str, int] = {}

    def hold(self) -> None:
        """Make the directories, and keep them until `remove`."""
        for folder in self._folders if not self._held else ():
            self._held[folder] = _hold(folder)

    def collect(self) -> None:
        """Copy the end of each of Ray's logs into the run's directory; remove the directories, and what others left."""
        with suppress(OSError):
            copy_logs(os.path.join(self._own, OWN), self._logs)
        self.remove()
        temp_dirs.remove_all(temp_dirs.PREFIX)

    def remove(self) -> None:
        """Remove the directories, unless another node of this run still uses them."""
        while self._held:
            temp_dirs.remove_unused(*self._held.popitem())


def shared_memory_dir(folder: str) -> str:
    """Return the directory in which ranks of one node share memory; a directory in /tmp where there is no /dev/shm."""
    parent, name = temp_dirs.SHARED_MEMORY, os.path.basename(folder)
    return os.path.join(parent, name) if os.path.isdir(parent) else folder + ".shm"


def _hold(folder: str) -> int:
    """Make a directory and lock it; another run of ours may find it before it is locked, and remove it."""
    while True:
        with suppress(FileExistsError):  # a node of this run that shares /tmp
            os.mkdir(folder, 0o700)
        try:
            descriptor = temp_dirs.open_own(folder)
        except FileNotFoundError:
            continue
        except PermissionError:
            raise VerbError("", "%s belongs to another account" % folder) from None
        except OSError as error:
            raise VerbError("", "cannot use %s: %s" % (folder, error.strerror)) from None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor
        os.close(descriptor)


def copy_logs(folder: str, target: str) -> None:
    """Copy the end of each log of a Ray session; it wrote them for itself, so links and other files are left out."""
    for path in list_logs(folder)[:MAX_FILES]:
        with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - MAX_FILE))
            content = source.read(MAX_FILE)
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
