"""What is brought home, on the screen and as JSON."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.results.receive import Account
from clusterctl.console.progress import render_size
from clusterctl.console.terminal import is_quiet, wants_color
from clusterctl.console.text import sanitize
from clusterctl.console.verdict import render_stranded
from clusterctl.errors import ClusterctlError
from clusterctl.plans.sync.results import Outside, outside_to_json
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

if TYPE_CHECKING:
    from rich.status import Status

NAMED = 10  # paths of one kind that are named


class Progress:
    """One moving line on a terminal: bytes that have come, and from whom more is to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: Status | None = None
        self._waiting: list[str] = []
        self._come = self._expected = 0

    def begin(self, names: Sequence[str]) -> None:
        """Begin to show it, on a terminal."""
        self._waiting = list(names)
        if not is_quiet() and sys.stderr.isatty() and wants_color(sys.stderr):
            from clusterctl.console.terminal import err

            self._live = err().status(self._line())
            self._live.start()

    def expect(self, size: int) -> None:
        """Add to what is to come."""
        with self._lock:
            self._expected += size
            self._refresh()

    def move(self, count: int) -> None:
        """Note bytes that came."""
        with self._lock:
            self._come += count
            self._refresh()

    def arrive(self, name: str) -> None:
        """Note that all of a node is here."""
        with self._lock:
            if name in self._waiting:
                self._waiting.remove(name)
            self._refresh()

    def stop(self) -> None:
        """Take the line off the screen."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._line())

    def _line(self) -> str:
        sizes = f"{render_size(self._come)} of {render_size(self._expected)}"
        return f"pull: {sizes}, from {fold_names(self._waiting[:64])}"


def tell_account(name: str, account: Account, place: Path, *, whole: bool) -> None:
    """Say what came from a node, and on stderr what did not and why."""
    if account.is_empty and whole:
        print(sanitize(f"{name}: no outputs"), flush=True)
    elif whole or account.files:
        came = (
            f"{counted(account.files, 'file')}, {render_size(account.bytes)}"
            if account.files
            else "nothing new"
        )
        same = f"; {counted(account.unchanged, 'file')} unchanged" if account.unchanged else ""
        print(sanitize(f"{name}: {came}{same} -> {place}"), flush=True)
    refused = [f"{one.path}: {one.why}" for one in account.refused]
    for what, paths in (
        ("changed here, so left alone (--overwrite replaces it)", account.kept),
        ("written to while it was read, brought as it was", account.moving),
        ("NOT brought", refused),
    ):
        for path in paths[:NAMED]:
            _tell(_one_line(f"{name}: {what}: {path}"))
        if len(paths) > NAMED:
            _tell(f"{name}: {what}: {len(paths) - NAMED} more")


def tell_outside(outside: Mapping[str, Outside], run: str, command: str) -> None:
    """Say on stderr what a run has left outside the output directory, and was not asked for."""
    for line in render_stranded(outside, run, command):
        _tell(line)


def _tell(line: str) -> None:
    print(sanitize(line), file=sys.stderr, flush=True)


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


def pulled_to_json(
    run: str | None,
    job: str,
    target: Path,
    accounts: Mapping[str, Account],
    errors: Mapping[str, ClusterctlError],
    order: Sequence[str],
    outside: Mapping[str, Outside],
) -> dict[str, Any]:
    """Give `pull --json`."""
    nodes = [
        {
            **_node_to_json(name, accounts.get(name, Account()), errors.get(name)),
            "outside": outside_to_json(outside.get(name)),
        }
        for name in order
    ]
    return {"schema": 1, "run": run, "job": job, "directory": str(target), "nodes": nodes}


def _node_to_json(name: str, account: Account, error: ClusterctlError | None) -> dict[str, Any]:
    return {
        "node": name,
        "files": account.files,
        "bytes": account.bytes,
        "unchanged": account.unchanged,
        "changed_here": [_one_line(path) for path in account.kept],
        "written_to": [_one_line(path) for path in account.moving],
        "refused": [{"path": _one_line(one.path), "why": one.why} for one in account.refused],
        "error": f"{error.code} {error.message}" if error else None,
    }
