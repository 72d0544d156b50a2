"""The hooks of runs that have not ended, one small file per run on the launching machine; names, never secrets."""

from __future__ import annotations

import json
import time
from pathlib import Path

from clusterctl.plans.hooks import Hooks, hooks_from_record, to_record
from clusterctl.protocol.run_id import RunId, job_of, parse_run_id
from clusterctl.runs.private_files import (
    check_private,
    forget_older,
    is_own,
    make_private,
    read_own,
    take_own,
    write_own,
)

OLDEST = 90 * 86400.0  # seconds after which a run that nobody attached to is forgotten
LARGEST = 1 << 20


def keep_hooks(folder: Path, run: RunId, hooks: Hooks) -> None:
    """Write down what is to be done at the end of a run; raises OSError."""
    make_private(folder)
    forget_older(folder, "*", time.time() - OLDEST)
    file = _file(folder, run)
    if file is None or not _is_of(hooks, run):
        raise OSError(22, "it is not the name of a run of this job", run)
    write_own(file, json.dumps(to_record(hooks)))  # ASCII: a path may hold bytes that are no text


def has_hooks(folder: Path, run: RunId) -> bool:
    """Tell whether something is still to be done for a run; raises NotOursError."""
    check_private(folder)
    file = _file(folder, run)
    return file is not None and is_own(file)


def take_hooks(folder: Path, run: RunId) -> Hooks | None:
    """Take what is to be done, so that of several who see the end of a run one alone does it.

    What is not the hooks of this run stays where it is. Raises NotOursError where somebody else could have written.
    """
    check_private(folder)
    file = _file(folder, run)
    hooks = _read(file) if file else None
    if file is None or hooks is None or not _is_of(hooks, run):
        return None
    return hooks if take_own(file) else None


def _file(folder: Path, run: RunId) -> Path | None:
    """Name the file; the name of a run may come from a node, so that its form is looked at here once more."""
    return folder / f"{run}.json" if parse_run_id(run) else None


def _is_of(hooks: Hooks, run: RunId) -> bool:
    return job_of(run) == hooks.job


def _read(file: Path) -> Hooks | None:
    try:
        return hooks_from_record(json.loads(read_own(file, LARGEST)))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
