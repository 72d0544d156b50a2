"""Interpreters on nodes that have served a verb, or are to serve their first one: the next verb needs no new one.

A verb that finds one saves opening a channel, starting a command, and the start of Python with what verbs share. One
belongs to the connection that its channel is of, and ends with it at the latest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterctl.client.rpc.channels import Channel

MOST_IDLE = 2  # of a connection: a launch has two verbs at work at a time


@dataclass(frozen=True)
class IdleInterpreter:
    """The channel to one, how it was started, the modules that were sent to it, and whether it has answered yet."""

    channel: Channel
    interpreter: object
    modules: frozenset[str]
    started: bool


class IdleInterpreters:
    """Those of one connection; may be used from any thread."""

    def __init__(self) -> None:
        self._idle: list[IdleInterpreter] = []
        self._lock = threading.Lock()

    def add(self, idle: IdleInterpreter) -> bool:
        """Keep one, unless there are enough."""
        with self._lock:
            if len(self._idle) >= MOST_IDLE:
                return False
            self._idle.append(idle)
            return True

    def pop(self, interpreter: object) -> IdleInterpreter | None:
        """Remove and return the newest that was started like this and still listens."""
        while (idle := self._pop(lambda idle: idle.interpreter == interpreter)) is not None:
            if not idle.channel.at_eof:
                return idle
            idle.channel.close()
        return None

    def close(self) -> None:
        """End all."""
        while (idle := self._pop(lambda _: True)) is not None:  # also one that is added meanwhile
            idle.channel.close()

    def _pop(self, fits: Callable[[IdleInterpreter], bool]) -> IdleInterpreter | None:
        with self._lock:
            for place in reversed(range(len(self._idle))):
                if fits(self._idle[place]):
                    return self._idle.pop(place)
        return None


def idle_interpreters(connection: object) -> IdleInterpreters:
    """Return those of a connection, which is what keeps them."""
    idle: IdleInterpreters = vars(connection).setdefault("_idle_interpreters", IdleInterpreters())
    return idle
