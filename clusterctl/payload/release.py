"""After the end of a run: its GPUs' memory, which the driver may free late, or somebody else may hold.

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
from typing import Any, Callable, Dict, List

from .gpu_memory import APPS, BUSY, USED, read_apps, read_used
from .loop import Loop
from .processes import Stat
from .smi import find
from .state import Record

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
