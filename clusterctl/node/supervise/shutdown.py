"""TERM/KILL schedule; wait until GPU memory is free.

After the end of a run: its GPUs' memory, which the driver may free late, or somebody else may hold.

The agent looks once before it tells the end, so that the end can name who holds memory. Then it stays, with the run's
locks, until the memory is free or there is no more to hope for; the next run then finds what it was promised.
Memory that was in use before the run began does not count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional

from ..probe.nvidia_smi import APPS, BUSY, USED, find, read_apps, read_used
from ..runtime.event_loop import Loop
from ..runtime.processes import LEFT_AFTER, Stat, Sweep, living
from ..state.run_record import Record

SUMMARY_TIME = 0.7  # seconds that torchrun has, once its workers are killed, to say what happened
OUTLIVED_WAIT = 1.0  # seconds that processes have which outlive torchrun
ROUND = 0.02
FOREVER = float("inf")


class Deadline:
    """The moments from which workers and then torchrun are killed; they only ever come closer."""

    def __init__(
        self,
        loop: Loop,
        sweep: Sweep,
        torchrun: Callable[[], Optional[int]],
        done: Callable[[List[Stat]], None],
    ) -> None:
        self._loop = loop
        self._sweep = sweep
        self._torchrun = torchrun
        self._done = done
        self._workers_at = FOREVER
        self._all_at = FOREVER
        self._outlived = False
        self.over = False

    def within(self, seconds: float) -> None:
        """Kill the workers after so many seconds, and torchrun a moment later."""
        moment = time.monotonic() + seconds
        self._bring_closer(moment, moment + SUMMARY_TIME)
        self._schedule()

    def now(self) -> None:
        """Kill everything."""
        moment = time.monotonic()
        self._bring_closer(moment, moment)
        self.look()

    def look(self) -> None:
        """Kill what is due; done when torchrun has ended and nothing is left that can be ended."""
        if self.over:
            return
        now = time.monotonic()
        torchrun = self._torchrun()
        if now >= self._workers_at:
            spare = (torchrun,) if torchrun is not None and now < self._all_at else ()
            self._sweep.kill(living(spare))
        overdue = now >= self._all_at + LEFT_AFTER
        if torchrun is None or overdue:
            rest = self._sweep.rest()
            if not rest or overdue:
                self.over = True
                self._loop.drop("end")
                self._done(rest)
                return
            self._clear(rest, now)
        self._schedule()

    def _clear(self, rest: List[Stat], now: float) -> None:
        if not self._outlived:
            self._outlived = True
            self._bring_closer(now + OUTLIVED_WAIT, now + OUTLIVED_WAIT)
        if now < self._all_at:
            self._sweep.ask(rest)
        else:
            self._sweep.kill(rest)

    def _bring_closer(self, workers_at: float, all_at: float) -> None:
        self._workers_at = min(self._workers_at, workers_at)
        self._all_at = min(self._all_at, all_at)

    def _schedule(self) -> None:
        if self._outlived or self._workers_at < FOREVER:
            wait = 0.0 if self._outlived else self._workers_at - time.monotonic()
            self._loop.after(max(ROUND, wait), "end", self.look)


LIMIT = 50.0  # seconds for the driver, as in NVIDIA's own resiliency extension
POLL = 2.0
FIRST_LIMIT = 3.0  # seconds for the look before the end is told
SMI_LIMIT = 10.0

Holding = Dict[str, Any]


class Asking:
    """One question to nvidia-smi that does not hold the loop up; `heard` gets "" where there is no answer."""

    def __init__(self, loop: Loop, argv: List[str], limit: float, heard: Callable[[str], None]) -> None:
        self._loop = loop
        self._heard = heard
        self._text = b""
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(os.environ, LC_ALL="C"),
        )
        assert self._child.stdout is not None
        self._out = self._child.stdout.fileno()
        os.set_blocking(self._out, False)
        loop.watch(self._out, self._read)
        loop.after(limit, "nvidia-smi", lambda: self._finish(""))

    def _read(self) -> None:
        try:
            piece = os.read(self._out, 1 << 16)
        except BlockingIOError:
            return
        self._text += piece[: (1 << 20) - len(self._text)]
        if not piece:
            self._finish(self._text.decode("utf-8", "replace"))

    def _finish(self, text: str) -> None:
        self._loop.drop("nvidia-smi")
        self._loop.forget(self._out)
        assert self._child.stdout is not None
        self._child.stdout.close()
        if self._child.poll() is None:
            with suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)
        self._heard(text)


class Release:
    """Looks at the memory of the run's GPUs when all its processes have ended."""

    def __init__(self, loop: Loop, spec: Dict[str, Any], record: Record, went: Callable[[], bool]) -> None:
        self._loop = loop
        self._record = record
        self._went = went
        gpus = [gpu for gpu in spec.get("gpus") or () if str(gpu["id"]).startswith("GPU-")]
        self._gpus = {str(gpu["id"]): gpu for gpu in gpus}
        self._smi = ""
        self._held: List[Holding] = []
        self._began = 0.0
        self._done: Callable[[], None] = lambda: None

    @property
    def held(self) -> bool:
        """Whether memory was in use when we last looked."""
        return bool(self._held)

    def before(self, finish: Callable[[List[Stat]], None]) -> Callable[[List[Stat]], None]:
        """Look once, and then let the run finish."""

        def look_first(rest: List[Stat]) -> None:
            self._smi = (find("nvidia-smi") or "") if self._gpus and self._went() else ""
            self._began = time.monotonic()
            if self._smi:
                self._ask(FIRST_LIMIT, lambda: self._finish(finish, rest))
            else:
                finish(rest)

        return look_first

    def then(self, done: Callable[[], None]) -> None:
        """Call `done` when the memory is free, or will not become so."""
        self._done = done
        if not self._held:
            done()
        else:
            self._loop.after(POLL, "memory", self._look_again)

    def _finish(self, finish: Callable[[List[Stat]], None], rest: List[Stat]) -> None:
        if self._held:
            self._record.note("gpu_memory", held=self._held)
            self._record.set(gpu_memory=self._held, releasing=True)
        finish(rest)

    def _look_again(self) -> None:
        self._ask(SMI_LIMIT, self._judge)

    def _judge(self) -> None:
        waited = time.monotonic() - self._began
        if self._held and waited < LIMIT:
            self._loop.after(POLL, "memory", self._look_again)
            return
        self._record.note("gpu_memory", held=self._held, seconds=round(waited, 1))
        self._record.set(gpu_memory=self._held, releasing=False)
        self._done()

    def _ask(self, limit: float, then: Callable[[], None]) -> None:
        """Ask how much is in use and, where it is too much, by whom; no answer counts as free."""

        def heard_apps(text: str) -> None:
            processes = read_apps(text)
            for one in self._held:
                mine = [process for process in processes if process["gpu"] == one["id"]]
                one["by"] = [{key: process[key] for key in process if key != "gpu"} for process in mine]
            then()

        def heard_used(text: str) -> None:
            used = read_used(text)
            self._held = [
                {"gpu": gpu.get("index"), "id": name, "used": used[name], "by": []}
                for name, gpu in self._gpus.items()
                if used.get(name, 0) > BUSY + int(gpu.get("used") or 0)
            ]
            if self._held:
                self._start(APPS, limit, heard_apps)
            else:
                then()

        self._start(USED, limit, heard_used)

    def _start(self, words: List[str], limit: float, heard: Callable[[str], None]) -> None:
        try:
            Asking(self._loop, [self._smi, *words], limit, heard)
        except OSError:
            heard("")
