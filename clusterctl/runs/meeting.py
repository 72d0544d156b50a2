"""Where the agents of one run meet: node 0's tells its port, and the others wait for it."""

from __future__ import annotations

from concurrent.futures import Future

MEETING_LIMIT = 330.0  # seconds; node 0 itself fails before that


class Meeting:
    """One port, known once node 0 has its hub; or the reason why there will be none."""

    def __init__(self) -> None:
        self._port: Future[int] = Future()

    def open(self, port: int) -> None:
        """Tell the port."""
        self._port.set_result(port)

    def fail(self, error: BaseException) -> None:
        """Node 0 did not come up: nobody need wait for it."""
        if not self._port.done():
            self._port.set_exception(error)

    def port(self) -> int:
        """Wait for the port; raises what node 0 failed with."""
        return self._port.result(MEETING_LIMIT)
