"""SIGINT, SIGTERM and SIGHUP: noted where they arrive, announced at once, raised only where the command waits.

An exception that a signal raises at any instruction leaves locks of other libraries held, or is dropped in an import.
So the handlers only note the signal; this module has the waits at which KeyboardInterrupt is raised, once, and a thread
that reads the signals from a pipe, which the kernel's handler fills even while the main thread is stuck.

    a signal --> noted --+--> main thread, in its next wait here: announce, raise; the verb closes, within its limit
                         +--> thread, if that has not happened in 0.1 s: announce
                         +--> thread, at the next signal or after the limits: announce, restore the terminal, exit
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from selectors import EVENT_READ, BaseSelector, SelectorKey
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from clusterctl.translation import tr

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128  # added to the number of a signal, as shells do
ANNOUNCE_AFTER = (
    0.1  # seconds in which the main thread may come to a wait before its message is written for it
)
SAME_SIGNAL = (
    0.02  # seconds in which further signals are the same one: `timeout` and a closed terminal send two
)
REACH_LIMIT = 1.5  # seconds to come to a wait; it may be stuck in a library, or in a write that is never read
CLOSE_LIMIT = 5.0  # seconds from there to the end of the process
LAST_WRITE = 0.2  # seconds for what is written before the process ends at once
STREAMS = (0, 1, 2)
SHOW_CURSOR = b"\x1b[?25h"
WAKE: Any = object()  # what a queue gets that the main thread waits for, when a signal comes


class Leaving(NamedTuple):
    """What it means to leave now: what is written then, and the seconds that closing may take."""

    announce: Callable[[], None]
    limit: float


def announce_interrupted(text: str = "") -> None:
    """Write that the command was interrupted, in the words for the step that it was at."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")  # below ^C
    sys.stderr.write((text or tr("interrupted")) + "\n")
    sys.stderr.flush()


def announce_nothing() -> None:
    """Write nothing, where a verb has written before that a signal is what ends it."""


