"""Values as they stand in a file: their text, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from clusterctl.errors import Place


@dataclass(frozen=True, eq=False)
class Scalar:
    """One value: its text (None for null), and how and where it was written."""

    text: str | None
    source: str
    place: Place
    size: int = 1


@dataclass(frozen=True, eq=False)
class Listing:
    """A YAML sequence."""

    items: tuple[Tree, ...]
    place: Place
    size: int = 1


@dataclass(frozen=True, eq=False)
class Table:
    """A YAML mapping: each key, as it was written, and its value."""

    entries: Mapping[str, tuple[Scalar, Tree]]
    place: Place
    size: int = 1

    def key(self, name: str) -> Scalar | None:
        """Find a key, for its place."""
        return self.entries[name][0] if name in self.entries else None

    def get(self, name: str) -> Tree | None:
        """Find the value of a key."""
        return self.entries[name][1] if name in self.entries else None

    def put(self, name: str, key: Scalar, value: Tree) -> Table:
        """Make a table in which a key has another value."""
        return Table({**self.entries, name: (key, value)}, self.place)


Tree = Union[Scalar, Listing, Table]  # noqa: UP007  evaluated at run time, before Table | ... would work as text
Plain = Union[str, None, "list[Plain]", "dict[str, Plain]"]


def to_plain(tree: Tree) -> Plain:
    """Drop the places: texts, None, lists and dicts."""
    if isinstance(tree, Scalar):
        return tree.text
    if isinstance(tree, Listing):
        return [to_plain(item) for item in tree.items]
    return {name: to_plain(value) for name, (_, value) in tree.entries.items()}


def describe(tree: Tree) -> str:
    """Say what stands there, for a message."""
    if isinstance(tree, Scalar):
        return "nothing" if tree.text is None else quoted(tree.text)
    return "a list" if isinstance(tree, Listing) else "keys and values"


def quoted(text: str, limit: int = 60) -> str:
    """Quote a text for a message: control characters escaped, long ones cut."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def find(tree: Tree, path: Sequence[str | int]) -> tuple[Tree, Scalar | None]:
    """Walk down as far as the path leads; returns the value there and its key."""
    key: Scalar | None = None
    for step in path:
        if isinstance(tree, Table) and isinstance(step, str) and (below := tree.get(step)) is not None:
            key = tree.key(step)
            tree = below
        elif isinstance(tree, Listing) and isinstance(step, int) and step < len(tree.items):
            tree, key = tree.items[step], None
        else:
            break
    return tree, key


def place_within(scalar: Scalar, offset: int) -> Place:
    """Find the place of a character of a scalar's source."""
    return place_after(scalar.place, scalar.source[:offset])


def place_after(start: Place, text: str) -> Place:
    """Find the place where one stands after reading a text from a place on."""
    lines = text.split("\n")
    column = len(lines[-1]) + (start.column if len(lines) == 1 else 1)
    return Place(start.file, start.line + len(lines) - 1, column)
