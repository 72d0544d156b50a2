"""The runs that this machine has seen, for shell completion, which must not wait for a node."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from clusterctl.cli.context.load import state_dir
from clusterctl.client.local.private_files import read_own, write_own
from clusterctl.errors import UsageError
from clusterctl.protocol.run_id import RunId, parse_run_id

MAX_RUNS = 200
MAX_BYTES = 64 << 10
FILE_NAME = "known_runs"  # one run id a line, newest first


def known_runs() -> list[RunId]:
    """Read the runs, newest first; none where the file is missing, damaged or not ours."""
    with suppress(OSError, UsageError, UnicodeDecodeError):
        lines = read_own(state_dir() / FILE_NAME, MAX_BYTES).decode("ascii").splitlines()
        return [run_id for run_id in map(parse_run_id, lines) if run_id is not None]
    return []


def remember_runs(run_ids: Iterable[RunId]) -> None:
    """Add runs; where nothing can be written there is only nothing to complete."""
    known = known_runs()
    runs = sorted({*known, *run_ids}, key=_start_time, reverse=True)[:MAX_RUNS]
    if runs != known:
        with suppress(OSError, UsageError):
            write_own(state_dir() / FILE_NAME, "".join(f"{run_id}\n" for run_id in runs))


def _start_time(run_id: RunId) -> tuple[str, str]:
    return run_id.rsplit("-", 2)[1], run_id
