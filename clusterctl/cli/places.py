"""Where clusterctl keeps its own files on the launching machine; `runs.private_files` tells whether they are ours."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from clusterctl.errors import UsageError
from clusterctl.runs.private_files import NotOursError, check_base, check_private, read_own, write_once

LONGEST_ID = 64


def state_dir() -> Path:
    """Give the user's state directory of clusterctl, made or not; `XDG_STATE_HOME` moves it.

    Raises UsageError if somebody else could have put files there: hooks that are run, inventories of labs.
    """
    folder = _state_path()
    _refuse_foreign(folder)
    return folder


def lab_dir() -> Path:
    """Give the directory that holds all labs of this user; raises UsageError as `state_dir` does."""
    folder = state_dir() / "lab"
    _refuse_foreign(folder)
    return folder


def crash_dir() -> Path:
    """Give the directory for reports of bugs, made or not; raises NotOursError where it is not safe to write."""
    folder = _state_path()
    _check(folder)
    return folder / "crashes"


def own_id() -> str:
    """Give the random id of this user on this machine, made at the first use; empty where none can be kept."""
    path = state_dir() / "id"
    with suppress(OSError, UnicodeDecodeError):
        if not path.exists():
            write_once(path, f"{secrets.token_hex(8)}\n")
        return read_own(path, LONGEST_ID + 1).decode("ascii").strip()
    return ""


def _state_path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("clusterctl", appauthor=False)


def _check(folder: Path) -> None:
    check_base(folder.parent)
    check_private(folder)


def _refuse_foreign(folder: Path) -> None:
    try:
        _check(folder)
    except NotOursError as error:
        raise UsageError(
            f"{error.filename} {error.strerror}; clusterctl keeps there what it runs and believes",
            code="CC-USE-041",
            fix="set XDG_STATE_HOME to a directory of yours that others cannot write to; as another account "
            "(sudo): `sudo -H`",
        ) from error
    except OSError:
        pass  # it cannot be looked at: what cannot be read is not believed, and writing says why it fails
