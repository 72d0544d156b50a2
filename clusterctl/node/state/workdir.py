"""The directory that holds everything of clusterctl on a node: made private, never followed elsewhere."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any, Dict, Optional

from ...protocol.run_paths import RunPaths, WorkdirPaths
from ...protocol.untrusted import MalformedError, parse_json
from ..runtime.stream import DISK_ERRORS, VerbError

# of a JSON file; a record of many thousand ranks is far smaller
MAX_FILE, MAX_VALUES = 64 << 20, 2_000_000  # bytes, values of JSON
DISK_RESERVE_BYTES = 256 << 10
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_workdir(text: str) -> str:
    """Return the absolute path of the work directory, made if need be; `~` is the account's home."""
    path = os.path.realpath(os.path.expanduser(text))
    _make_parents(path)
    return make_private(path)


def make_private(path: str) -> str:
    """Make one directory with mode 0700, or verify that the one there is ours alone to write."""
    try:
        _make_directory(path)
    except FileExistsError:
        _verify_own(path)
    return path


def make_shared(text: str) -> str:
    """Return the absolute path of a directory, made private if need be; whom it is shared with is the user's."""
    path = os.path.realpath(os.path.expanduser(text))
    _make_parents(os.path.join(path, "."))
    return path


def make_below(root: str, *names: str) -> str:
    """Make a chain of private directories; every name must be a single path component."""
    path = root
    for name in names:
        path = make_private(os.path.join(path, component(name)))
    return path


def component(name: str) -> str:
    """Return a name that is safe as one component of a path."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise VerbError("CC-RUN-010", f"not a usable name: {name!r}")
    return name


def write_atomically(path: str, content: bytes, *, durable: bool = False) -> None:
    """Write aside and rename; a reader sees the old content or the new, mode 0600."""
    temporary = temporary_path(path)
    write_new(temporary, content, durable=durable)
    os.replace(temporary, path)


def temporary_path(path: str) -> str:
    """Name a file beside `path` that nothing else writes; a pid would not do: other nodes may share the directory."""
    return f"{path}.{os.urandom(8).hex()}.new"


def workdir_id(workdir: str) -> str:
    """Return the random id of a work directory, by which nodes that share it are known; empty if it has none."""
    path = WorkdirPaths(workdir).id
    with suppress(OSError, UnicodeDecodeError):
        if not os.path.exists(path):
            temporary = temporary_path(path)
            write_new(temporary, os.urandom(8).hex().encode("ascii"))
            try:
                os.link(temporary, path)  # of several nodes one wins, and all read the same
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
        return (read_bytes(path) or b"").decode("ascii")
    return ""


def write_new(path: str, content: bytes, *, durable: bool = False) -> None:
    """Write a file that must not exist yet; nothing is left of it if that fails."""
    descriptor = os.open(path, NEW_FILE_FLAGS, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(content)
            sink.flush()
            if durable:
                os.fsync(sink.fileno())
    except OSError as error:
        os.unlink(path)
        raise OSError(error.errno, error.strerror, path) from error


def reserve_disk(rundir: str) -> None:
    """Keep some room for the last words, should the disk be full by then."""
    with suppress(OSError):
        # zeros might take no room
        write_new(RunPaths(rundir).disk_reserve, os.urandom(DISK_RESERVE_BYTES))


def release_disk_reserve(rundir: str) -> None:
    """Make that room."""
    with suppress(OSError):
        os.unlink(RunPaths(rundir).disk_reserve)


def read_bytes(path: str) -> Optional[bytes]:
    """Read a file that is not a symbolic link; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as source:
        return source.read()


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Read a JSON object; None if there is no file or it is not one."""
    return parse_dict(read_bytes(path) or b"")


def parse_dict(content: bytes) -> Optional[Dict[str, Any]]:
    """Parse a JSON object that another node may have written; None if it is none within bounds."""
    try:
        value = parse_json(content, MAX_FILE, MAX_VALUES)
    except MalformedError:
        return None
    return value if isinstance(value, dict) else None


def _make_parents(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make_parents(parent)
        with suppress(FileExistsError):
            _make_directory(parent)


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        raise
    except OSError as error:
        code = "CC-DISK-001" if error.errno in DISK_ERRORS else "CC-DISK-002"
        raise VerbError(code, f"cannot make directory {path}: {error.strerror}") from None


def _verify_own(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise VerbError("CC-DISK-002", f"{path} is not a directory")
    if status.st_uid != os.geteuid():
        raise VerbError("CC-DISK-002", f"{path} belongs to another account (uid {status.st_uid})")
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise VerbError("CC-DISK-002", f"{path} can be written by others (mode {mode:04o}); chmod go-w it")
