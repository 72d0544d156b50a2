"""Text with holes: what a plan knows already, and what only a node can fill in."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clusterctl.specs.placeholders import LEFT_TO_TORCHRUN, Hole, parse_template
from clusterctl.specs.text import quote_word


@dataclass(frozen=True)
class Fill:
    """A value that the agent puts in on its node, such as `master_port`; `shown` is what it is at first."""

    name: str
    shown: str = ""


@dataclass(frozen=True)
class Unknown:
    """A value that must be measured first; a plan that holds one can be shown but not started."""

    name: str


Segment = str | Fill | Unknown
Text = tuple[Segment, ...]

SHOWN_AS = {"master_port": "<port@node0>", "run_dir": "<run_dir>", "output_dir": "<output_dir>"}


def text(*segments: Segment) -> Text:
    """Join neighbouring strings and drop empty ones; the empty text is `("",)`."""
    joined: list[Segment] = []
    for segment in segments:
        if isinstance(segment, str) and joined and isinstance(joined[-1], str):
            joined[-1] += segment
        elif segment != "":
            joined.append(segment)
    return tuple(joined) or ("",)


def fill_template(template: str, values: Mapping[str, Segment]) -> Text:
    """Put the plan's values into the `${...}` holes of a user's text; `${local_rank}` stays as it is."""
    parts = parse_template(template)
    return text(*(_fill_hole(part, values) if isinstance(part, Hole) else part for part in parts))


def fill_argument(template: str, values: Mapping[str, Segment]) -> Text:
    """Fill a text that torchrun will read as a `string.Template`, so that every other `$` arrives as written."""
    parts = parse_template(template)
    return text(
        *(_fill_hole(part, values) if isinstance(part, Hole) else escape_dollars(part) for part in parts)
    )


def escape_dollars(literal: str) -> str:
    """Double each `$`: torchrun substitutes `$local_rank` in script arguments and makes `$` of `$$`."""
    return literal.replace("$", "$$")


def _fill_hole(hole: Hole, values: Mapping[str, Segment]) -> Segment:
    return f"${{{LEFT_TO_TORCHRUN}}}" if hole.name == LEFT_TO_TORCHRUN else values[hole.name]


def render(value: Text) -> str:
    """Write the text out, its holes as `<name>`."""
    return "".join(part if isinstance(part, str) else render_hole(part) for part in value)


def quote(value: Text) -> str:
    """Write the text as one word of a shell; its holes stay readable as `<name>`."""
    return "".join(quote_word(part) if isinstance(part, str) else _quote_hole(part) for part in value)


def _quote_hole(hole: Fill | Unknown) -> str:
    return shlex.quote(hole.shown) if isinstance(hole, Fill) and hole.shown else render_hole(hole)


def render_hole(hole: Fill | Unknown) -> str:
    """Write a hole as `<name>`, or as what it is at first."""
    if isinstance(hole, Fill) and hole.shown:
        return hole.shown
    return SHOWN_AS.get(hole.name, f"<{hole.name}>")


def unknowns(values: Iterable[Text]) -> tuple[str, ...]:
    """Name what still has to be measured."""
    return tuple(part.name for value in values for part in value if isinstance(part, Unknown))


def to_json(value: Text) -> str | list[str | dict[str, str]]:
    """Give the form the agent reads: a string, or segments with `{"fill": name}` holes."""
    if len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return [_segment_to_json(part) for part in value]


def _segment_to_json(part: Segment) -> str | dict[str, str]:
    if isinstance(part, Unknown):
        raise ValueError(f"{part.name} was never measured")
    return part if isinstance(part, str) else {"fill": part.name}
