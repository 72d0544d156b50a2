"""What is written to a terminal beside results: a line that stays below, and prose at the terminal's width."""

from __future__ import annotations

import io

import pytest

from clusterctl.console import terminal
from clusterctl.console.terminal import clear_live_line, info, show_live_line


class Screen(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def open_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Put a terminal of 40 columns in place of stderr; pytest puts its own there before each test."""
    shown = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr(terminal, "_live_line", [])
    return shown


def test_a_line_that_stays_below_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written again only if it has changed or was taken away, and never wraps."""
    screen = open_screen(monkeypatch)
    show_live_line("gpu02: silent for 6 s")
    show_live_line("gpu02: silent for 6 s")
    info("note")
    show_live_line("gpu02: silent for 7 s " + "x" * 50)
    clear_live_line()
    clear_live_line()

    first, second, third = screen.getvalue().split("\r\x1b[2K")
    assert first == "gpu02: silent for 6 s"
    assert second.startswith("note\ngpu02: silent for 7 s xxx")
    assert len(second.removeprefix("note\n")) == 39
    assert third == ""


def test_elsewhere_there_is_no_such_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, and a terminal that cannot take lines back."""
    for stream, kind in ((io.StringIO(), "xterm"), (Screen(), "dumb")):
        monkeypatch.setenv("TERM", kind)
        monkeypatch.setattr("sys.stderr", stream)
        show_live_line("text")
        info("note")
        assert stream.getvalue() == "note\n"


def test_prose_breaks_between_words_and_a_command_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be copied gets a line of its own; short lines and other commands stay as they are."""
    screen = open_screen(monkeypatch)
    command = "clusterctl --lab demo logs digits-20260101T000000-00aa --rank 1"
    info("the last lines of each rank, then new ones")
    info(f"the full log: {command}")
    info(f"  {command}  follow it again")

    assert screen.getvalue().splitlines() == [
        "the last lines of each rank, then new",
        "  ones",
        "the full log:",
        f"  {command}",
        f"  {command}  follow it again",
    ]
