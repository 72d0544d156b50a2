"""Regular expressions of users that run on the nodes, on lines that anybody may have printed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT)
LARGEST_REPEAT = 20  # of a repetition that may stand within another one


def is_slow(pattern: str) -> bool:
    """Return whether a pattern is known to take exponential time: a repetition within a repetition.

    Raises what `re.compile` raises.
    """
    return any(_repeats_a_repetition(_parser.parse(pattern)))


def _repeats_a_repetition(parsed: Any, *, inside: bool = False) -> Iterator[bool]:
    """Yield true for each repetition without a small limit that stands within another."""
    for kind, argument in parsed:
        repeats = kind in _REPEATS and argument[1] > LARGEST_REPEAT
        if repeats and inside:
            yield True
        yield from (
            found
            for part in _parts(argument)
            for found in _repeats_a_repetition(part, inside=inside or repeats)
        )


def _parts(argument: Any) -> Iterator[Any]:
    """Yield the patterns within a part of a pattern."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _parts(part)