class Interrupts:
    """The signals of this process, and the waits of its main thread that they end.

    In other threads, before `install` and after the one KeyboardInterrupt the waits are plain ones.
    """

    def __init__(self) -> None:
        self._main: int | None = None  # the thread's ident, once installed
        self._signal = 0
        self._raised: BaseException | None = None
        self._leaving = self._announced = Leaving(announce_interrupted, CLOSE_LIMIT)
        self._is_announced = False
        self._state_lock, self._write_lock = threading.Lock(), threading.RLock()
        self._waited_for: SimpleQueue[Any] | None = None

    def install(self) -> None:
        """Take over the signals that end a process; one that our parent ignores stays ignored."""
        self._main = threading.get_ident()
        self._signals, writer = os.pipe()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(writer, False)
        self._terminal = _terminal_modes()
        threading.Thread(target=self._serve, name="signals", daemon=True).start()
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    @property
    def exit_code(self) -> int:
        """Return the exit code after the signal that came: 130 after Ctrl-C, as by a shell."""
        return SIGNALLED + (self._signal or signal.SIGINT)

    @property
    def exit_code_of_server(self) -> int:
        """Return the exit code of a verb that Ctrl-C is the usual end of: 0, and that of the signal after others."""
        return 0 if self.exit_code == SIGNALLED + signal.SIGINT else self.exit_code

    # what leaving means

    @contextmanager
    def leaving(self, announce: Callable[[], None], limit: float = CLOSE_LIMIT) -> Iterator[None]:
        """Set what leaving means within the block; what was announced there is raised there."""
        before = self._leaving
        self.set_leaving(announce, limit)
        try:
            yield
        except KeyboardInterrupt as error:
            self.announce(error)
            raise
        finally:
            with self._state_lock:
                is_over = not self._signal or not self._is_announced
                self._leaving = before if is_over else self._leaving
        if not is_over:
            self.check()

    def set_leaving(self, announce: Callable[[], None], limit: float = CLOSE_LIMIT) -> None:
        """From now on `announce` writes what happens when a signal comes, and closing may take `limit` seconds.

        A signal that came before is raised instead: what is announced for it stays true.
        """
        with self._state_lock:
            if not self._is_due():
                self._leaving = Leaving(announce, limit)
                return
        self.check()

    def announce(self, error: BaseException | None = None) -> None:
        """Write what leaving means now, unless that was written, or was for the same error."""
        with self._write_lock:
            if error is not None and error is self._raised:
                return
            self._raised = error or self._raised
            with self._state_lock:
                is_news = not self._is_announced or self._announced is not self._leaving or not self._signal
                self._announced, self._is_announced = self._leaving, True
            if is_news:
                with suppress(OSError, ValueError):  # a terminal or a reader that is gone
                    self._announced.announce()
                if self._signal == signal.SIGHUP:
                    _leave_terminal()

    # the waits

    def check(self) -> None:
        """Raise KeyboardInterrupt in the main thread, once, if a signal has come."""
        if self._is_due():
            error = KeyboardInterrupt()
            self.announce()
            self._raised = error
            raise error

    def get(self, queue: SimpleQueue[T], timeout: float | None = None) -> T:
        """Wait for an item; queue.Empty after `timeout` seconds."""
        if not self._may_raise():
            while (item := queue.get(timeout=timeout)) is WAKE:
                pass
            return item
        self._waited_for = queue
        try:
            self.check()  # after the queue was named: what comes from here on is put into it
            while (item := queue.get(timeout=timeout)) is WAKE:
                self.check()
            return item
        finally:
            self._waited_for = None

    def result(self, future: Future[T]) -> T:
        """Wait for what a future holds."""
        done: SimpleQueue[Future[T]] = SimpleQueue()
        future.add_done_callback(done.put)
        return self.get(done).result()

    def call(self, function: Callable[[], T]) -> T:
        """Call what waits by itself in a thread, and wait for its end; at a signal the thread is left behind."""
        if not self._may_raise():
            return function()
        outcome: SimpleQueue[Callable[[], T]] = SimpleQueue()
        threading.Thread(target=_run, args=(function, outcome), name="waiting", daemon=True).start()
        return self.get(outcome)()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        self.poll(select.poll(), seconds)

    def poll(self, poller: select.poll, seconds: float | None) -> list[tuple[int, int]]:
        """Return which descriptors of a poller are ready, within some seconds."""
        limit = None if seconds is None else max(0.0, seconds) * 1000
        if not self._may_raise():
            return poller.poll(limit)
        poller.register(self._wake_reader, select.POLLIN)
        try:
            ready = poller.poll(limit)
        finally:
            poller.unregister(self._wake_reader)
        self.check()
        return ready

    def select(self, selector: BaseSelector, seconds: float | None) -> list[tuple[SelectorKey, int]]:
        """Return which entries of a selector are ready, within some seconds."""
        if not self._may_raise():
            return selector.select(seconds)
        selector.register(self._wake_reader, EVENT_READ)
        try:
            ready = selector.select(seconds)
        finally:
            selector.unregister(self._wake_reader)
        self.check()
        return ready

    def _may_raise(self) -> bool:
        return self._raised is None and threading.get_ident() == self._main

    def _is_due(self) -> bool:
        return bool(self._signal) and self._may_raise()

    # the thread, and the end

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Remember the first signal; runs in the main thread, between any two instructions."""
        self._signal = self._signal or number

    def _serve(self) -> None:
        self._signal = self._signal or self._next_signal(None)
        os.write(self._wake_writer, b"!")
        waited_for = self._waited_for
        if waited_for is not None:
            waited_for.put(WAKE)
        while self._next_signal(SAME_SIGNAL):
            pass
        if not self._next_signal(ANNOUNCE_AFTER):
            if not self._is_announced:
                threading.Thread(target=self.announce, name="announcing", daemon=True).start()
            again = self._next_signal(REACH_LIMIT)
            if not again and self._raised is not None:
                self._next_signal(self._leaving.limit)
        self._exit_now()

    def _next_signal(self, seconds: float | None) -> int:
        """Wait for the next signal that is one of ours; 0 if there is none for so long."""
        poller = select.poll()
        poller.register(self._signals, select.POLLIN)
        while poller.poll(None if seconds is None else seconds * 1000):
            number = os.read(self._signals, 1)[0]
            if number in SIGNALS:
                return number
        return 0

    def _exit_now(self) -> None:
        writing = threading.Thread(target=self._write_last, daemon=True)
        writing.start()
        writing.join(LAST_WRITE)
        for stream in STREAMS[1:]:
            if os.isatty(stream):
                with suppress(OSError):
                    os.write(stream, SHOW_CURSOR)
        self._exit(self.exit_code)

    def _write_last(self) -> None:
        self.announce()
        _flush()

    def _exit(self, code: int) -> NoReturn:
        if self._terminal is not None:
            _restore_terminal(self._terminal)
        os._exit(code)

    def finish(self, code: int) -> int:
        """Return the exit code of the command; after a signal this ends the process, whatever its threads wait for."""
        if self._main is None:
            return code
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # what Python does to end takes some milliseconds
        if self._signal:
            self._finish_interrupted(code)
        return code

    def _finish_interrupted(self, code: int) -> NoReturn:
        is_late = self._raised is None  # it came after the last wait
        if is_late:
            self.announce()
        _flush()
        self._exit(self.exit_code if is_late else code)


INTERRUPTS = Interrupts()


def _run(function: Callable[[], T], outcome: SimpleQueue[Callable[[], T]]) -> None:
    """Call a function in a thread, and put what returns its value, or raises its error, where it is waited for."""
    try:
        value = function()
    except BaseException as error:
        outcome.put(partial(_raise, error))
    else:
        outcome.put(lambda: value)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _leave_terminal() -> None:
    """Write no further to a terminal that hung up: that would be an error of its own."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in STREAMS:
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(null, stream)
    os.close(null)


def _terminal_modes() -> list[Any] | None:
    if not os.isatty(STREAMS[0]):
        return None
    import termios  # noqa: PLC0415 - few commands have a terminal

    return termios.tcgetattr(STREAMS[0])


def _restore_terminal(modes: list[Any]) -> None:
    """Undo what a prompt or a live screen did, unless another program has the terminal: the write would stop us."""
    import termios  # noqa: PLC0415 - as above

    with suppress(OSError, termios.error):
        if os.tcgetpgrp(STREAMS[0]) == os.getpgrp():
            termios.tcsetattr(STREAMS[0], termios.TCSANOW, modes)
