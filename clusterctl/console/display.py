"""What moves on the screen while a phase is under way: a few lines on a terminal, a sentence now and then elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from clusterctl.console.choice import err, say
from clusterctl.console.progress import Progress, render_lines, render_sentence

CALM = 0.3  # seconds in which a phase may end without anything having moved
TICK = 0.2
SENTENCE_EVERY = 10.0
LEAVE_LIMIT = 2.0  # seconds that the lines may take to go


def can_move(stream: TextIO) -> bool:
    """Tell whether lines can be taken back; NO_COLOR speaks of colours only."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Display:
    """Shows what `look` gives until it is closed, from a thread of its own."""

    def __init__(self, look: Callable[[], Progress]) -> None:
        self._look = look
        self._over = threading.Event()
        show = self._move if can_move(sys.stderr) else self._speak
        self._thread = threading.Thread(target=show, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the lines off the screen."""
        self._over.set()
        self._thread.join(LEAVE_LIMIT)

    def _move(self) -> None:
        if self._over.wait(CALM):
            return
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        def lines() -> Group:
            head, *nodes = render_lines(self._look())
            styled = [Text(head, style="bold"), *(Text(node, style="dim") for node in nodes)]
            for line in styled:
                line.no_wrap, line.overflow = True, "ellipsis"
            return Group(*styled)

        # What is printed to stdout is a result, and goes where stdout goes.
        live = Live(lines(), console=err(), auto_refresh=False, transient=True, redirect_stdout=False)
        with live:
            live.console.show_cursor(True)  # whatever ends us, the terminal is left whole
            while not self._over.wait(TICK):
                live.update(lines(), refresh=True)

    def _speak(self) -> None:
        while not self._over.wait(SENTENCE_EVERY):
            say(f"  {render_sentence(self._look())}")
