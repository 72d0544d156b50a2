"""Log lines on the screen: aligned prefixes, a colour per node, raw text in JSON."""

from __future__ import annotations

import io
import json

import pytest

from clusterctl.console import choice
from clusterctl.console.logs import JsonLogs, LogPrinter, node_color
from clusterctl.runs.follow import LogLines


def lines(*text: str, node: str = "gpu01", rank: int | None = 3, stream: str = "stdout") -> LogLines:
    """Build an entry that begins at byte 10 of its file."""
    return LogLines(node, rank, stream, "f", 10, 1.5, text, tuple(len(line.encode()) + 1 for line in text))


def printed(
    *entries: LogPrinter | LogLines, names: tuple[str, ...] = ("gpu01", "n2"), size: int = 16
) -> list[str]:
    """Print entries without colour and give the lines."""
    stream = io.StringIO()
    printer = LogPrinter(names, size, stream)
    for entry in entries:
        assert isinstance(entry, LogLines)
        printer.show(entry)
    return stream.getvalue().splitlines()


def test_prefixes_align_and_mark_stderr() -> None:
    """Names are padded to the longest, ranks to the largest, stderr is marked."""
    shown = printed(lines("a"), lines("b", node="n2", rank=12, stream="stderr"), lines("c", rank=None))

    assert shown == ["gpu01 r3  | a", "n2    r12 ! b", "gpu01 -   | c"]


def test_names_are_padded_by_display_width() -> None:
    """A Chinese character takes two columns."""
    assert printed(lines("x", node="节点"), lines("y", node="abcd"), names=("节点", "abcd"), size=2) == [
        "节点 r3 | x",
        "abcd r3 | y",
    ]


def test_escape_sequences_do_not_reach_the_screen() -> None:
    """A script's output cannot rewrite the terminal."""
    assert printed(lines("a\x1b[2J\x07b")) == ["gpu01 r3  | ab"]


def test_a_node_keeps_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The colour is chosen by the name, and only when colour is wanted."""
    monkeypatch.setitem(choice._CHOSEN, "color", "always")
    stream = io.StringIO()
    LogPrinter(["gpu01"], 1, stream).show(lines("x"))

    assert stream.getvalue().startswith(f"\x1b[{node_color('gpu01')}mgpu01")
    assert node_color("gpu01") == node_color("gpu01")


def test_json_lines_carry_raw_text_and_byte_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """The offset of the second line counts the bytes of the first, not its characters."""
    JsonLogs("r-1", {"gpu01": 0}).show(lines("é\x1b[0m", "b"))

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["line"], first["offset"]) == ("é\x1b[0m", 10)
    assert (second["offset"], second["node_rank"], second["rank"], second["schema"]) == (17, 0, 3, 1)
