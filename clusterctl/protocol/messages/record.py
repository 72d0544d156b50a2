"""Records: what client and nodes send each other or keep in files, declared once, with the bounds of each field.

    class Gpu(Record):
        index: int | None = integer(0, 4095)
        name: str | None = string(200)
        links: tuple[Link, ...] = many(record(Link), 64)

A record is a frozen value. `to_json` writes it, `read` reads it back from what another machine has sent: a field that
is missing, of the wrong type or out of bounds becomes the field's `missing` value, never an error; unknown keys are
ignored. The annotation is for the type checker alone, so the nodes need neither `typing` nor `dataclasses`, which would
take a node longer to load than most verbs take to run.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..untrusted import (
    MAX_INTEGER,
    MAX_TEXT,
    MAX_TIME,
    Untrusted,
    bounded_integer,
    bounded_text,
    finite_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeVar

    from typing_extensions import Self, dataclass_transform

    AnyRecord = TypeVar("AnyRecord", bound="Record")
    ReadField = Callable[[Any, str, "Reading"], Any]

if not TYPE_CHECKING:

    def dataclass_transform(**_: Any) -> Any:  # noqa: D103 - for the type checker alone
        return lambda kind: kind


MAX_ITEMS = 2000  # of a list or an object, where a field does not say otherwise


class Reading:
    """How one answer is read: `clean` is applied to each text, `notes` get what was dropped or cut."""

    def __init__(self, clean: Callable[[str], str] | None = None, notes: list[str] | None = None) -> None:
        self.clean = clean
        self.notes = [] if notes is None else notes

    def drop(self, raw: object, path: str) -> Any:
        """Note a value that was not understood, and return None in its place."""
        shown = repr(raw)[:80]
        self.notes.append(f"{path}: dropped {self.clean(shown) if self.clean else shown}")
        return None


class Field:
    """One field of a record: how it is read, and what it is where it cannot be read."""

    __slots__ = ("missing", "read")

    def __init__(self, read: ReadField, missing: Any) -> None:
        self.read, self.missing = read, missing


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """A frozen value whose class attributes are its fields."""

    _fields: Any = MappingProxyType({})  # field by name; no type that only a type checker knows

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls._fields = dict(cls._fields, **own)

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self._fields.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        vars(self).update({name: field.missing for name, field in self._fields.items()}, **values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        changed = {name: value for name, value in vars(self).items() if value != self._fields[name].missing}
        shown = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"{type(self).__name__}({shown})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy in which some fields differ."""
        return type(self)(**dict(vars(self), **changes))


def fields_of(kind: type[Record]) -> Mapping[str, Field]:
    """Return the fields of a record by name, in the order of their declaration."""
    fields: Mapping[str, Field] = kind._fields
    return fields


def read(kind: type[AnyRecord], raw: object, reading: Reading | None = None) -> AnyRecord | None:
    """Read a record from JSON of elsewhere; None for anything that is no object."""
    value: AnyRecord | None = record(kind).read(_plain(raw), "", reading or Reading())
    return value


def read_many(
    kind: type[AnyRecord], raw: object, reading: Reading | None = None, most: int = MAX_ITEMS
) -> tuple[AnyRecord, ...]:
    """Read a list of records; what it holds besides records is left out."""
    values: tuple[AnyRecord, ...] | None = many(record(kind), most).read(raw, "", reading or Reading())
    return values or ()


