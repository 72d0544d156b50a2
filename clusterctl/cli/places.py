"""Where clusterctl keeps its own files on the launching machine."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def state_dir() -> Path:
    """Give the user's state directory of clusterctl, made or not; `XDG_STATE_HOME` moves it."""
    from platformdirs import user_state_path

    return user_state_path("clusterctl", appauthor=False)


def lab_dir() -> Path:
    """Give the directory that holds all labs of this user."""
    return state_dir() / "lab"


def own_id() -> str:
    """Give the random id of this user on this machine, made at the first use; empty where none can be kept."""
    path = state_dir() / "id"
    with suppress(OSError, UnicodeDecodeError):
        if not path.exists():
            with suppress(OSError):
                _make_id(path)
        return path.read_text(encoding="ascii").strip()[:64]
    return ""


def _make_id(path: Path) -> None:
    """Write aside and link: of two that do so at the same moment one wins, and both read the same."""
    from clusterctl.runs.aside import make_private

    make_private(path.parent)
    aside = path.with_name(f"id.{os.getpid()}")
    aside.write_text(f"{secrets.token_hex(8)}\n", encoding="ascii")
    try:
        os.link(aside, path)
    finally:
        aside.unlink()
