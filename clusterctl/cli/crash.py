"""Where the traceback of a bug goes: into a file, never onto the screen."""

from __future__ import annotations

import os
import traceback

from clusterctl.cli.places import state_dir


def write_crash(error: BaseException) -> str:
    """Write the traceback to a file of the user's and give its path."""
    folder = state_dir() / "crashes"
    path = folder / f"crash-{os.getpid()}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError as refusal:
        return f"(not written: {refusal})"
    return str(path)
