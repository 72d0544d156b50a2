"""Reads untrusted JSON into frozen dataclasses: what does not fit is dropped with a note, never raised."""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

MAX_TEXT = 1000
MAX_ITEMS = 2000
MAX_NUMBER = 1 << 63
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")


def read_value(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    """Read `raw` as a value of the annotated type `kind`; `None` and a note if it is none."""
    if raw is None:
        return None
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(one for one in typing.get_args(kind) if one is not type(None))
        return read_value(inner, raw, place, notes)
    if is_dataclass(kind):
        return _record(kind, raw, place, notes)
    if origin is tuple:
        return _items(typing.get_args(kind)[0], raw, place, notes)
    if origin is Mapping:
        return _table(typing.get_args(kind)[1], raw, place, notes)
    return _scalar(kind, raw, place, notes)


@functools.cache
def field_kinds(kind: type) -> dict[str, Any]:
    """Give the types of a dataclass's fields by name."""
    return typing.get_type_hints(kind)


def _record(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    if not isinstance(raw, Mapping):
        return _dropped(raw, place, notes)
    hints = field_kinds(kind)
    names = [one.name for one in fields(kind)]
    values = {name: read_value(hints[name], raw.get(name), f"{place}.{name}", notes) for name in names}
    return kind(**{name: value for name, value in values.items() if value is not None})


def _items(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        return _dropped(raw, place, notes)
    if len(raw) > MAX_ITEMS:
        notes.append(f"{place}: cut to {MAX_ITEMS} of {len(raw)} items")
    values = (read_value(kind, one, f"{place}[{index}]", notes) for index, one in enumerate(raw[:MAX_ITEMS]))
    return tuple(value for value in values if value is not None)


def _table(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    if not isinstance(raw, Mapping):
        return _dropped(raw, place, notes)
    if len(raw) > MAX_ITEMS:
        notes.append(f"{place}: cut to {MAX_ITEMS} of {len(raw)} entries")
    pairs = [(clean_text(str(key)), value) for key, value in list(raw.items())[:MAX_ITEMS]]
    values = {key: read_value(kind, value, f"{place}.{key}", notes) for key, value in pairs}
    return {key: value for key, value in values.items() if value is not None}


def _scalar(kind: Any, raw: object, place: str, notes: list[str]) -> Any:
    if kind is str and isinstance(raw, str):
        return clean_text(raw)
    if kind is float and isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 1e300 else _dropped(raw, place, notes)
    if kind is bool and isinstance(raw, bool):
        return raw
    if kind is int and isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < MAX_NUMBER:
        return raw
    return _dropped(raw, place, notes)


def clean_text(text: str) -> str:
    """Shorten a text and show what a terminal would act on, or an eye would miss, as `\\x..` or `\\u....`."""
    return UNSEEN.sub(_escape, text[:MAX_TEXT])


def _escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _dropped(raw: object, place: str, notes: list[str]) -> None:
    notes.append(f"{place}: dropped {clean_text(repr(raw)[:80])}")
