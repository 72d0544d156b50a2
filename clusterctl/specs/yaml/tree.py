"""Values as they stand in a YAML file, with their places; and texts written so that they are read as the same texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from clusterctl.errors import Location
from clusterctl.translation import tr


@dataclass(frozen=True, eq=False)
class YamlScalar:
    """One value: its text (None for null), and how and where it was written."""

    text: str | None
    source: str
    location: Location
    size: int = 1


@dataclass(frozen=True, eq=False)
class YamlList:
    """A YAML sequence."""

    items: tuple[YamlTree, ...]
    location: Location
    size: int = 1


@dataclass(frozen=True, eq=False)
class YamlMapping:
    """A YAML mapping: each key, as it was written, and its value."""

    entries: Mapping[str, tuple[YamlScalar, YamlTree]]
    location: Location
    size: int = 1

    def get_key(self, name: str) -> YamlScalar | None:
        """Find a key, for its place."""
        return self.entries[name][0] if name in self.entries else None

    def get(self, name: str) -> YamlTree | None:
        """Find the value of a key."""
        return self.entries[name][1] if name in self.entries else None

    def with_entry(self, name: str, key: YamlScalar, value: YamlTree) -> YamlMapping:
        """Make a table in which a key has another value."""
        return YamlMapping({**self.entries, name: (key, value)}, self.location)


YamlTree = Union[YamlScalar, YamlList, YamlMapping]  # noqa: UP007  evaluated at run time, before Table | ... would work as text
Plain = Union[str, None, "list[Plain]", "dict[str, Plain]"]


def to_plain(tree: YamlTree) -> Plain:
    """Return the values without their places: texts, None, lists and dicts."""
    if isinstance(tree, YamlScalar):
        return tree.text
    if isinstance(tree, YamlList):
        return [to_plain(item) for item in tree.items]
    return {name: to_plain(value) for name, (_, value) in tree.entries.items()}


def describe(tree: YamlTree) -> str:
    """Describe a value for a message."""
    if isinstance(tree, YamlScalar):
        return tr("nothing") if tree.text is None else quoted(tree.text)
    return tr("a list") if isinstance(tree, YamlList) else tr("keys and values")


def quoted(text: str, limit: int = 60) -> str:
    """Quote a text for a message: control characters escaped, long ones cut."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def follow_path(tree: YamlTree, path: Sequence[str | int]) -> tuple[YamlTree, YamlScalar | None]:
    """Walk down as far as the path leads; returns the value there and its key."""
    key: YamlScalar | None = None
    for step in path:
        if isinstance(tree, YamlMapping) and isinstance(step, str) and (child := tree.get(step)) is not None:
            key = tree.get_key(step)
            tree = child
        elif isinstance(tree, YamlList) and isinstance(step, int) and step < len(tree.items):
            tree, key = tree.items[step], None
        else:
            break
    return tree, key


def location_within(scalar: YamlScalar, offset: int) -> Location:
    """Return the place of a character of a scalar's source."""
    return location_after(scalar.location, scalar.source[:offset])


def location_after(start: Location, text: str) -> Location:
    """Return the place behind a text that begins at `start`."""
    lines = text.split("\n")
    column = len(lines[-1]) + (start.column if len(lines) == 1 else 1)
    return Location(start.file, start.line + len(lines) - 1, column)


_PLAIN = re.compile(r"[A-Za-z0-9_/~][A-Za-z0-9._/~@+-]*|--?[A-Za-z][A-Za-z0-9_-]*")
_NULLS = frozenset(("~", "null", "Null", "NULL"))


def render_scalar(value: object) -> str:
    """Write a text so that it is read as that text: plain where that is safe, else in double quotes."""
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text not in _NULLS
    return text if plain else json.dumps(text).replace("\x7f", "\\x7f")  # JSON lets it stand, YAML does not


def render_args(args: Sequence[str]) -> str:
    """Write the arguments of a job as the line of its file."""
    return f"args: {render_list(args)}"


def render_list(texts: Sequence[str]) -> str:
    """Write texts as a list in one line."""
    return f"[{', '.join(map(render_scalar, texts))}]"


def find_scalar(tree: YamlTree, *path: str | int) -> YamlScalar | None:
    """Find the scalar at exactly this path, if there is one that is not null."""
    for step in path:
        if isinstance(step, str) and isinstance(tree, YamlMapping) and (child := tree.get(step)) is not None:
            tree = child
        else:
            return None
    return tree if isinstance(tree, YamlScalar) and tree.text is not None else None
