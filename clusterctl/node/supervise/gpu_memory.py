"""The memory of a run's GPUs after its end, which the driver may free late, or another process may hold.

The agent reads it once before it reports the end, so that the end can name who holds memory. Then it stays, with the
run's locks, until the memory is free or there is no more to hope for; the next run then finds what it was promised.
Memory that was in use before the run began does not count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, List

from ..probe.nvidia_smi import APPS, BUSY_MEMORY, USED, find, read_apps, read_used
from ..runtime.event_loop import Loop
from ..state.run_record import Record

if TYPE_CHECKING:
    from ...protocol.messages.files import HeldMemory, Spec

RELEASE_LIMIT = 50.0  # seconds for the driver, as in NVIDIA's own resiliency extension
POLL_INTERVAL = 2.0
FIRST_QUERY_LIMIT = 3.0  # seconds for the first query, before the end is reported
SMI_LIMIT = 10.0


class SmiQuery:
    """One question to nvidia-smi that does not hold the loop up; `on_answer` gets "" where there is no answer."""

    def __init__(self, loop: Loop, argv: List[str], limit: float, on_answer: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_answer = on_answer
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
            chunk = os.read(self._out, 1 << 16)
        except BlockingIOError:
            return
        self._text += chunk[: (1 << 20) - len(self._text)]
        if not chunk:
            self._finish(self._text.decode("utf-8", "replace"))

    def _finish(self, text: str) -> None:
        self._loop.cancel("nvidia-smi")
        self._loop.unwatch(self._out)
        assert self._child.stdout is not None
        self._child.stdout.close()
        if self._child.poll() is None:
            with suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)
        self._on_answer(text)


class GpuMemoryWait:
    """Looks at the memory of the run's GPUs when all its processes have ended."""

    def __init__(self, loop: Loop, spec: Spec, record: Record) -> None:
        self._loop = loop
        self._record = record
        gpus = [gpu for gpu in spec.get("gpus") or () if str(gpu["id"]).startswith("GPU-")]
        self._gpus = {str(gpu["id"]): gpu for gpu in gpus}
        self._smi = ""
        self._held: List[HeldMemory] = []
        self._waiting_since = 0.0
        self._on_free: Callable[[], None] = lambda: None

    @property
    def held(self) -> bool:
        """Whether memory was in use when we last looked."""
        return bool(self._held)

    def query_once(self, on_done: Callable[[], None]) -> None:
        """Read it, and record what is held, before the run's end is recorded."""
        self._smi = (find("nvidia-smi") or "") if self._gpus else ""
        self._waiting_since = time.monotonic()
        if self._smi:
            self._query(FIRST_QUERY_LIMIT, lambda: self._record_held(on_done))
        else:
            on_done()

    def when_free(self, on_free: Callable[[], None]) -> None:
        """Call `on_free` when the memory is free, or will not become so."""
        self._on_free = on_free
        if not self._held:
            on_free()
        else:
            self._loop.after(POLL_INTERVAL, "memory", self._query_again)

    def _record_held(self, on_done: Callable[[], None]) -> None:
        if self._held:
            self._record.add_event("gpu_memory", {"held": self._held})
            self._record.set({"gpu_memory": self._held, "releasing": True})
        on_done()

    def _query_again(self) -> None:
        self._query(SMI_LIMIT, self._check)

    def _check(self) -> None:
        waited = time.monotonic() - self._waiting_since
        if self._held and waited < RELEASE_LIMIT:
            self._loop.after(POLL_INTERVAL, "memory", self._query_again)
            return
        self._record.add_event("gpu_memory", {"held": self._held, "seconds": round(waited, 1)})
        self._record.set({"gpu_memory": self._held, "releasing": False})
        self._on_free()

    def _query(self, limit: float, on_done: Callable[[], None]) -> None:
        """Ask how much is in use and, where it is too much, by whom; no answer counts as free."""

        def on_apps(text: str) -> None:
            processes = read_apps(text)
            for entry in self._held:
                entry["by"] = [
                    {
                        "memory": one.memory,
                        "pid": one.pid or 0,
                        "user": one.user or "",
                        "command": one.command or "",
                    }
                    for one in processes
                    if one.gpu == entry["id"]
                ]
            on_done()

        def on_used(text: str) -> None:
            used = read_used(text)
            self._held = [
                {"gpu": gpu.get("index"), "id": name, "used": used[name], "by": []}
                for name, gpu in self._gpus.items()
                if used.get(name, 0) > BUSY_MEMORY + int(gpu.get("used") or 0)
            ]
            if self._held:
                self._start(APPS, limit, on_apps)
            else:
                on_done()

        self._start(USED, limit, on_used)

    def _start(self, options: List[str], limit: float, on_answer: Callable[[str], None]) -> None:
        try:
            SmiQuery(self._loop, [self._smi, *options], limit, on_answer)
        except OSError:
            on_answer("")
