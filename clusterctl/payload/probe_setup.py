"""The environment that the job's `setup` makes: is it here, and if so, its packages in place of this Python's own."""

from __future__ import annotations

import os
import sys
from typing import Any

from .environments import find_made, folder_of
from .probe_ask import list_folder, read_text

LIBRARIES = ("site-packages", "dist-packages")


def enter(workdir: str, wish: dict[str, Any] | None) -> dict[str, Any] | None:
    """Look for the environment, and from now on for packages where its Python would; `None` if none is wished for."""
    if not wish:
        return None
    made = find_made(folder_of(os.path.realpath(os.path.expanduser(workdir)), str(wish["content"])))
    if made is None:
        return {"made": False}
    look_into(made.prefix)
    return {"made": True, "prefix": made.prefix}


def look_into(prefix: str) -> None:
    """Find packages as the environment's Python does: its own first, the others only if it sees them."""
    settings = read_text(os.path.join(prefix, "pyvenv.cfg")) or ""
    sees_others = "include-system-site-packages = true" in settings
    kept = [path for path in sys.path if sees_others or os.path.basename(path) not in LIBRARIES]
    folders = [path for lib in ("lib", "lib64") for path in list_folder(os.path.join(prefix, lib), "python*")]
    own = [os.path.join(folder, "site-packages") for folder in folders]
    sys.path[:] = [*dict.fromkeys(filter(os.path.isdir, map(os.path.realpath, own))), *kept]
