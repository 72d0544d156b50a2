"""The processes of an attempt, without a gate that waits for the next one."""

from __future__ import annotations

from typing import List, Set

from ..runtime.processes import ProcessTree, Stat, running_descendants


class RunProcesses(ProcessTree):
    """Signals to the processes of one run but those in `spared`, and the account of them."""

    def __init__(self, tag: str, spared: Set[int]) -> None:
        super().__init__(tag)
        self._spared = spared

    def remaining(self) -> List[Stat]:
        """Look at what is below this process; when that is nothing, at what has the tag."""
        tagged = (stat for stat in self._tagged() if stat.pid not in self._spared)
        return running_descendants(self._spared) or list(tagged)
