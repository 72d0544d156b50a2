"""Values of a node's answer as dataclasses, read with bounds.

Reads untrusted JSON into frozen dataclasses: what does not fit is dropped with a note, never raised.

A type is turned into a reader once; two hundred nodes report forty thousand connections to each other.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from clusterctl.protocol.messages.facts import LARGEST_PID
from clusterctl.protocol.messages.record import Reading, Record, read, read_many
from clusterctl.protocol.untrusted import Untrusted, bounded_integer, finite_number

if TYPE_CHECKING:
    from clusterctl.protocol.messages.record import AnyRecord

MAX_TEXT = 1000
MAX_ITEMS = 2000
MAX_NUMBER = (1 << 63) - 1
LARGEST_FLOAT = 1e300
# What a terminal acts on or an eye misses, but for tab and newline, as the inside of a class of characters: control
# characters, soft hyphens, bidirectional and zero-width ones, annotations and tags; and surrogates, which are no UTF-8.
# It is the only such table: what is printed, JSON and the pages are made from it.
UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
INVISIBLE = re.compile(f"[\t\n{UNSEEN}]")

Reader = Callable[[Any, str, list[str]], Any]


def read_value(kind: Any, raw: object, path: str, notes: list[str]) -> Any:
    """Read `raw` as a value of the annotated type `kind`; `None` and a note if it is none."""
    return None if raw is None else _make_reader(kind)(raw, path, notes)


@functools.cache
def field_types(kind: type) -> dict[str, Any]:
    """Give the types of a dataclass's fields by name."""
    return typing.get_type_hints(kind)


@functools.cache
def _make_reader(kind: Any) -> Reader:
    """Make the reader of a type; what it is given is not None."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _make_reader(next(member for member in typing.get_args(kind) if member is not type(None)))
    if is_dataclass(kind):
        return _record_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Record):
        return lambda raw, _, notes: read(kind, raw, Reading(clean_text, notes))
    if origin is tuple:
        return _sequence_reader(_make_reader(typing.get_args(kind)[0]))
    if origin is Mapping:
        return _mapping_reader(_make_reader(typing.get_args(kind)[1]))
    return SCALARS[kind]


def _record_reader(kind: Any) -> Reader:
    readers = [(name, _make_reader(hint)) for name, hint in field_types(kind).items()]

    def read(raw: Any, path: str, notes: list[str]) -> Any:
        if not isinstance(raw, Mapping):
            return _drop(raw, path, notes)
        values = {}
        for name, reader in readers:
            item = raw.get(name)
            if item is not None and (value := reader(item, f"{path}.{name}", notes)) is not None:
                values[name] = value
        return kind(**values)

    return read


def _sequence_reader(reader: Reader) -> Reader:
    def read(raw: Any, path: str, notes: list[str]) -> Any:
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            return _drop(raw, path, notes)
        if len(raw) > MAX_ITEMS:
            notes.append(f"{path}: cut to {MAX_ITEMS} of {len(raw)} items")
        numbered = [(index, item) for index, item in enumerate(raw[:MAX_ITEMS]) if item is not None]
        values = (reader(item, f"{path}[{index}]", notes) for index, item in numbered)
        return tuple(value for value in values if value is not None)

    return read


def _mapping_reader(reader: Reader) -> Reader:
    def read(raw: Any, path: str, notes: list[str]) -> Any:
        if not isinstance(raw, Mapping):
            return _drop(raw, path, notes)
        if len(raw) > MAX_ITEMS:
            notes.append(f"{path}: cut to {MAX_ITEMS} of {len(raw)} entries")
        pairs = [
            (clean_text(str(key)), item) for key, item in list(raw.items())[:MAX_ITEMS] if item is not None
        ]
        values = {key: reader(item, f"{path}.{key}", notes) for key, item in pairs}
        return {key: value for key, value in values.items() if value is not None}

    return read


def _read_text(raw: Any, path: str, notes: list[str]) -> str | None:
    return clean_text(raw) if isinstance(raw, str) else _drop(raw, path, notes)


def _read_float(raw: Any, path: str, notes: list[str]) -> float | None:
    value = finite_number(raw, -LARGEST_FLOAT, LARGEST_FLOAT)
    return value if value is not None else _drop(raw, path, notes)


def _read_bool(raw: Any, path: str, notes: list[str]) -> bool | None:
    return raw if isinstance(raw, bool) else _drop(raw, path, notes)


def _read_int(raw: Any, path: str, notes: list[str]) -> int | None:
    value = bounded_integer(raw, -MAX_NUMBER, MAX_NUMBER)
    return value if value is not None else _drop(raw, path, notes)


SCALARS: Mapping[Any, Reader] = {str: _read_text, float: _read_float, bool: _read_bool, int: _read_int}


def clean_text(text: str) -> str:
    """Shorten a text and show what a terminal would act on, or an eye would miss, as `\\x..` or `\\u....`."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_TEXT:
        return text
    return INVISIBLE.sub(show_escaped, text[:MAX_TEXT])


def clean_lines(text: str, limit: int) -> str:
    """Clean a text of several lines as `clean_text` does one; of a long one keep the end, where the reason stands."""
    kept = text[-limit:].rstrip()
    lines = "\n".join(
        INVISIBLE.sub(show_escaped, line.removesuffix("\r").expandtabs(4)) for line in kept.split("\n")
    )
    return (
        lines if len(text) <= limit else f"[the first {len(text) - limit} characters are left out]\n{lines}"
    )


def show_escaped(match: re.Match[str]) -> str:
    """Write a character as Python writes it: `\\x1b`, `\\u202e`, `\\U000e0041`."""
    number = ord(match.group())
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def read_clean(kind: type[AnyRecord], raw: object) -> AnyRecord | None:
    """Read a record whose texts may be printed; None for anything that is no object."""
    return read(kind, raw, Reading(clean_text))


def read_clean_many(kind: type[AnyRecord], raw: object) -> tuple[AnyRecord, ...]:
    """Read a list of records whose texts may be printed."""
    return read_many(kind, raw, Reading(clean_text))


def _drop(raw: object, path: str, notes: list[str]) -> Any:
    notes.append(f"{path}: dropped {clean_text(repr(raw)[:80])}")
    return None


MAX_PROCESSES = 1000
MAX_PROCESS_NAME = 100  # characters; the kernel keeps 15


def render_processes(raw: Untrusted, key: str) -> tuple[str, ...]:
    """Name the processes of a list: `python (pid 4711)`."""
    return tuple(render_process(entry) for entry in raw.records(key, MAX_PROCESSES))


def render_process(raw: Untrusted) -> str:
    """Name one process."""
    pid = raw.integer("pid", 1, LARGEST_PID)
    return f"{raw.text('name', MAX_PROCESS_NAME) or '?'} (pid {'?' if pid is None else pid})"
