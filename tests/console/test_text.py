"""Text from nodes must do no harm on a terminal."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.console.text import cut_text, sanitize, wrap_text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext", "plain\ttext"),
        ("损失 0.5 ok", "损失 0.5 ok"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
        ("a\x1b]8;;http://x\x07link\x1b]8;;\x07", "alink"),
        ("a\x9b31mb", "ab"),
        ("a\x1bP1$r\x1b\\b", "ab"),
        ("a\x1b(Bb\x1bcc", "abc"),
        ("bell\x07back\x08\x08\x00", "bellback"),
        ("\u202eevil\u202c", "evil"),
        (" 10%\r 20%\r 30%", " 30%"),
        ("windows\r\n", "windows"),
        ("cut\x1b[", "cut"),
    ],
)
def test_known_attacks_are_taken_out(raw: str, shown: str) -> None:
    """Each kind of sequence disappears, the text around it stays."""
    assert sanitize(raw) == shown


@given(st.text())
def test_nothing_that_controls_a_terminal_survives(raw: str) -> None:
    """Whatever comes in, no C0 (but tab), C1 or DEL comes out."""
    assert not [c for c in sanitize(raw) if (ord(c) < 0x20 and c != "\t") or 0x7F <= ord(c) <= 0x9F]


def test_prose_breaks_between_words_and_between_chinese_characters() -> None:
    """A Chinese character takes two columns; closing marks stay with what they close, long words stay whole."""
    assert wrap_text("note: one two three", 11, indent="  ") == ["note: one", "  two three"]
    assert wrap_text("显存不足。请检查 nvidia-smi 的输出。", 12, "  ", "  ") == [
        "  显存不足。",
        "  请检查",
        "  nvidia-smi",
        "  的输出。",
    ]
    assert wrap_text("silent for 6 seconds", 12) == ["silent for", "6 seconds"]
    assert wrap_text("它已经无响应 6 秒了", 14) == ["它已经无响应", "6 秒了"]
    assert wrap_text("（3 个节点）", 6) == ["（3 个", "节点）"]
    assert wrap_text("on gpu01 alone", 8) == ["on gpu01", "alone"]
    assert wrap_text("see /a/very/long/path", 10) == ["see", "/a/very/long/path"]
    assert wrap_text("", 10) == []


def test_no_text_is_lost_or_takes_long_where_lines_break() -> None:
    """A tab and a non-breaking space, as in a file's name, stay; a node's endless number is broken at once."""
    assert wrap_text("open /a\tb/c\u00a0d failed", 40) == ["open /a\tb/c\u00a0d failed"]
    began = time.process_time()
    assert len(wrap_text("1," * 20_000, 80)) == 1
    assert time.process_time() - began < 1


def test_a_cut_text_ends_in_dots() -> None:
    """Columns count, not characters."""
    assert cut_text("abcdef", 6) == "abcdef"
    assert cut_text("abcdefg", 6) == "abc..."
    assert cut_text("显存不足了", 8) == "显存..."
