"""Node sets: which nodes `0-3`, `gpu[01-04,07]` or `gpu*` selects, and lists of names written as such."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import groupby
from typing import TypeVar

from clusterctl.errors import UsageError
from clusterctl.specs.text import did_you_mean, did_you_mean_exactly

ALL = "all"
MAX_NAMES = 100_000

K = TypeVar("K")
V = TypeVar("V")

_TERM = re.compile(r"(?:\[[^\]]*\]?|[^,\[])+")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_LITERAL = re.compile(r"[A-Za-z0-9._*?-]*")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_PADDING = re.compile(r"0+(?=[0-9])")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)


@dataclass(frozen=True)
class NumberRange:
    """A range in brackets; numbers are padded with zeros to `width`."""

    low: int
    high: int
    width: int

    def __iter__(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.low, self.high + 1))


@dataclass(frozen=True)
class Term:
    """One comma-separated part: literal texts and, between them, bracketed ranges."""

    text: str
    parts: tuple[str | tuple[NumberRange, ...], ...]

    def expand(self, start: int = 0) -> Iterator[str]:
        """Yield the names and globs one by one: a range may be far longer than any inventory."""
        if start == len(self.parts):
            yield ""
            return
        part = self.parts[start]
        heads: Iterable[str] = (
            (part,) if isinstance(part, str) else (number for numbers in part for number in numbers)
        )
        for head in heads:
            for tail in self.expand(start + 1):
                yield head + tail


def select_nodes(pattern: str, names: Sequence[str]) -> tuple[int, ...]:
    """Find the indices of the nodes that a pattern names, in the order of the inventory.

    Raises UsageError for a pattern that cannot be read, names an unknown node, or selects none.
    """
    ranks = {name: rank for rank, name in enumerate(names)}
    if pattern.strip() == ALL and ALL not in ranks:
        selected = set(ranks.values())
    else:
        selected = {rank for term in parse_pattern(pattern) for rank in _find_ranks(term, ranks)}
    if not selected:
        raise UsageError("CC-USE-010")
    return tuple(sorted(selected))


def parse_pattern(pattern: str) -> tuple[Term, ...]:
    """Read a pattern without knowing the nodes; raises UsageError when it cannot be read."""
    terms = [text.strip() for text in _TERM.findall(pattern)]
    if not any(terms):
        raise UsageError("CC-USE-010", "empty")
    return tuple(_parse_term(text) for text in terms if text)


def _parse_term(text: str) -> Term:
    parts: list[str | tuple[NumberRange, ...]] = []
    for index, part in enumerate(_BRACKETS.split(text)):
        if index % 2:
            parts.append(tuple(_parse_numbers(item, text) for item in part.split(",")))
        elif _LITERAL.fullmatch(part):
            parts.append(part)
        else:
            raise _pattern_error(text, "open" if part.count("[") > part.count("]") else "character")
    return Term(text, tuple(parts))


def _parse_numbers(item: str, term: str) -> NumberRange:
    match = _RANGE.fullmatch(item.strip())
    if not match:
        raise _pattern_error(term, "number", item=item.strip())
    low, high = match.group(1), match.group(2) or match.group(1)
    if int(low) > int(high):
        raise _pattern_error(term, "backwards-item", item=item.strip())
    return NumberRange(int(low), int(high), len(low))


def _find_ranks(term: Term, ranks: dict[str, int]) -> Iterator[int]:
    for count, name in enumerate(term.expand()):
        if count >= MAX_NAMES:
            raise _pattern_error(term.text, "many", most=MAX_NAMES)
        if name in ranks:
            yield ranks[name]
        elif match := _RANGE.fullmatch(name):
            yield from _ranks_in_range(match, ranks)
        else:
            yield from _find_matching_ranks(name, term, ranks)


def _ranks_in_range(match: re.Match[str], ranks: Mapping[str, int]) -> range:
    node_count = len(ranks)
    low, high = int(match.group(1)), int(match.group(2) or match.group(1))
    if low > high:
        raise _pattern_error(match.group(), "backwards")
    if high >= node_count:
        case = "rank" if node_count else "empty"
        rank, nodes = max(low, node_count), _abbreviate(ranks)
        raise UsageError("CC-USE-012", case, rank=rank, last=node_count - 1, nodes=nodes)
    return range(low, high + 1)


def _find_matching_ranks(name: str, term: Term, ranks: dict[str, int]) -> Iterator[int]:
    matches = re.compile(translate(name)).match
    matching_ranks = [rank for node_name, rank in ranks.items() if matches(node_name)]
    if not matching_ranks:
        is_pattern = bool(set(name) & set("*?"))
        own, of_range = ("pattern", "pattern-range") if is_pattern else ("", "range")
        case = own if name == term.text else of_range
        raise UsageError(
            "CC-USE-012",
            case,
            name=name,
            pattern=term.text,
            suggestion=_suggest_node(name, ranks),
            nodes=_abbreviate(ranks),
        )
    yield from matching_ranks


def _suggest_node(name: str, known: Iterable[str]) -> str:
    """Suggest a node: gpu01 for gpu1, but no other number for gpu99."""
    same_number = (node for node in known if _PADDING.sub("", node) == _PADDING.sub("", name))
    guess = next(same_number, None)
    if guess:
        return did_you_mean_exactly(guess)
    return did_you_mean(name, [node for node in known if _DIGITS.sub("0", node) != _DIGITS.sub("0", name)])


def _abbreviate(names: Iterable[str], limit: int = 200) -> str:
    nodeset = fold_names(names)
    return nodeset if len(nodeset) <= limit else nodeset[:limit] + "..."


def _pattern_error(text: str, case: str, *, item: str = "", most: int = 0) -> UsageError:
    shortened = text if len(text) <= 60 else text[:57] + "..."
    return UsageError("CC-USE-011", case, pattern=shortened, item=item, most=most)


def group_values(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Put together the values that have the same key, such as the names of nodes with one answer; in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def fold_names(names: Iterable[str]) -> str:
    """Write names as short as a pattern can: gpu01, gpu02, gpu03, gpu07, x becomes gpu[01-03,07],x."""
    parts = (_split_number(name) for name in dict.fromkeys(names))
    groups = group_values(((prefix, suffix), number) for prefix, number, suffix in parts)
    return ",".join(
        text
        for (prefix, suffix), numbers in groups.items()
        for text in _fold_numbers(prefix, numbers, suffix)
    )


def _split_number(name: str) -> tuple[str, str, str]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


def _fold_numbers(prefix: str, numbers: list[str], suffix: str) -> Iterator[str]:
    padded_widths = {len(number) for number in numbers if number.startswith("0")}
    by_width = group_values(
        (len(number) if len(number) in padded_widths else 1, int(number)) for number in numbers if number
    )
    if "" in numbers:
        yield prefix + suffix
    for width, members in by_width.items():
        ranges = ",".join(fold_ranges(sorted(members), width))
        yield f"{prefix}[{ranges}]{suffix}" if len(members) > 1 else f"{prefix}{ranges}{suffix}"


def fold_ranges(numbers: Iterable[int], width: int = 1) -> Iterator[str]:
    """Yield sorted numbers as ranges: 0, 1, 2, 5 becomes 0-2 and 5; with zeros before them up to `width` digits."""
    for _, consecutive in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        texts = [str(number).zfill(width) for _, number in consecutive]
        yield texts[0] if len(texts) == 1 else f"{texts[0]}-{texts[-1]}"