def to_json(value: Any) -> Any:
    """Return what `json` can write: objects for records, lists for tuples."""
    if isinstance(value, Record):
        return {name: to_json(field) for name, field in vars(value).items()}
    if isinstance(value, (dict, MappingProxyType)):
        return {key: to_json(entry) for key, entry in value.items()}
    return [to_json(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def string(longest: int = MAX_TEXT, missing: str | None = None) -> Any:
    """Declare a text; a longer one is cut to so many characters."""

    def read_string(raw: Any, path: str, reading: Reading) -> Any:
        if not isinstance(raw, str):
            return reading.drop(raw, path)
        return reading.clean(raw)[:longest] if reading.clean else bounded_text(raw, longest)

    return Field(read_string, missing)


def word(allowed: tuple[str, ...], missing: str | None = None) -> Any:
    """Declare a text that is one of these words."""

    def read_word(raw: Any, path: str, reading: Reading) -> Any:
        return raw if isinstance(raw, str) and raw in allowed else reading.drop(raw, path)

    return Field(read_word, missing)


def integer(least: int = -MAX_INTEGER, most: int = MAX_INTEGER, missing: int | None = None) -> Any:
    """Declare a whole number between two bounds, both included."""

    def read_integer(raw: Any, path: str, reading: Reading) -> Any:
        value = bounded_integer(raw, least, most)
        return reading.drop(raw, path) if value is None else value

    return Field(read_integer, missing)


def number(least: float = -1e300, most: float = 1e300, missing: float | None = None) -> Any:
    """Declare a finite number between two bounds, both included."""

    def read_number(raw: Any, path: str, reading: Reading) -> Any:
        value = finite_number(raw, least, most)
        return reading.drop(raw, path) if value is None else value

    return Field(read_number, missing)


def moment(missing: float | None = None) -> Any:
    """Declare a time in seconds since 1970."""
    return number(0.0, MAX_TIME, missing)


def flag(missing: bool | None = None) -> Any:
    """Declare true or false."""

    def read_flag(raw: Any, path: str, reading: Reading) -> Any:
        return raw if isinstance(raw, bool) else reading.drop(raw, path)

    return Field(read_flag, missing)


def record(kind: type[Record]) -> Any:
    """Declare a record within a record; an empty one stands for one that is missing."""
    return Field(_record_reader(kind), kind())


def optional(kind: type[Record]) -> Any:
    """Declare a record within a record; None stands for one that is missing."""
    return Field(_record_reader(kind), None)


def _record_reader(kind: type[Record]) -> ReadField:
    def read_record(raw: Any, path: str, reading: Reading) -> Any:
        if not isinstance(raw, dict):
            return reading.drop(raw, path)
        known = ((name, raw.get(name), field) for name, field in fields_of(kind).items())
        return kind(**dict(_read_values(known, path + "." if path else "", "", reading)))

    return read_record


def many(entry: Field, most: int = MAX_ITEMS) -> Any:
    """Declare a list, cut to so many entries; an entry that cannot be read is left out."""

    def read_list(raw: Any, path: str, reading: Reading) -> Any:
        if not isinstance(raw, (list, tuple)):
            return reading.drop(raw, path)
        if len(raw) > most:
            reading.notes.append(f"{path}: cut to {most} of {len(raw)} items")
        entries = ((index, value, entry) for index, value in enumerate(raw[:most]))
        return tuple(value for _, value in _read_values(entries, path + "[", "]", reading))

    return Field(read_list, ())


def named(entry: Field, most: int = MAX_ITEMS) -> Any:
    """Declare an object whose names are chosen by the sender, cut to so many entries."""

    def read_names(raw: Any, path: str, reading: Reading) -> Any:
        if not isinstance(raw, dict):
            return reading.drop(raw, path)
        if len(raw) > most:
            reading.notes.append(f"{path}: cut to {most} of {len(raw)} entries")
        clean = reading.clean or (lambda name: bounded_text(name, MAX_TEXT))
        entries = ((clean(str(name)), value, entry) for name, value in list(raw.items())[:most])
        return dict(_read_values(entries, path + ".", "", reading))

    return Field(read_names, MappingProxyType({}))


def _read_values(
    entries: Iterable[tuple[Any, Any, Field]], before: str, after: str, reading: Reading
) -> Iterator[tuple[Any, Any]]:
    """Yield the values that can be read by their names; null is a value that is missing."""
    for name, raw, field in entries:
        if raw is not None:
            value = field.read(raw, f"{before}{name}{after}", reading)
            if value is not None:
                yield name, value


def _plain(raw: object) -> object:
    return raw.as_object() if isinstance(raw, Untrusted) else raw
