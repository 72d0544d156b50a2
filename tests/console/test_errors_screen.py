"""How an error looks on a terminal."""

from __future__ import annotations

import io

import pytest

from clusterctl.console.errors import show_error
from clusterctl.errors import Issue, Location, SpecError, UsageError
from clusterctl.translation import use_language


class Terminal(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def shown(error: UsageError, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the lines on a terminal of 40 columns."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    show_error(error)
    return stream.getvalue().splitlines()


def test_no_word_is_broken_and_a_command_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is indented below its own beginning; a pipe gets lines as they are."""
    place = Location("job.yaml", 2, 5)
    known = Issue.of("CC-SPEC-010", "", place, key="'foo'", known="name, script, module, command, args")
    lines = shown(SpecError([known]), monkeypatch)
    assert lines == [
        "error: 1 problem in job.yaml",
        "job.yaml:2:5: CC-SPEC-010 unknown key",
        "    'foo'",
        "    fix: known keys: name, script,",
        "         module, command, args",
    ]
    error = UsageError("CC-SPEC-010", "", key="'foo'", known="name")
    error.fix = "clusterctl exec --nodes gpu01 -- " + "word " * 12
    assert "  fix: " + error.fix in shown(error, monkeypatch)


def test_the_frame_of_an_error_is_in_the_users_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes and places stay as they are."""
    use_language("zh")
    try:
        error = SpecError([Issue.of("CC-SPEC-005", "empty", Location("job.yaml", 1, 1))])
        first, second, third, *_ = shown(error, monkeypatch)
    finally:
        use_language("en")
    assert (first[:2], "job.yaml" in first, third.startswith("    修复")) == ("错误", True, True)
    assert second.startswith("job.yaml:1:1: CC-SPEC-005 ")
