"""The processes of a run, without the one that its job lets outlive it."""

from __future__ import annotations

from typing import List, Set

from ...protocol.untrusted import Untrusted
from ..runtime.processes import ProcessTree, Stat, running_descendants
from ..state.run_record import read_state


class RunProcesses(ProcessTree):
    """Signals to the processes of one run but those in `spared`, and the account of them."""

    def __init__(self, tag: str, spared: Set[int]) -> None:
        super().__init__(tag)
        self._spared = spared

    def remaining(self) -> List[Stat]:
        """Look at what is below this process; when that is nothing, at what has the tag."""
        return running_descendants(self._spared) or list(self._tagged())


def find_spared(rundir: str) -> Set[int]:
    """Find the warm server that an agent has left as its job asks, after an end in order."""
    state = read_state(rundir)
    warm = Untrusted(state.get("warm") if state else None)
    pid = warm.integer("pid", 1)
    return {pid} if pid is not None and warm.moment("until") is not None else set()
