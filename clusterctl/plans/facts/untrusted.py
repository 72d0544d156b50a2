"""Values of a node's answer as dataclasses, read with bounds.

Reads untrusted JSON into frozen dataclasses: what does not fit is dropped with a note, never raised.

A type is turned into a reader once; two hundred nodes tell of their ways to each other forty thousand times.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from clusterctl.protocol.untrusted import Untrusted

MAX_TEXT = 1000
MAX_ITEMS = 2000
MAX_NUMBER = 1 << 63
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
NUMBERS = (int, float)

Reader = Callable[[Any, str, list[str]], Any]


def read_value(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    """Read `raw` as a value of the annotated type `kind`; `None` and a note if it is none."""
    return None if raw is None else _reader(kind)(raw, place, notes)


@functools.cache
def field_kinds(kind: type) -> dict[str, Any]:
    """Give the types of a dataclass's fields by name."""
    return typing.get_type_hints(kind)


@functools.cache
def _reader(kind: Any) -> Reader:
    """Make the reader of a type; what it is given is not None."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _reader(next(one for one in typing.get_args(kind) if one is not type(None)))
    if is_dataclass(kind):
        return _record(kind)
    if origin is tuple:
        return _items(_reader(typing.get_args(kind)[0]))
    if origin is Mapping:
        return _table(_reader(typing.get_args(kind)[1]))
    return SCALARS[kind]


def _record(kind: Any) -> Reader:
    readers = [(name, _reader(hint)) for name, hint in field_kinds(kind).items()]

    def read(raw: Any, place: str, notes: list[str]) -> Any:
        if not isinstance(raw, Mapping):
            return _dropped(raw, place, notes)
        values = {}
        for name, reader in readers:
            one = raw.get(name)
            if one is not None and (value := reader(one, f"{place}.{name}", notes)) is not None:
                values[name] = value
        return kind(**values)

    return read


def _items(reader: Reader) -> Reader:
    def read(raw: Any, place: str, notes: list[str]) -> Any:
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            return _dropped(raw, place, notes)
        if len(raw) > MAX_ITEMS:
            notes.append(f"{place}: cut to {MAX_ITEMS} of {len(raw)} items")
        given = [(index, one) for index, one in enumerate(raw[:MAX_ITEMS]) if one is not None]
        values = (reader(one, f"{place}[{index}]", notes) for index, one in given)
        return tuple(value for value in values if value is not None)

    return read


def _table(reader: Reader) -> Reader:
    def read(raw: Any, place: str, notes: list[str]) -> Any:
        if not isinstance(raw, Mapping):
            return _dropped(raw, place, notes)
        if len(raw) > MAX_ITEMS:
            notes.append(f"{place}: cut to {MAX_ITEMS} of {len(raw)} entries")
        pairs = [(clean_text(str(key)), one) for key, one in list(raw.items())[:MAX_ITEMS] if one is not None]
        values = {key: reader(one, f"{place}.{key}", notes) for key, one in pairs}
        return {key: value for key, value in values.items() if value is not None}

    return read


def _text(raw: Any, place: str, notes: list[str]) -> str | None:
    return clean_text(raw) if isinstance(raw, str) else _dropped(raw, place, notes)


def _float(raw: Any, place: str, notes: list[str]) -> float | None:
    good = isinstance(raw, NUMBERS) and not isinstance(raw, bool) and abs(raw) < 1e300
    return float(raw) if good else _dropped(raw, place, notes)


def _bool(raw: Any, place: str, notes: list[str]) -> bool | None:
    return raw if isinstance(raw, bool) else _dropped(raw, place, notes)


def _int(raw: Any, place: str, notes: list[str]) -> int | None:
    good = isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < MAX_NUMBER
    return int(raw) if good else _dropped(raw, place, notes)


SCALARS: Mapping[Any, Reader] = {str: _text, float: _float, bool: _bool, int: _int}


def clean_text(text: str) -> str:
    """Shorten a text and show what a terminal would act on, or an eye would miss, as `\\x..` or `\\u....`."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_TEXT:
        return text
    return UNSEEN.sub(_escape, text[:MAX_TEXT])


def clean_lines(text: str, most: int) -> str:
    """Clean a text of several lines as `clean_text` does one; of a long one keep the end, where the reason stands."""
    kept = text[-most:].rstrip()
    lines = "\n".join(UNSEEN.sub(_escape, line.removesuffix("\r").expandtabs(4)) for line in kept.split("\n"))
    return lines if len(text) <= most else f"[the first {len(text) - most} characters are left out]\n{lines}"


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _dropped(raw: object, place: str, notes: list[str]) -> Any:
    notes.append(f"{place}: dropped {clean_text(repr(raw)[:80])}")
    return None


MOST = 1000
LONGEST_NAME = 100  # characters; the kernel keeps 15
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux


def render_processes(raw: Untrusted, key: str) -> tuple[str, ...]:
    """Name the processes of a list: `python (pid 4711)`."""
    return tuple(render_process(one) for one in raw.records(key, MOST))


def render_process(raw: Untrusted) -> str:
    """Name one process."""
    pid = raw.integer("pid", 1, LARGEST_PID)
    return f"{raw.text('name', LONGEST_NAME) or '?'} (pid {'?' if pid is None else pid})"
