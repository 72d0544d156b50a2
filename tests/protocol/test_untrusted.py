"""The one reader of what others have written: everything is bounded, and nothing that it gives out surprises."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from clusterctl.protocol.untrusted import MAX_INTEGER, MalformedError, Untrusted, parse_json, parse_object

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        7,
        1.5,
        -1e300,
        10**19,
        "",
        "text",
        "\ud800",
        "x" * 9999,
        "\x1b[2J\u202e",
        [],
        {},
    ),
    *([1, "a", None], [[1], ["b"]], [{"a": 1}], {"a": {"b": 1}}, {"1": 2}, ["x" * 9999] * 50),
]
READERS: list[tuple[Callable[[Untrusted], object], Callable[[Any], bool]]] = [
    (lambda one: one.text("key", 10), lambda value: isinstance(value, str) and len(value.encode()) <= 40),
    (lambda one: one.one_of("key", ("text",)), lambda value: value in ("", "text")),
    (lambda one: one.integer("key", 0, 9), lambda value: value is None or 0 <= value <= 9),
    (lambda one: one.count("key", 9), lambda value: 0 <= value <= 9),
    (lambda one: one.number("key", 0.0, 9.0), lambda value: value is None or 0.0 <= value <= 9.0),
    (lambda one: one.moment("key"), lambda value: value is None or 0 <= value <= 1e11),
    (lambda one: one.flag("key"), lambda value: value in (True, False)),
    (lambda one: one.choice("key"), lambda value: value in (True, False, None)),
    (lambda one: one.record("key"), lambda value: isinstance(value, Untrusted)),
    (lambda one: one.records("key", 3), lambda value: len(value) <= 3),
    (
        lambda one: one.texts("key", 3, 10),
        lambda value: len(value) <= 3 and all(len(text) <= 10 for text in value),
    ),
    (
        lambda one: one.integers("key", 3, 0, 9),
        lambda value: len(value) <= 3 and all(0 <= n <= 9 for n in value),
    ),
    (lambda one: one.rows("key", 3), lambda value: len(value) <= 3),
    (lambda one: one.named_records("key", 3), lambda value: len(value) <= 3),
    (lambda one: one.named_integers("key", 3, 0, 9), lambda value: all(0 <= n <= 9 for n in value.values())),
    (lambda one: one.names("key", 3), lambda value: len(value) <= 3),
    (
        lambda one: [row.text(0, 10) for row in one.rows("key", 3)],
        lambda value: all(len(t) <= 10 for t in value),
    ),
    (lambda one: [row.integer(9) for row in one.rows("key", 3)], lambda value: set(value) <= {None}),
]


@pytest.mark.parametrize(("read", "holds"), READERS)
def test_a_reader_keeps_its_bound_whatever_is_there(
    read: Callable[[Untrusted], object], holds: Callable[[Any], bool]
) -> None:
    """Every reader takes every kind of value, and a missing one, without raising."""
    for value in ODD:
        assert holds(read(Untrusted({"key": value}))), value
    assert holds(read(Untrusted({})))
    assert holds(read(Untrusted([1])))


def test_values_of_the_right_type_come_through() -> None:
    """What an honest node sends is read as it was sent."""
    one = parse_object(
        b'{"t": "\xe4\xb8\xad", "n": 7, "f": 1.5, "l": [{"a": 1}, 2], "o": {"x": 1, "y": "z"}, "z": null}'
    )
    assert (one.text("t"), one.integer("n"), one.number("f"), one.number("n")) == ("中", 7, 1.5, 7.0)
    assert one.records("l", 9) == (Untrusted({"a": 1}),)
    assert one.named_integers("o", 9) == {"x": 1}
    assert one.names("o", 9) == ("x", "y")
    assert one.is_null("z")
    assert not one.is_null("missing")
    assert "z" in one
    assert one.length("l") == 2


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"nonsense", b"{} {}", b"\xff", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}'),
        *(b'{"a": 1e999}', b'{"a": -1e999}', b'{"a": 1' + b"0" * 400 + b"}", b'{"a": 18446744073709551616}'),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 5000 + b"]" * 5000),
        *(b"[" + b"{}," * 200_000 + b"{}]", b'"' + b"x" * (1 << 20) + b'"', b'{"a": ' + b"9" * 5000 + b"}"),
    ],
    ids=lambda text: text[:12].decode("latin-1") + f"...{len(text)}",
)
def test_what_is_out_of_bounds_is_refused_before_it_costs(text: bytes) -> None:
    """Numbers without end, depth, size, too many values, and what is no JSON are one kind of error, in few words."""
    with pytest.raises(MalformedError) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 200


def test_numbers_up_to_the_bound_are_read() -> None:
    """An inode number or a byte count of a real system is no lie."""
    assert parse_json(b"[18446744073709551615, -18446744073709551615, 1e308]") == [
        MAX_INTEGER - 1,
        1 - MAX_INTEGER,
        1e308,
    ]


def test_an_object_is_wanted() -> None:
    """A list or a number is none."""
    for text in (b"[]", b"7", b'"a"', b"null"):
        with pytest.raises(MalformedError):
            parse_object(text)


def test_random_json_is_read_or_refused() -> None:
    """Whatever a generator makes: a value without a number that is not finite, or MalformedError."""
    chance = random.Random(5)
    read = 0
    for _ in range(1500):
        text = bytearray(json.dumps(random_value(chance, 0)).encode())
        for _ in range(chance.choice((0, 0, 1, 3))):
            if text:
                text[chance.randrange(len(text))] = chance.randrange(256)
        try:
            check_finite(parse_json(bytes(text)))
        except MalformedError:
            continue
        read += 1
    assert 300 < read < 1500


def random_value(chance: random.Random, depth: int) -> Any:
    """Make a value of any shape."""
    kind = chance.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    if kind == 7:
        return {chance.choice("abc"): random_value(chance, depth + 1) for _ in range(chance.randrange(5))}
    numbers = (0, -1, 10**400, 1.5, math.inf, math.nan, 1 << 63)
    return [None, True, chance.choice(numbers), "text", "\ud800", chance.random()][kind]


def check_finite(value: Any) -> None:
    """Look through everything."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_finite(one)
    if isinstance(value, (int, float)):
        assert math.isfinite(value)
        assert abs(value) <= 1e308


def test_what_stands_in_texts_is_not_counted() -> None:
    """A rank may print commas by the thousand: that is one value; hidden by quotes that are none, it is too many."""
    line = ",{[:" * 5000
    for text in (line, line + '"', "\\" + line, line + '\\"' + line):
        assert parse_json(json.dumps({"line": text}).encode(), most_values=10) == {"line": text}
    for values in (",".join(["{}"] * 50), ",".join(['"\\""'] * 50), ",".join(['"\\\\"'] * 50)):
        with pytest.raises(MalformedError, match="more than 10 values"):
            parse_json(f"[{values}]".encode(), most_values=10)


def test_a_row_of_whole_numbers() -> None:
    """All of them, or none."""
    (row, bad) = Untrusted({"rows": [[1, 2, 3], [1, "2"]]}).rows("rows", 2)
    assert (row.integers(2), row.integers(9), bad.integers(9)) == ((1, 2), (1, 2, 3), ())
    assert row.integers(9, 2, 9) == ()
