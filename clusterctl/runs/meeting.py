"""Where the agents of one run meet: node 0's tells its port, and the others wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import Future

MEETING_LIMIT = 330.0  # seconds; node 0 itself fails before that

Door = tuple[int, str, int]  # an agent's seat, its address, and the port at which it can be met


class Meeting:
    """One port, known once node 0 has its hub; or the reason why there will be none.

    Where the run may start again every agent has a door, so that another one can lead when node 0 is lost.
    """

    def __init__(self) -> None:
        self._port: Future[int] = Future()
        self._all: Future[list[Door]] = Future()
        self._doors: list[Door] = []
        self._lock = threading.Lock()

    def open(self, port: int) -> None:
        """Tell the port."""
        with self._lock:
            if not self._port.done():
                self._port.set_result(port)

    def add_door(self, door: Door, seats: int) -> None:
        """Tell of one agent's door; all are known when there are as many as seats."""
        with self._lock:
            self._doors.append(door)
            if len(self._doors) == seats and not self._all.done():
                self._all.set_result(sorted(self._doors))

    def fail(self, error: BaseException) -> None:
        """A node did not come up: nobody need wait for it."""
        with self._lock:
            for future in (self._port, self._all):
                if not future.done():
                    future.set_exception(error)

    def port(self) -> int:
        """Wait for the port; raises what node 0 failed with."""
        return self._port.result(MEETING_LIMIT)

    def doors(self) -> list[Door]:
        """Wait for all doors; raises what a node failed with."""
        return self._all.result(MEETING_LIMIT)
