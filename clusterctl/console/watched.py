"""A run's state as it changes: a table that redraws itself on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from clusterctl.console.choice import out, wants_color
from clusterctl.console.jsontext import json_text
from clusterctl.console.runs import describe_node, render_status, show_status, status_to_json
from clusterctl.plans.state import NodeState, whole_state
from clusterctl.protocol.run_id import RunId

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

Parts = Mapping[str, NodeState | None]


class Board(Protocol):
    """Shows the parts of a run whenever one of them has changed."""

    def show(self, parts: Parts) -> None:
        """Show how things stand now."""

    def __enter__(self) -> Board:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""


def make_board(run: RunId, offsets: Mapping[str, float], *, as_json: bool) -> Board:
    """Choose how to show a run: NDJSON, a live table, or lines."""
    if as_json:
        return JsonBoard(run, offsets)
    live = sys.stdout.isatty() and wants_color(sys.stdout)
    return LiveBoard(run, offsets) if live else LineBoard(run, offsets)


class _Board(ABC):
    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        self._run, self._offsets = run, offsets

    def __enter__(self) -> _Board:
        return self

    def __exit__(  # noqa: B027 - most boards have nothing open
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    @abstractmethod
    def show(self, parts: Parts) -> None:
        """Show how things stand now."""


class JsonBoard(_Board):
    """Writes the whole state as one line of JSON, as `status --json` does, whenever it changes."""

    def show(self, parts: Parts) -> None:
        """Write one line."""
        print(json_text(status_to_json(self._run, parts, self._offsets)), flush=True)


class LineBoard(_Board):
    """Writes one line for each node that has changed: `14:03:05 gpu02 RUNNING  r1 running`."""

    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run, offsets)
        self._written: dict[str, str] = {}

    def show(self, parts: Parts) -> None:
        """Write what is new."""
        said = {name: describe_node(name, part) for name, part in parts.items()}
        said[self._run] = f"{self._run} {whole_state(parts)}"
        for name, line in said.items():
            if self._written.get(name) != line:
                print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
        self._written = said


class LiveBoard(_Board):
    """Redraws the table of `status`; ages go on by themselves."""

    def __init__(self, run: RunId, offsets: Mapping[str, float]) -> None:
        super().__init__(run, offsets)
        self._parts: Parts = {}
        self._live: Live | None = None

    def __enter__(self) -> LiveBoard:
        from rich.live import Live

        self._live = Live(console=out(), get_renderable=self._render, refresh_per_second=2, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._parts:
            show_status(self._run, self._parts, self._offsets)

    def show(self, parts: Parts) -> None:
        """Redraw."""
        self._parts = dict(parts)
        if self._live is not None:
            self._live.refresh()

    def _render(self) -> Group | str:
        return render_status(self._run, self._parts, self._offsets) if self._parts else ""
