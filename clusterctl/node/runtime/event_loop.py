"""Poll loop with timers; work in threads."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Tuple

Callback = Callable[[], None]
MAX_REPORTED = 20  # errors that a log holds at most


class Loop:
    """Calls back when a descriptor is readable or a moment has come, until `stopped`."""

    def __init__(self) -> None:
        self.stopped = False
        self.on_error: Callable[[Exception], None] = reraise  # an error of a callback that nothing else took
        self._reported = 0
        self._poller = select.poll()
        self._readers: Dict[int, Callback] = {}
        self._writers: Dict[int, Callback] = {}
        self._timers: Dict[str, Tuple[float, Callback]] = {}

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever the descriptor is readable or at its end."""
        self._readers[descriptor] = callback
        self._register(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching altogether; do so before closing."""
        callbacks = self._readers.pop(descriptor, None), self._writers.pop(descriptor, None)
        if any(callbacks):
            self._poller.unregister(descriptor)

    def watch_writable(self, descriptor: int, callback: Callback) -> None:
        """Call back as long as the descriptor can be written to, or has failed."""
        self._writers[descriptor] = callback
        self._register(descriptor)

    def unwatch_writable(self, descriptor: int) -> None:
        """Watch it for nothing but reading."""
        if self._writers.pop(descriptor, None) is not None:
            self._register(descriptor)

    def _register(self, descriptor: int) -> None:
        reading = select.POLLIN if descriptor in self._readers else 0
        writing = select.POLLOUT if descriptor in self._writers else 0
        self._poller.register(descriptor, reading | writing)

    def after(self, seconds: float, name: str, callback: Callback) -> None:
        """Call back once, later; replaces what was set under the name."""
        self._timers[name] = (time.monotonic() + max(0.0, seconds), callback)

    def cancel(self, name: str) -> None:
        """Forget a moment."""
        self._timers.pop(name, None)

    def stop(self) -> None:
        """Return from `run` after this turn."""
        self.stopped = True

    def run(self) -> None:
        """Serve until stopped."""
        while not self.stopped:
            self._run_once()

    def _run_once(self) -> None:
        for descriptor, events in self._poller.poll(self._seconds_to_next() * 1000):
            reader, writer = self._readers.get(descriptor), self._writers.get(descriptor)
            if reader is not None and events & ~select.POLLOUT:
                self._call(reader)
            if writer is not None and events & ~select.POLLIN and self._writers.get(descriptor) is writer:
                self._call(writer)
        now = time.monotonic()
        for name in [name for name, (moment, _) in self._timers.items() if moment <= now]:
            _, callback = self._timers.pop(name, (0.0, _no_op))
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, it must not end all without a word
            self.on_error(error)

    def report(self, error: Exception) -> None:
        """Write an error that should not be to stderr, which for an agent is its log."""
        self._reported += 1
        if self._reported <= MAX_REPORTED:
            import traceback

            traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)

    def _seconds_to_next(self) -> float:
        if not self._timers:
            return 3600.0
        return max(0.0, min(moment for moment, _ in self._timers.values()) - time.monotonic())


def reraise(error: Exception) -> None:
    """Raise an error out of the loop."""
    raise error


def _no_op() -> None:
    """Stand for a moment that another callback dropped."""


def run_in_thread(work: Callable[[], Any]) -> None:
    """Start a thread that nothing waits for."""
    with suppress(RuntimeError):  # no thread to be had: nothing will be known
        threading.Thread(target=work, daemon=True).start()


def call_in_thread(
    loop: Loop, name: str, limit: float, work: Callable[[], Any], on_result: Callable[[Any], None]
) -> None:
    """Call `on_result` from the loop with the result of `work`; with None if it fails or takes longer than `limit`."""
    results: List[Any] = []
    reader, writer = os.pipe()

    def run() -> None:
        try:
            results.append(work())
        finally:
            os.close(writer)

    def finish() -> None:
        loop.cancel(name)
        loop.unwatch(reader)
        os.close(reader)
        on_result(results[0] if results else None)

    loop.watch(reader, finish)
    loop.after(limit, name, finish)
    run_in_thread(run)
