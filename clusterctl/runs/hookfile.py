"""The hooks of runs that have not ended, one small file per run on the launching machine; names, never secrets."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from clusterctl.plans.hooks import Hooks, hooks_from_record, to_record
from clusterctl.protocol.run_id import RunId
from clusterctl.runs.aside import make_private

OLDEST = 90 * 86400.0  # seconds after which a run that nobody attached to is forgotten


def keep_hooks(folder: Path, run: RunId, hooks: Hooks) -> None:
    """Write down what is to be done at the end of a run; raises OSError."""
    make_private(folder)
    _forget_old(folder)
    aside = folder / f"{run}.{os.getpid()}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as sink:
        json.dump(to_record(hooks), sink)  # ASCII: a path may hold bytes that are no text
    aside.replace(folder / f"{run}.json")


def has_hooks(folder: Path, run: RunId) -> bool:
    """Tell whether something is still to be done for a run."""
    return (folder / f"{run}.json").exists()


def take_hooks(folder: Path, run: RunId) -> Hooks | None:
    """Take what is to be done, so that of several who see the end of a run one alone does it."""
    taken = folder / f"{run}.taken-{os.getpid()}"
    try:
        (folder / f"{run}.json").rename(taken)
        raw = json.loads(taken.read_text(encoding="ascii"))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        with suppress(OSError):
            taken.unlink(missing_ok=True)
    return hooks_from_record(raw)


def _forget_old(folder: Path) -> None:
    for file in folder.iterdir():
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > OLDEST:
                file.unlink()
