"""JSON that another machine, another account or another process has written: the one way to read it.

    bytes --parse_json / parse_object--> Untrusted --text, integer, number, records, ...--> values with bounds

`parse_json` bounds what a text can cost: its size, how many values it holds (each is an object in memory: 64 MiB of
`{},{},...` would be two gigabytes), its depth, and every number (finite, below 2^64, so that no arithmetic on it can
overflow). An `Untrusted` gives out nothing that its reader has not bounded: a missing value and one of the wrong type
are the same, lists are cut to what was asked for, texts are shortened and can always be encoded. Control characters
stay in texts; the code that prints or pastes a text cleans it there.

What is not here: the meaning of any message.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Literal, TypeVar

    Word = TypeVar("Word", bound=str)

MAX_BYTES = 1 << 20
MAX_VALUES = 200_000
MAX_TEXT = 4096  # characters
MAX_INTEGER = 1 << 64  # integers are below; inode numbers and byte counts of real systems come close
MAX_NUMBER = 21  # characters of an integer: the digits of MAX_INTEGER and a sign
MAX_TIME = 1e11  # seconds since 1970: the year 5138
DELIMITERS = (b"{", b"[", b",", b":")  # before each value and each key stands one of them
_STRING = re.compile(rb'"[^"]*"')  # once its escaped quotes are gone


class MalformedError(ValueError):
    """What came is not JSON within the bounds; the message gives the reason, without what came."""


def parse_json(text: bytes, most_bytes: int = MAX_BYTES, most_values: int = MAX_VALUES) -> Any:
    """Parse JSON within bounds; MalformedError otherwise."""
    if len(text) > most_bytes:
        raise MalformedError(f"{len(text)} bytes of JSON, at most {most_bytes} are allowed")
    if count_values(text, most_values) > most_values:  # counted before anything is built
        raise MalformedError(f"JSON with more than {most_values} values")
    try:
        return _DECODER.decode(text.decode("utf-8"))
    except MalformedError:
        raise
    except RecursionError:
        raise MalformedError("JSON that is nested too deeply") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise MalformedError(f"not JSON: {str(error)[:80]}") from None


def parse_object(text: bytes, most_bytes: int = MAX_BYTES, most_values: int = MAX_VALUES) -> Untrusted:
    """Parse a JSON object within bounds; MalformedError for anything else."""
    value = parse_json(text, most_bytes, most_values)
    if not isinstance(value, dict):
        raise MalformedError("not a JSON object")
    return Untrusted(value)


def parse_rows(text: bytes, most_bytes: int = MAX_BYTES, most_values: int = MAX_VALUES) -> list[Row]:
    """Parse a JSON list of lists within bounds; MalformedError for anything else."""
    value = parse_json(text, most_bytes, most_values)
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise MalformedError("not a JSON list of lists")
    return [Row(row) for row in value]


def count_values(text: bytes, limit: int) -> int:
    """Count values and keys, or more where that is not more than enough; what stands in strings costs nothing."""
    count = sum(map(text.count, DELIMITERS))
    if count <= limit:
        return count
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return sum(map(_STRING.sub(b"", without_escapes).count, DELIMITERS))


def _integer(digits: str) -> int:
    if len(digits) > MAX_NUMBER or abs(int(digits)) >= MAX_INTEGER:
        raise MalformedError("a number that is too large")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise MalformedError("a number that is too large")
    return value


def _constant(name: str) -> float:
    raise MalformedError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


class Untrusted:
    """A JSON object from elsewhere; every value that leaves it has a known type and a bound."""

    __slots__ = ("_values",)

    def __init__(self, values: object) -> None:
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __bool__(self) -> bool:
        return bool(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Untrusted) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]  # it holds a dict

    def __repr__(self) -> str:
        return f"Untrusted({repr(self._values)[:200]})"

    def is_null(self, key: str) -> bool:
        """Return whether the key is there with the value null."""
        return key in self._values and self._values[key] is None

    def text(self, key: str, longest: int = MAX_TEXT) -> str:
        """Return a text, shortened, that can be encoded as UTF-8; empty if there is none."""
        return bounded_text(self._values.get(key), longest)

    def one_of(self, key: str, allowed: tuple[Word, ...]) -> Word | Literal[""]:
        """Return a text if it is one of these words, else the empty text."""
        value = self._values.get(key)
        return value if isinstance(value, str) and value in allowed else ""

    def integer(self, key: str, least: int = -MAX_INTEGER, most: int = MAX_INTEGER) -> int | None:
        """Return a whole number between two bounds, both included; None if there is none."""
        return bounded_integer(self._values.get(key), least, most)

    def count(self, key: str, most: int = MAX_INTEGER) -> int:
        """Return a whole number from 0 on; 0 if there is none."""
        return self.integer(key, 0, most) or 0

    def number(self, key: str, least: float = -1e300, most: float = 1e300) -> float | None:
        """Return a finite number between two bounds, both included; None if there is none."""
        return finite_number(self._values.get(key), least, most)

    def moment(self, key: str) -> float | None:
        """Return a time in seconds since 1970; None if there is none that a clock could show."""
        return self.number(key, 0.0, MAX_TIME)

    def flag(self, key: str) -> bool:
        """Return whether the value is true, and nothing else that counts as true."""
        return self._values.get(key) is True

    def choice(self, key: str) -> bool | None:
        """Return true or false; None if it is neither."""
        value = self._values.get(key)
        return value if isinstance(value, bool) else None

    def record(self, key: str) -> Untrusted:
        """Return an object; an empty one if there is none."""
        return Untrusted(self._values.get(key))

    def has_record(self, key: str) -> bool:
        """Return whether the value is an object."""
        return isinstance(self._values.get(key), dict)

    def records(self, key: str, most: int) -> tuple[Untrusted, ...]:
        """Return the objects of a list, at most so many; what else it holds is left out."""
        return tuple(Untrusted(entry) for entry in self._list(key)[:most] if isinstance(entry, dict))

    def texts(self, key: str, most: int, longest: int = MAX_TEXT) -> tuple[str, ...]:
        """Return the texts of a list, at most so many; what else it holds is left out."""
        return tuple(
            bounded_text(entry, longest) for entry in self._list(key)[:most] if isinstance(entry, str)
        )

    def integers(self, key: str, most: int, least: int = 0, largest: int = MAX_INTEGER) -> tuple[int, ...]:
        """Return the whole numbers of a list, at most so many; empty if one of them is none."""
        numbers = [bounded_integer(entry, least, largest) for entry in self._list(key)[:most]]
        return () if None in numbers else tuple(entry for entry in numbers if entry is not None)

    def rows(self, key: str, most: int) -> tuple[Row, ...]:
        """Return the lists within a list, at most so many; what else it holds is left out."""
        return tuple(Row(entry) for entry in self._list(key)[:most] if isinstance(entry, list))

    def named_records(self, key: str, most: int) -> dict[str, Untrusted]:
        """Return the objects of an object by their names, at most so many; other values are left out."""
        return {
            bounded_text(name, MAX_TEXT): Untrusted(entry) for name, entry in self._pairs(key, most, dict)
        }

    def numbered_records(self, key: str, most: int) -> list[tuple[int, Untrusted]]:
        """Return the objects of an object whose names are whole numbers below 10^9, at most so many."""
        return [
            (int(name), Untrusted(entry)) for name, entry in self._pairs(key, most, dict) if _is_index(name)
        ]

    def indices(self, key: str, most: int) -> tuple[int, ...]:
        """Return the names of an object that are whole numbers below 10^9, at most so many, in order."""
        return tuple(sorted(int(name) for name in self.names(key, most) if _is_index(name)))

    def named_integers(
        self, key: str, most: int, least: int = 0, largest: int = MAX_INTEGER
    ) -> dict[str, int]:
        """Return the whole numbers of an object by their names, at most so many; other values are left out."""
        pairs = (
            (name, bounded_integer(number, least, largest)) for name, number in self._pairs(key, most, int)
        )
        return {bounded_text(name, MAX_TEXT): number for name, number in pairs if number is not None}

    def names(self, key: str, most: int) -> tuple[str, ...]:
        """Return the keys of an object, at most so many."""
        value = self._values.get(key)
        return (
            tuple(bounded_text(name, MAX_TEXT) for name in list(value)[:most])
            if isinstance(value, dict)
            else ()
        )

    def is_list(self, key: str) -> bool:
        """Return whether the value is a list."""
        return isinstance(self._values.get(key), list)

    def length(self, key: str) -> int:
        """Return how many values a list holds; 0 if there is none."""
        return len(self._list(key))

    def as_object(self) -> dict[str, Any]:
        """Return all of it as it came, for `records.read`, which bounds each field."""
        return dict(self._values)

    def unread(self, key: str) -> Any:
        """Return a value as it came, for a reader that bounds it itself; a test holds the list of them."""
        return self._values.get(key)

    def _list(self, key: str) -> list[Any]:
        value = self._values.get(key)
        return value if isinstance(value, list) else []

    def _pairs(self, key: str, most: int, kind: type) -> Iterator[tuple[str, Any]]:
        value = self._values.get(key)
        pairs = list(value.items())[:most] if isinstance(value, dict) else []
        return ((name, entry) for name, entry in pairs if isinstance(entry, kind))


class Row:
    """A JSON list from elsewhere whose places have meanings."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def text(self, index: int, longest: int = MAX_TEXT) -> str:
        """Return a text, shortened; empty if there is none."""
        return bounded_text(self._at(index), longest)

    def name(self, index: int, longest: int) -> str | None:
        """Return a file's name as is, with odd bytes as U+DC80 to U+DCFF; None if there is none or it is too long."""
        value = self._at(index)
        return value if isinstance(value, str) and len(value) <= longest else None

    def integer(self, index: int, least: int = -MAX_INTEGER, most: int = MAX_INTEGER) -> int | None:
        """Return a whole number between two bounds; None if there is none."""
        return bounded_integer(self._at(index), least, most)

    def number(self, index: int, least: float = -1e300, most: float = 1e300) -> float | None:
        """Return a finite number between two bounds; None if there is none."""
        return finite_number(self._at(index), least, most)

    def flag(self, index: int) -> bool:
        """Return whether the value is true, and nothing else that counts as true."""
        return self._at(index) is True

    def integers(self, most: int, least: int = -MAX_INTEGER, largest: int = MAX_INTEGER) -> tuple[int, ...]:
        """Return whole numbers, at most so many; empty if one of them is none."""
        numbers = [bounded_integer(entry, least, largest) for entry in self._values[:most]]
        return () if None in numbers else tuple(entry for entry in numbers if entry is not None)

    def _at(self, index: int) -> Any:
        return self._values[index] if index < len(self._values) else None


def bounded_text(value: Any, longest: int) -> str:
    """Shorten; what is half of a surrogate pair, which JSON can hold and UTF-8 cannot, becomes a question mark."""
    return value[:longest].encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 10


def bounded_integer(value: Any, least: int, most: int) -> int | None:
    """Return a whole number between two bounds, both included; None for anything else, true and false included."""
    valid = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return value if valid else None


def finite_number(value: Any, least: float, most: float) -> float | None:
    """Return a number between two bounds, both included; None for anything else, true and false included."""
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    return float(value) if valid else None
