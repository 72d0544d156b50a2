"""Same work on many nodes, Outcome per node, progress steps."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

from clusterctl.client.ssh.sockets import is_file_limit_error, too_few_files
from clusterctl.errors import ClusterctlError, InternalError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.specs.inventory.model import Node

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The end of one node's part; `value` is None when there is an `error`; `seconds` is how long it took."""

    node: Node
    value: T | None
    error: ClusterctlError | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Return whether the node did its part."""
        return self.error is None


MAX_PARALLEL = 128  # nodes at a time


def fan_out(
    nodes: Sequence[Node], function: Callable[[Node], T], *, limit: int = MAX_PARALLEL
) -> Iterator[Outcome[T]]:
    """Call `function` for every node in threads, at most `limit` at a time, and yield outcomes as they come.

    Each node yields exactly one outcome. Closing the iterator (an exception in the caller's loop does so once
    the iterator is let go) keeps nodes that have not begun from beginning. The threads end with the process.
    """
    waiting = deque(nodes)
    outcomes: SimpleQueue[Outcome[T]] = SimpleQueue()
    for index in range(min(len(waiting), max(1, limit))):
        worker = threading.Thread(
            target=_work, args=(waiting, function, outcomes), name=f"node worker {index}", daemon=True
        )
        worker.start()
    return _collect(len(nodes), waiting, outcomes)


def _collect(count: int, waiting: deque[Node], outcomes: SimpleQueue[Outcome[T]]) -> Iterator[Outcome[T]]:
    try:
        for _ in range(count):
            yield INTERRUPTS.get(outcomes)
    finally:
        waiting.clear()


def _work(waiting: deque[Node], function: Callable[[Node], T], outcomes: SimpleQueue[Outcome[T]]) -> None:
    while True:
        try:
            node = waiting.popleft()
        except IndexError:
            return
        outcomes.put(run_on(node, function))


def run_on(node: Node, function: Callable[[Node], T]) -> Outcome[T]:
    """Do something on one node; whatever it raises is its outcome, and ends no thread."""
    began = time.monotonic()
    value: T | None = None
    error: ClusterctlError | None = None
    try:
        value = function(node)
    except ClusterctlError as failure:
        error = failure
    except OSError as failure:
        error = too_few_files(str(failure)) if is_file_limit_error(failure) else _internal(failure)
    except BaseException as failure:  # noqa: BLE001, RUF100 - whatever it is, it must not cost another node its outcome
        error = _internal(failure)
    if error is not None:
        error.node = error.node or node.name
    return Outcome(node, value, error, time.monotonic() - began)


def _internal(failure: BaseException) -> InternalError:
    return InternalError(
        "CC-RUN-001",
        evidence="".join(traceback.format_exception(failure)),
        kind=type(failure).__name__,
        failure=failure,
    )


@dataclass(frozen=True)
class Step:
    """What a node is at, and since when by `time.monotonic`."""

    description: str
    since: float


class Steps:
    """The newest step of every node that has begun; safe to use from many threads."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def set(self, node: str, description: str) -> None:
        """Note what a node is at from now on."""
        self._steps[node] = Step(description, time.monotonic())

    def find(self, node: str) -> Step | None:
        """Return a node's step; None before its first."""
        return self._steps.get(node)
