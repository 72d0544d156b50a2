"""Work in a thread of its own, for file systems that may hang: the agent's loop never waits for it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any, Callable, List

from .loop import Loop


def run_in_thread(work: Callable[[], Any]) -> None:
    """Start a thread that nobody waits for."""
    with suppress(RuntimeError):  # no thread to be had: nothing will be known
        threading.Thread(target=work, daemon=True).start()


def call_in_thread(
    loop: Loop, name: str, limit: float, work: Callable[[], Any], done: Callable[[Any], None]
) -> None:
    """Call `done` from the loop with the result of `work`; with None if it fails or takes longer than `limit`."""
    found: List[Any] = []
    reader, writer = os.pipe()

    def run() -> None:
        try:
            found.append(work())
        finally:
            os.close(writer)

    def tell() -> None:
        loop.drop(name)
        loop.forget(reader)
        os.close(reader)
        done(found[0] if found else None)

    loop.watch(reader, tell)
    loop.after(limit, name, tell)
    run_in_thread(run)
