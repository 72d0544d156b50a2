"""Records: declared once, written as JSON, read back with bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.protocol.messages.record import (
    Reading,
    Record,
    flag,
    integer,
    many,
    moment,
    named,
    number,
    optional,
    read,
    read_many,
    record,
    string,
    to_json,
    word,
)
from clusterctl.protocol.untrusted import parse_object


class Link(Record):
    """A part of a record."""

    to: str = string(8, missing="")
    speed: int | None = integer(0, 400)


class Machine(Record):
    """A record with a field of each kind."""

    name: str | None = string(8)
    state: str = word(("up", "down"), missing="down")
    cpus: int | None = integer(1, 512)
    load: float | None = number(0.0, 1.0)
    seen: float | None = moment()
    spare: bool = flag(missing=False)
    main: Link = record(Link)
    second: Link | None = optional(Link)
    links: tuple[Link, ...] = many(record(Link), 2)
    labels: dict[str, str] = named(string(8), 2)


class Rack(Machine):
    """A record that has the fields of another one before its own."""

    height: int = integer(1, 48, missing=1)


WHOLE = {
    "name": "gpu01",
    "state": "up",
    "cpus": 64,
    "load": 0.5,
    "seen": 1.7e9,
    "spare": True,
    "main": {"to": "b", "speed": 100},
    "second": {"to": "c", "speed": None},
    "links": [{"to": "d", "speed": 1}],
    "labels": {"room": "7"},
}


def test_what_is_written_is_read_back() -> None:
    """Through JSON, with every kind of field, and as a frozen value."""
    machine = Machine(
        name="gpu01",
        state="up",
        cpus=64,
        load=0.5,
        seen=1.7e9,
        spare=True,
        main=Link(to="b", speed=100),
        second=Link(to="c"),
        links=(Link(to="d", speed=1),),
        labels={"room": "7"},
    )
    assert to_json(machine) == WHOLE
    assert read(Machine, parse_object(json.dumps(WHOLE).encode())) == machine
    assert read_many(Machine, [WHOLE, 7, WHOLE]) == (machine, machine)
    with pytest.raises(AttributeError, match="frozen"):
        machine.cpus = 1  # type: ignore[misc]  # what must not be possible


def test_a_record_shows_what_differs_from_an_empty_one() -> None:
    """Two are equal by their fields; a changed copy leaves the first as it was."""
    link = Link(to="b")
    assert repr(link.replace(speed=1)) == "Link(to='b', speed=1)" and link == Link(to="b")
    assert link != Link() and hash(link) == hash(Link(to="b"))
    assert list(to_json(Rack())) == [*WHOLE, "height"]
    with pytest.raises(TypeError, match="Link has no field too"):
        Link(too="b")  # type: ignore[call-arg]  # a name that is wrong


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("name", 7),
        ("state", "sideways"),
        ("state", ["up"]),
        ("cpus", 513),
        ("cpus", True),
        ("load", 1.5),
        ("seen", -1),
        ("spare", 1),
        ("main", []),
        ("second", "c"),
        ("links", {"to": "d"}),
        ("labels", ["room"]),
    ],
)
def test_what_is_out_of_bounds_is_missing(key: str, raw: Any) -> None:
    """It leaves a note that names the place; all else stays."""
    reading = Reading()
    machine = read(Machine, {**WHOLE, key: raw}, reading)
    whole = read(Machine, WHOLE)
    assert machine is not None and whole is not None
    assert machine == whole.replace(**{key: getattr(Machine(), key)})
    assert [note.partition(":")[0] for note in reading.notes] == [key]


def test_long_texts_and_lists_are_cut() -> None:
    """Entries that cannot be read are left out, and a place within a list is named."""
    reading = Reading()
    links = [{"to": "x" * 99, "speed": 999}, None, {"to": "never read"}]
    machine = read(Machine, {"links": links, "labels": {"a": "1", "b": 2, "c": "3"}}, reading)
    assert machine == Machine(links=(Link(to="x" * 8),), labels={"a": "1"})
    assert reading.notes == [
        "links: cut to 2 of 3 items",
        "links[0].speed: dropped 999",
        "labels: cut to 2 of 3 entries",
        "labels.b: dropped 2",
    ]


def test_texts_are_cleaned_where_the_reader_asks_for_it() -> None:
    """Values, names and notes: all that may be printed."""
    reading = Reading(lambda text: text.replace("\x1b", "?"))
    machine = read(Machine, {"name": "a\x1b", "labels": {"\x1b": "\x1b"}, "cpus": "\x1b"}, reading)
    assert machine == Machine(name="a?", labels={"?": "?"})
    assert "\x1b" not in "".join(reading.notes)


def test_half_a_character_cannot_leave() -> None:
    """JSON can hold half of a surrogate pair, which no file and no terminal takes."""
    assert read(Link, {"to": "\ud83d"}) == Link(to="?")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*WHOLE, "to"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_nothing_that_is_read_raises(raw: Any) -> None:
    """Whatever was sent, what was read can be written and read again."""
    machine = read(Machine, raw)
    assert (machine is None) == (not isinstance(raw, dict))
    if machine is not None:
        assert read(Machine, json.loads(json.dumps(to_json(machine)))) == machine
