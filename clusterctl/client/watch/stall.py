"""Shows once where the ranks are when a run stalls, while a client is attached; and again as part of its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from clusterctl.client.diagnose import load_hang
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.plans.diagnose.kept import KeptDiagnosis, render_kept
from clusterctl.plans.runs.state import NodeState

ALL_WAIT = 3.0  # seconds that the other nodes have to keep their part, once one has


class StallNotice:
    """What the nodes have kept of a stall, read in a thread of its own."""

    def __init__(self, run: RunHandle, on_stall: Callable[[KeptDiagnosis], None] | None) -> None:
        self._run, self._on_stall = run, on_stall
        self._since: float | None = None  # when the first node reported it
        self._thread: threading.Thread | None = None
        self._found: list[KeptDiagnosis] = []

    def poll(self, states: Mapping[str, NodeState | None]) -> list[str]:
        """Give the lines to show, once for each stall; `states` are the newest of the nodes."""
        known = [state for state in states.values() if state is not None and state.live]
        stalled = [state for state in known if state.diagnosed == "stall"]
        if not stalled:
            self._since, self._thread = None, None
            return []
        self._since = self._since or time.monotonic()
        is_complete = len(stalled) == len(known) or time.monotonic() - self._since > ALL_WAIT
        if self._thread is None and is_complete:
            self._thread = threading.Thread(target=self._load, args=(states,), daemon=True)
            self._thread.start()
        return [line for kept in self._pop_found() for line in render_kept(kept)]

    def load(self, states: Mapping[str, NodeState | None]) -> KeptDiagnosis | None:
        """Read it for the end of a run; None if the nodes have kept nothing."""
        return load_hang(self._run, states)

    def _load(self, states: Mapping[str, NodeState | None]) -> None:
        kept = self.load(states)
        if kept is not None:
            self._found.append(kept)
            if self._on_stall is not None:
                self._on_stall(kept)

    def _pop_found(self) -> list[KeptDiagnosis]:
        found, self._found = self._found, []
        return found
