"""`metrics` of a job: names of numbers, and regular expressions that find them in a log.

A pattern runs on the nodes, on lines that anybody may have printed. So what is known to take exponential time is
refused here: a repetition within a repetition. What remains is bounded there (node/history/scalars.py): short lines,
and a timer.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from clusterctl.errors import InvalidValueError
from clusterctl.specs.yaml.tree import quoted

LONGEST_PATTERN = 300
METRIC_NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_./-]{0,47}"
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT)


def parse_metric_name(text: str) -> str:
    """Check the name of a number."""
    if not re.fullmatch(METRIC_NAME_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "metric-name", text=quoted(text))
    return text


def parse_metric_pattern(text: str) -> str:
    """Check a pattern: one group, and no repetition of a repetition."""
    if len(text) > LONGEST_PATTERN:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text), max_length=LONGEST_PATTERN)
    try:
        count = re.compile(text).groups
        parsed = _parser.parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValueError("CC-SPEC-013", "metric-pattern", text=quoted(text), reason=error) from error
    if count != 1:
        raise InvalidValueError("CC-SPEC-013", "metric-group", text=quoted(text), count=count)
    if any(_repeats_a_repetition(parsed)):
        raise InvalidValueError("CC-SPEC-013", "metric-slow", text=quoted(text))
    return text


def _repeats_a_repetition(parsed: Any, *, inside: bool = False) -> Iterator[bool]:
    """Yield true for each repetition without a small limit that stands within another."""
    for kind, argument in parsed:
        repeats = kind in _REPEATS and argument[1] > 20
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
