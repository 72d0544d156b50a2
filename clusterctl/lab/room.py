"""A node as the holder sees it: the numbers of its init and the line to it."""

from __future__ import annotations

import json
import select
import socket
from contextlib import suppress
from typing import Any

from clusterctl.lab.layout import NodePlan
from clusterctl.lab.node import MESSAGE_BYTES

STEP_SECONDS = 20.0


class StepError(Exception):
    """A step failed in a node; holds the message for whoever asked."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__(str(message))
        self.message = message


class Room:
    """A node's place in the lab; `pid` is its init's number here (0: powered off), `host_pid` outside."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.pid = 0
        self.host_pid = 0
        self._line: socket.socket | None = None

    def open(self, line: socket.socket) -> None:
        """A new init is on its way at the other end of the line."""
        line.settimeout(STEP_SECONDS)
        self._line = line

    def close(self) -> None:
        """The init has ended."""
        if self._line is not None:
            self._line.close()
        self.pid, self.host_pid, self._line = 0, 0, None

    def hung_up(self) -> bool:
        """Whether the init has dropped the line: it has ended or is about to."""
        if self._line is None:
            return False
        poll = select.poll()
        poll.register(self._line, 0)
        return bool(poll.poll(0))

    def learn_numbers(self) -> None:
        """Wait for the init and its parent to tell the init's two numbers."""
        while not (self.pid and self.host_pid):
            heard = self.hear()
            self.pid = heard.get("pid", self.pid)
            self.host_pid = heard.get("host_pid", self.host_pid)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the init and return its answer; StepError if there is none."""
        self._forget_late_answers()
        self.tell(request)
        return self.hear()

    def tell(self, request: dict[str, Any]) -> None:
        """Send a message to the init."""
        if self._line is None:
            raise StepError({"error": f"{self.plan.name} is powered off"})
        try:
            self._line.send(json.dumps(request).encode())
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error

    def hear(self) -> dict[str, Any]:
        """The next message of the init; StepError on failure, silence or death."""
        assert self._line is not None
        try:
            message = self._line.recv(MESSAGE_BYTES)
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error
        answer: dict[str, Any] = json.loads(message or b'{"error": "the first process of a node ended"}')
        if "error" in answer:
            raise StepError(answer)
        return answer

    def state(self) -> dict[str, Any]:
        """The node as it is now."""
        if not self.pid:
            return {"pid": 0, "sshd": 0, "nics": {}}
        return {"pid": self.host_pid, **self.ask({"do": "look"})}

    def _forget_late_answers(self) -> None:
        if self._line is not None:
            self._line.setblocking(False)
            with suppress(BlockingIOError):
                while self._line.recv(MESSAGE_BYTES):
                    pass
            self._line.settimeout(STEP_SECONDS)
