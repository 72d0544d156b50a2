"""Our own directories on this machine: nothing in them is trusted or written before they are known to be ours.

    $XDG_STATE_HOME/            BASE     ours or root's, and writable by no other account
        clusterctl/             PRIVATE  ours, no link, and writable by no other account
            ends/ specs/ ...    PRIVATE
                a file          OWN      ours, no link, an ordinary file, not larger than expected

Another account that could write into one of them could have us run a command (`ends` holds what to do when a run ends).
As in sshd, a group without any member but its user is not another account.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clusterctl.translation import tr

MAX_FILE_SIZE = 64 << 20
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
EXISTING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in its place must not block us
ROOT = 0


class NotOursError(PermissionError):
    """A directory or file of ours belongs to, or can be written by, another account; `filename` names it."""


def check_base(folder: Path) -> None:
    """Raise NotOursError if others can put something into the directory that ours are in; a missing one is fine."""
    with suppress(FileNotFoundError, NotADirectoryError):
        folder_stat = folder.stat()  # a link to a directory elsewhere is the user's choice
        # as /tmp: others add to it, but replace nothing of ours
        sticky = bool(folder_stat.st_mode & stat.S_ISVTX)
        _check(folder, folder_stat, (os.geteuid(), ROOT), others_may_add=sticky)


def check_not_planted(file: Path) -> None:
    """Raise NotOursError if another account could have put a file there that was not named, or can change it.

    A link is judged itself, and so is what it leads to.
    """
    check_base(file.parent)
    owners = (os.geteuid(), ROOT)
    with suppress(FileNotFoundError, NotADirectoryError):
        is_link = file.is_symlink()
        _check(file, file.lstat(), owners, others_may_add=is_link)  # every link has the mode 0777
        if is_link:
            target = file.resolve()
            check_base(target.parent)
            _check(target, target.stat(), owners)


def check_private(folder: Path) -> None:
    """Raise NotOursError if a directory of ours is not ours alone to write; a missing one is fine."""
    with suppress(FileNotFoundError, NotADirectoryError):
        folder_stat = folder.lstat()
        if not stat.S_ISDIR(folder_stat.st_mode):
            raise _not_ours(
                folder, tr("is a link") if stat.S_ISLNK(folder_stat.st_mode) else tr("is not a directory")
            )
        _check(folder, folder_stat, (os.geteuid(),))


def make_private(folder: Path) -> None:
    """Make a directory and those above it that are missing, all for us alone; NotOursError if it is not ours."""
    try:
        if not folder.parent.is_dir():
            make_private(folder.parent)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        check_private(folder)


def read_own(file: Path, max_bytes: int = MAX_FILE_SIZE) -> bytes:
    """Read a file of ours; NotOursError if another account owns it or can change it, or if it is too large."""
    descriptor = os.open(file, EXISTING)
    with os.fdopen(descriptor, "rb") as source:
        _check_file(file, os.fstat(descriptor))
        content = source.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _not_ours(file, tr("is larger than {limit} bytes", limit=max_bytes))
    return content


def is_own(file: Path) -> bool:
    """Return whether a file of ours is there."""
    try:
        _check_file(file, file.lstat())
    except OSError:
        return False
    return True


def write_own(file: Path, content: str | bytes) -> None:
    """Replace a file in a directory of ours, which is made if it is missing."""
    make_private(file.parent)
    write_atomically(file, content)


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write a temporary file and rename it, mode 0600: a reader gets the old content or the new, never half of it."""
    _write(file, content, lambda aside: aside.replace(file))


def write_once(file: Path, content: str | bytes) -> None:
    """Write a file in a directory of ours unless it is there: of several who do so at once one wins."""
    make_private(file.parent)
    with suppress(FileExistsError):
        _write(file, content, file.hardlink_to)


def append_own(file: Path, content: str, max_bytes: int) -> None:
    """Add to a file in a directory of ours, unless it has grown to `max_bytes` bytes."""
    make_private(file.parent)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    with os.fdopen(descriptor, "ab") as sink:
        file_stat = os.fstat(descriptor)
        _check_file(file, file_stat)
        if file_stat.st_size < max_bytes:
            sink.write(content.encode("utf-8", "backslashreplace"))


def claim_own(file: Path) -> bool:
    """Remove a file of ours; of several processes that do so at once only one gets True."""
    renamed = _temporary_name(file)
    try:
        file.rename(renamed)
    except FileNotFoundError:
        return False
    renamed.unlink()
    return True


def keep_newest(folder: Path, max_files: int) -> None:
    """Remove the oldest files of a directory of ours; what cannot go stays."""
    with suppress(OSError):
        check_private(folder)
        files = sorted(folder.iterdir(), key=lambda file: -file.lstat().st_mtime_ns)
        for file in files[max_files:]:
            with suppress(OSError):
                file.unlink()


def remove_older(folder: Path, pattern: str, before: float) -> None:
    """Remove the files of a directory of ours that were last changed before a time; what cannot go stays."""
    with suppress(OSError):
        check_private(folder)
        for file in folder.glob(pattern):
            with suppress(OSError):
                if is_own(file) and file.lstat().st_mtime < before:
                    file.unlink()


def _write(file: Path, content: str | bytes, install: Callable[[Path], object]) -> None:
    temporary = _temporary_name(file)
    descriptor = os.open(temporary, NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(content.encode("utf-8") if isinstance(content, str) else content)
        install(temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_name(file: Path) -> Path:
    return file.with_name(f".writing-{os.urandom(8).hex()}")


def _check_file(file: Path, file_stat: os.stat_result) -> None:
    if not stat.S_ISREG(file_stat.st_mode):
        raise _not_ours(file, tr("is not a regular file"))
    if file_stat.st_uid != os.geteuid():
        raise _not_ours(file, tr("belongs to another account (uid {uid})", uid=file_stat.st_uid))
    # a mode alone opens no file to those who cannot enter its directory
    if _others_write(file_stat) and file.parent.stat().st_mode & 0o011:
        raise _not_ours(file, _describe_mode(file_stat))


def _check(
    folder: Path, folder_stat: os.stat_result, owners: tuple[int, ...], *, others_may_add: bool = False
) -> None:
    if folder_stat.st_uid not in owners:
        raise _not_ours(folder, tr("belongs to another account (uid {uid})", uid=folder_stat.st_uid))
    if _others_write(folder_stat) and not others_may_add:
        raise _not_ours(folder, _describe_mode(folder_stat))


def _describe_mode(path_stat: os.stat_result) -> str:
    mode = stat.S_IMODE(path_stat.st_mode)
    return tr("can be written by other users (mode {mode:04o}); run `chmod go-w` on it", mode=mode)


def _others_write(path_stat: os.stat_result) -> bool:
    if path_stat.st_mode & 0o002:
        return True
    return bool(path_stat.st_mode & 0o020) and not _is_ours_alone(path_stat.st_gid)


def _is_ours_alone(gid: int) -> bool:
    """Return whether a group was made for our account, as many systems do, and has no other member."""
    import grp
    import pwd

    try:
        account, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    is_user_group = gid == account.pw_gid and group.gr_name == account.pw_name
    return is_user_group and not set(group.gr_mem) - {account.pw_name}


def _not_ours(path: Path, reason: str) -> NotOursError:
    return NotOursError(1, reason, str(path))
