"""Where clusterctl keeps its own files on the launching machine."""

from __future__ import annotations

from pathlib import Path


def state_dir() -> Path:
    """Give the user's state directory of clusterctl, made or not; `XDG_STATE_HOME` moves it."""
    from platformdirs import user_state_path

    return user_state_path("clusterctl", appauthor=False)


def lab_dir() -> Path:
    """Give the directory that holds all labs of this user."""
    return state_dir() / "lab"
