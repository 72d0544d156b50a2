"""Hostile texts: an end to everything, never a traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counting import check_growth, count_calls
from variants import VARIANT

from clusterctl.errors import SpecError
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.yaml.reader import MAX_BYTES, decode_source, read_document

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
    "deep flow lists": ("a: " + "[" * 40_000, "nested more than 32 levels"),
    "deep flow mappings": ("{a: " * 50_000, "nested more than 32 levels"),
    "deep blocks": ("".join(f"{' ' * depth}-\n" for depth in range(600)), "nested more than 32 levels"),
    "deep dashes": ("- " * 100_000, "nested more than 32 levels"),
    "many values": ("cluster: a\nnodes: [" + "a, " * 60_000 + "]", "more than 50000 values"),
    "a large file": ("#" * (MAX_BYTES + 1), "more than 256 KiB"),
}
# How often something is repeated in the largest text, and the text with that or another number of repetitions.
HUGE: dict[str, tuple[int, Callable[[int], str]]] = {
    "a long scalar": (MAX_BYTES - 20, lambda n: "cluster: " + "b" * n),
    "a long key": (MAX_BYTES - 20, lambda n: "b" * n + ": c"),
    "a long quotation": (MAX_BYTES - 20, lambda n: "cluster: '" + "\n" * n + "'"),
    "many escapes": (MAX_BYTES // 2 - 20, lambda n: 'cluster: "' + "\\n" * n + '"'),
    "an open quotation": (MAX_BYTES // 2 - 20, lambda n: "cluster: '" + "b\n" * n),
    "a long block": (MAX_BYTES // 3 - 20, lambda n: "cluster: |\n" + " x\n" * n),
    "comments": (MAX_BYTES // 2, lambda n: "#\n" * n),
    "spaces": (MAX_BYTES, lambda n: " " * n),
    "a long tag": (200_000, lambda n: "cluster: !" + "a" * n),
    "a long anchor": (MAX_BYTES - 20, lambda n: "cluster: &" + "a" * n),
    "unknown keys": (20_000, lambda n: "".join(f"key{number}: v\n" for number in range(n))),
    "one key over and over": (20_000, lambda n: "cluster: a\n" * n),
    "wrong placeholders": (100_000, lambda n: "args: ['" + "${" * n + "']\n"),
    "a long number": (MAX_BYTES - 20, lambda n: "gpus: " + "9" * n),
    "wrong nodes": (5_000, lambda n: "nodes:\n" + "- {host: 'a b', gpus: x, prots: 1}\n" * n),
    "nodes at one address": (10_000, lambda n: "cluster: a\nnodes:\n" + NODE * n),
    "secrets": (20_000, lambda n: "secrets: [" + "A, " * n + "]"),
    "nics": (20_000, lambda n: "cluster: a\nnodes:\n- host: a\n  nic: [" + "e, " * n + "]"),
}


def refuse(text: str) -> SpecError:
    """Parse a text that is wrong."""
    with pytest.raises(SpecError) as caught:
        (parse_job if text.startswith(("args", "secrets")) else parse_inventory)(text, "f")
    return caught.value


@pytest.mark.process
@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused(name: str) -> None:
    """With the reason."""
    text, words = TOO_MUCH[name]
    issue = refuse(text).issues[-1]

    assert issue.code == "CC-SPEC-003"
    assert words in issue.message


@pytest.mark.parametrize("name", [name for name, (text, _) in TOO_MUCH.items() if len(text) < 150_000])
def test_too_much_costs_no_more_than_its_text(name: str) -> None:
    """Nothing is expanded, and nothing read twice: a few calls for each character."""
    text, _ = TOO_MUCH[name]

    count_calls(lambda: refuse(text), 100 * len(text))


# Seconds each; that their work grows with the text, and that problems are cut short, is tested with smaller ones.
SECONDS = ("unknown keys", "one key over and over", "wrong nodes", "nodes at one address", "secrets")


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=VARIANT if name in SECONDS else ()) for name in HUGE]
)
def test_huge_texts_end(name: str) -> None:
    """A text within the limits is examined, and its errors are few enough to be read."""
    size, text = HUGE[name]
    issues = refuse(text(size)).issues

    assert len(issues) <= 201
    assert all(len(issue.message) < 300 for issue in issues)


@pytest.mark.process
@pytest.mark.parametrize("name", HUGE)
def test_work_grows_with_the_text(name: str) -> None:
    """Ten times the text is about ten times the work, not a hundred times."""
    size, text = HUGE[name]

    check_growth(lambda number: refuse(text(number)), size // 60)


def test_many_problems_are_cut_short() -> None:
    """Nobody reads more than a few hundred."""
    with pytest.raises(SpecError) as caught:
        parse_inventory("cluster: a\nnodes: [{host: b}]\n" + HUGE["unknown keys"][1](2_000), "f")

    assert len(caught.value.issues) == 201
    assert caught.value.issues[199].message == "unknown key 'key199'"
    assert caught.value.issues[200].message == "1800 more problems are not shown"


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
    assert (issue.code, issue.location and (issue.location.line, issue.location.column)) == (
        "CC-SPEC-002",
        (line, column),
    )
    assert point in issue.message


@pytest.mark.parametrize("quote", ["'", '"'])
def test_what_json_may_hold_stands_in_quotes(quote: str) -> None:
    """YAML 1.2 allows DEL and the old control characters there, raw, as a JSON file has them."""
    table, issues = read_document(f"a: {quote}x\x7f\x80y{quote}\nb: \U000f0001", "f")
    assert issues == ()
    assert [getattr(value, "text", None) for _, value in table.entries.values()] == [
        "x\x7f\x80y",
        "\U000f0001",
    ]

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
    assert (issue.code, str(issue.location), issue.message) == (
        "CC-SPEC-002",
        "f:2:9",
        "the byte 0xff is not UTF-8 text",
    )


def test_too_many_bytes_are_refused() -> None:
    """Before they are decoded."""
    with pytest.raises(SpecError) as caught:
        decode_source(b"\xff" * (MAX_BYTES + 1), "f")

    assert caught.value.issues[0].code == "CC-SPEC-003"
