"""What is brought home, on the screen and as JSON."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.results.receive import PullReport
from clusterctl.console.progress import render_size
from clusterctl.console.terminal import is_quiet, uses_color
from clusterctl.console.text import sanitize
from clusterctl.console.verdict import render_outside_note
from clusterctl.errors import ClusterctlError
from clusterctl.plans.sync.results import OutsideFiles, outside_to_json
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import plural

if TYPE_CHECKING:
    from rich.status import Status

MOST_PATHS = 10  # paths of one kind that are named


class PullProgress:
    """One moving line on a terminal: bytes that have come, and from whom more is to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._waiting: list[str] = []
        self._received = self._expected = 0

    def start(self, names: Sequence[str]) -> None:
        """Begin to show it, on a terminal."""
        self._waiting = list(names)
        if not is_quiet() and sys.stderr.isatty() and uses_color(sys.stderr):
            from clusterctl.console.terminal import stderr

            self._status = stderr().status(self._render())
            self._status.start()

    def add_expected(self, size: int) -> None:
        """Add to what is to come."""
        with self._lock:
            self._expected += size
            self._refresh()

    def add_received(self, count: int) -> None:
        """Note bytes that came."""
        with self._lock:
            self._received += count
            self._refresh()

    def mark_done(self, name: str) -> None:
        """Note that all of a node is here."""
        with self._lock:
            if name in self._waiting:
                self._waiting.remove(name)
            self._refresh()

    def stop(self) -> None:
        """Take the line off the screen."""
        with self._lock:
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _refresh(self) -> None:
        if self._status is not None:
            self._status.update(self._render())

    def _render(self) -> str:
        sizes = f"{render_size(self._received)} of {render_size(self._expected)}"
        return f"pull: {sizes}, from {fold_names(self._waiting[:64])}"


def report_pull(name: str, report: PullReport, directory: Path, *, complete: bool) -> None:
    """Say what came from a node, and on stderr what did not and why."""
    if report.is_empty and complete:
        print(sanitize(f"{name}: no outputs"), flush=True)
    elif complete or report.files:
        received = (
            f"{plural(report.files, 'file')}, {render_size(report.bytes)}" if report.files else "nothing new"
        )
        unchanged = f"; {plural(report.unchanged, 'file')} unchanged" if report.unchanged else ""
        print(sanitize(f"{name}: {received}{unchanged} -> {directory}"), flush=True)
    refused = [f"{refusal.path}: {refusal.reason}" for refusal in report.refused]
    for description, paths in (
        ("changed here, so left alone (--overwrite replaces it)", report.kept),
        ("written to while it was read, brought as it was", report.changing),
        ("NOT brought", refused),
    ):
        for path in paths[:MOST_PATHS]:
            _print_stderr(_escape_newlines(f"{name}: {description}: {path}"))
        if len(paths) > MOST_PATHS:
            _print_stderr(f"{name}: {description}: {len(paths) - MOST_PATHS} more")


def report_outside(outside: Mapping[str, OutsideFiles], run_id: str, command: str) -> None:
    """Say on stderr what a run has left outside the output directory, and was not asked for."""
    for line in render_outside_note(outside, run_id, command):
        _print_stderr(line)


def _print_stderr(line: str) -> None:
    print(sanitize(line), file=sys.stderr, flush=True)


def _escape_newlines(text: str) -> str:
    return text.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


def pull_to_json(
    run_id: str | None,
    job: str,
    target: Path,
    reports: Mapping[str, PullReport],
    errors: Mapping[str, ClusterctlError],
    node_names: Sequence[str],
    outside: Mapping[str, OutsideFiles],
) -> dict[str, Any]:
    """Give `pull --json`."""
    nodes = [
        {
            **_node_to_json(name, reports.get(name, PullReport()), errors.get(name)),
            "outside": outside_to_json(outside.get(name)),
        }
        for name in node_names
    ]
    return {"schema": 1, "run": run_id, "job": job, "directory": str(target), "nodes": nodes}


def _node_to_json(name: str, report: PullReport, error: ClusterctlError | None) -> dict[str, Any]:
    return {
        "node": name,
        "files": report.files,
        "bytes": report.bytes,
        "unchanged": report.unchanged,
        "changed_here": [_escape_newlines(path) for path in report.kept],
        "written_to": [_escape_newlines(path) for path in report.changing],
        "refused": [
            {"path": _escape_newlines(refusal.path), "why": refusal.reason} for refusal in report.refused
        ],
        "error": f"{error.code} {error.message}" if error else None,
    }
