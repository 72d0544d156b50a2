"""Ending the processes of a run: everything below this process, then whatever bears the run's tag."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, Iterable, Iterator, List, Set

from .processes import Identity, Stat, descendants, reap, send_signal, tagged, tagged_below

LEFT_AFTER = 10.0  # seconds after which a killed process that is still there counts as left
ROUND = 0.005


class Sweep:
    """Signals to the processes of one run, and the account of them."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.ended: Dict[Identity, str] = {}
        self._asked: Set[Identity] = set()

    def ask(self, processes: Iterable[Stat]) -> None:
        """Send SIGTERM to each process, once in its life."""
        for stat in processes:
            if stat.identity not in self._asked:
                self._asked.add(stat.identity)
                self._send(stat, signal.SIGTERM)

    def kill(self, processes: Iterable[Stat]) -> None:
        """Send SIGKILL to each process."""
        for stat in processes:
            self._send(stat, signal.SIGKILL)

    def rest(self) -> List[Stat]:
        """Look at what is below this process; when that is nothing, at what bears the tag."""
        return living() or list(self._tagged())

    def _tagged(self) -> Iterator[Stat]:
        """Look for the tag; one that ends with a slash stands for those of all attempts, any other for itself alone."""
        return tagged_below(self.tag) if self.tag.endswith("/") else tagged(self.tag)

    def account(self) -> List[Dict[str, Any]]:
        """Render what was signalled."""
        return [{"pid": identity.pid, "name": name} for identity, name in self.ended.items()]

    def kill_all(self) -> List[Stat]:
        """Kill until nothing is left, reaping on the way; returns what cannot be ended."""
        deadline = time.monotonic() + LEFT_AFTER
        while True:
            for _ in reap():
                pass
            rest = self.rest()
            if not rest or time.monotonic() > deadline:
                return rest
            self.kill(rest)
            time.sleep(ROUND)

    def _send(self, stat: Stat, number: int) -> None:
        if send_signal(stat.identity, number):
            self.ended[stat.identity] = stat.name


def living(spare: Iterable[int] = ()) -> List[Stat]:
    """Look at every process below this one that still runs, those in `spare` left out."""
    return [stat for stat in descendants(os.getpid(), spare) if stat.running]


def as_left(processes: Iterable[Stat]) -> List[Dict[str, Any]]:
    """Render processes that could not be ended."""
    return [{"pid": stat.pid, "name": stat.name, "state": stat.state} for stat in processes]
