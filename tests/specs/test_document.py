"""Hostile texts: an end to everything, never a traceback."""

from __future__ import annotations

import time

import pytest

from clusterctl.errors import SpecError
from clusterctl.specs.document import MOST_BYTES, decode_source, read_document
from clusterctl.specs.inventory_parsing import parse_inventory
from clusterctl.specs.job_parsing import parse_job

NODE = "- host: h\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(10))}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

TOO_MUCH = {
    "an alias bomb": (BOMB, "more than 50000 values"),
    "a chain of aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 999)),
        "values",
    ),
    "a mapping of aliases": (BOMB.replace("[", "{k: [").replace("]", "]}"), "more than 50000 values"),
    "deep flow lists": ("a: " + "[" * 100_000, "nested more than 32 levels"),
    "deep flow mappings": ("{a: " * 50_000, "nested more than 32 levels"),
    "deep blocks": ("".join(f"{' ' * depth}-\n" for depth in range(600)), "nested more than 32 levels"),
    "deep dashes": ("- " * 100_000, "nested more than 32 levels"),
    "many values": ("cluster: a\nnodes: [" + "a, " * 60_000 + "]", "more than 50000 values"),
    "a large file": ("#" * (MOST_BYTES + 1), "more than 256 KiB"),
}
HUGE = {
    "a long scalar": "cluster: " + "b" * (MOST_BYTES - 20),
    "a long key": "b" * (MOST_BYTES - 20) + ": c",
    "a long quotation": "cluster: '" + "\n" * (MOST_BYTES - 20) + "'",
    "many escapes": 'cluster: "' + "\\n" * (MOST_BYTES // 2 - 20) + '"',
    "an open quotation": "cluster: '" + "b\n" * (MOST_BYTES // 2 - 20),
    "a long block": "cluster: |\n" + " x\n" * (MOST_BYTES // 3 - 20),
    "comments": "#\n" * (MOST_BYTES // 2),
    "spaces": " " * MOST_BYTES,
    "a long tag": "cluster: !" + "a" * 200_000,
    "a long anchor": "cluster: &" + "a" * (MOST_BYTES - 20),
    "unknown keys": "".join(f"key{number}: v\n" for number in range(20_000)),
    "one key over and over": "cluster: a\n" * 20_000,
    "wrong placeholders": "args: ['" + "${" * 100_000 + "']\n",
    "a long number": "gpus: " + "9" * (MOST_BYTES - 20),
    "wrong nodes": "nodes:\n" + "- {host: 'a b', gpus: x, prots: 1}\n" * 5_000,
    "nodes at one address": "cluster: a\nnodes:\n" + NODE * 10_000,
    "secrets": "secrets: [" + "A, " * 20_000 + "]",
    "nics": "cluster: a\nnodes:\n- host: a\n  nic: [" + "e, " * 20_000 + "]",
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused_at_once(name: str) -> None:
    """With the reason, and long before the end of the text."""
    text, words = TOO_MUCH[name]
    began = time.process_time()

    with pytest.raises(SpecError) as caught:
        parse_inventory(text, "f")

    assert caught.value.issues[-1].code == "CC-SPEC-003"
    assert words in caught.value.issues[-1].message
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_end_soon(name: str) -> None:
    """A text within the limits is examined, and its errors are few enough to be read."""
    text = HUGE[name]
    began = time.process_time()

    with pytest.raises(SpecError) as caught:
        (parse_job if text.startswith(("args", "secrets")) else parse_inventory)(text, "f")

    assert len(caught.value.issues) <= 201
    assert all(len(issue.message) < 300 for issue in caught.value.issues)
    assert time.process_time() - began < 8


def test_many_problems_are_cut_short() -> None:
    """Nobody reads more than a few hundred."""
    with pytest.raises(SpecError) as caught:
        parse_inventory("cluster: a\nnodes: [{host: b}]\n" + HUGE["unknown keys"], "f")

    assert len(caught.value.issues) == 201
    assert caught.value.issues[199].message == "unknown key 'key199'"
    assert caught.value.issues[200].message == "and 19800 more problems"


def test_a_wide_but_honest_inventory_is_read() -> None:
    """The limits leave room for thousands of nodes."""
    nodes = "".join(f"  - {{host: n{i}, nic: [a0, a1], gpus: 8, ssh: {{port: 22}}}}\n" for i in range(2000))

    assert len(parse_inventory(f"cluster: a\nnodes:\n{nodes}", "f").nodes) == 2000


@pytest.mark.parametrize(
    ("text", "line", "column", "point"),
    [
        ("a\x00b: c", 1, 2, "U+0000"),
        ("a: b\nc: \x1b[31m", 2, 4, "U+001B"),
        ("a: b\nc: d\x7f", 2, 5, "U+007F"),
        ("\ufeffa: \ud800", 1, 4, "U+D800"),
        ("a: \ufffe", 1, 4, "U+FFFE"),
    ],
)
def test_control_characters_are_shown_by_number(text: str, line: int, column: int, point: str) -> None:
    """They may be invisible, and must not reach a terminal."""
    with pytest.raises(SpecError) as caught:
        read_document(text, "f")

    (issue,) = caught.value.issues
    assert (issue.code, issue.place and (issue.place.line, issue.place.column)) == (
        "CC-SPEC-002",
        (line, column),
    )
    assert point in issue.message


@pytest.mark.parametrize("quote", ["'", '"'])
def test_what_json_may_hold_stands_in_quotes(quote: str) -> None:
    """YAML 1.2 allows DEL and the old control characters there, raw, as a JSON file has them."""
    table, issues = read_document(f"a: {quote}x\x7f\x80y{quote}\nb: \U000f0001", "f")
    assert issues == ()
    assert [getattr(value, "text", None) for _, value in table.entries.values()] == ["x\x7f\x80y", "\U000f0001"]

    kept = "\U000f007f"  # somebody's own character of private use
    table, issues = read_document(f"a: '{kept}'", "f")
    assert [getattr(value, "text", None) for _, value in table.entries.values()] == [kept]


def test_bytes_become_text() -> None:
    """UTF-8, with or without its mark."""
    assert decode_source("name: ü".encode(), "f") == "name: ü"


def test_bytes_that_are_no_text_have_a_place() -> None:
    """The line and the column of the first wrong byte."""
    with pytest.raises(SpecError) as caught:
        decode_source("name: ü\nscript: ".encode() + b"\xff.py", "f")

    (issue,) = caught.value.issues
    assert (issue.code, str(issue.place), issue.message) == (
        "CC-SPEC-002",
        "f:2:9",
        "the byte 0xff is not UTF-8 text",
    )


def test_too_many_bytes_are_refused() -> None:
    """Before they are decoded."""
    with pytest.raises(SpecError) as caught:
        decode_source(b"\xff" * (MOST_BYTES + 1), "f")

    assert caught.value.issues[0].code == "CC-SPEC-003"
