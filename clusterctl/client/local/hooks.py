"""The hooks of a run, kept in a private file until a command of ours has seen its end."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from clusterctl.client.local.private_files import (
    check_private,
    claim_own,
    is_own,
    make_private,
    read_own,
    remove_older,
    write_own,
)
from clusterctl.plans.notify import Hooks, hooks_from_record, hooks_to_record
from clusterctl.protocol.run_id import RunId, job_name_of, parse_run_id
from clusterctl.translation import tr

MAX_HOOK_AGE = 90 * 86400.0  # seconds after which the hooks of a run without an attached client are removed
MAX_HOOKS_SIZE = 1 << 20


def save_hooks(folder: Path, run_id: RunId, hooks: Hooks) -> None:
    """Write down what is to be done at the end of a run; raises OSError."""
    make_private(folder)
    remove_older(folder, "*", time.time() - MAX_HOOK_AGE)
    file = _hooks_file(folder, run_id)
    if file is None or not _belongs_to(hooks, run_id):
        raise OSError(22, tr("this is not the name of a run of this job"), run_id)
    write_own(file, json.dumps(hooks_to_record(hooks)))  # ASCII: a path may hold bytes that are no text


def has_hooks(folder: Path, run_id: RunId) -> bool:
    """Return whether something is still to be done for a run; raises NotOursError."""
    check_private(folder)
    file = _hooks_file(folder, run_id)
    return file is not None and is_own(file)


def claim_hooks(folder: Path, run_id: RunId) -> Hooks | None:
    """Take what is to be done, so that of several who see the end of a run one alone does it.

    What is not the hooks of this run stays where it is. Raises NotOursError where another account could have written.
    """
    hooks = _load_hooks(folder, run_id)
    return hooks if hooks is not None and claim_own(folder / f"{run_id}.json") else None


def claim_stall(folder: Path, run_id: RunId, minute: int) -> Hooks | None:
    """Read what is to be sent about a stall that began at a minute, once for all who see it; None for the others."""
    hooks = _load_hooks(folder, run_id)
    if hooks is None:
        return None
    try:
        os.close(os.open(folder / f"{run_id}.{minute}.stalled", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    return hooks


def _hooks_file(folder: Path, run_id: RunId) -> Path | None:
    """Name the file; the name of a run may come from a node, so that its form is looked at here once more."""
    return folder / f"{run_id}.json" if parse_run_id(run_id) else None


def _belongs_to(hooks: Hooks, run_id: RunId) -> bool:
    return job_name_of(run_id) == hooks.job


def _load_hooks(folder: Path, run_id: RunId) -> Hooks | None:
    """Read the hooks of a run; None if there are none, or it is not theirs."""
    check_private(folder)
    file = _hooks_file(folder, run_id)
    try:
        hooks = hooks_from_record(json.loads(read_own(file, MAX_HOOKS_SIZE))) if file else None
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return hooks if hooks is not None and _belongs_to(hooks, run_id) else None
