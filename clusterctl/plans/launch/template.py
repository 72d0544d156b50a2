"""Texts with placeholders: what a plan has already, and what only a node can fill in."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.specs.placeholders import LEFT_TO_TORCHRUN, Placeholder, parse_template
from clusterctl.specs.text import quote_word

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import Hole, SentTemplate

PLACEHOLDER_LABELS = {"master_port": "<port@node0>"}


@dataclass(frozen=True)
class AgentValue:
    """A value that the agent puts in on its node, such as `master_port`; `initial` is what it is at first."""

    name: str
    initial: str = ""


@dataclass(frozen=True)
class Unmeasured:
    """A value that must be measured first; a plan that holds one can be shown but not started."""

    name: str


Segment = str | AgentValue | Unmeasured
Template = tuple[Segment, ...]


def make_template(*segments: Segment) -> Template:
    """Join neighbouring strings and drop empty ones; the empty text is `("",)`."""
    joined: list[Segment] = []
    for segment in segments:
        if isinstance(segment, str) and joined and isinstance(joined[-1], str):
            joined[-1] += segment
        elif segment != "":
            joined.append(segment)
    return tuple(joined) or ("",)


def fill_placeholders(
    source: str, values: Mapping[str, Segment], escape: Callable[[str], str] = str
) -> Template:
    """Put the plan's values into the `${...}` holes of a user's text; `${local_rank}` stays as it is.

    `escape` is `escape_dollars` for a text that torchrun will read as a `string.Template`.
    """
    parts = parse_template(source)
    return make_template(
        *(
            _fill_placeholder(part, values) if isinstance(part, Placeholder) else escape(part)
            for part in parts
        )
    )


def escape_dollars(literal: str) -> str:
    """Double each `$`: torchrun substitutes `$local_rank` in script arguments and makes `$` of `$$`."""
    return literal.replace("$", "$$")


def _fill_placeholder(placeholder: Placeholder, values: Mapping[str, Segment]) -> Segment:
    return f"${{{LEFT_TO_TORCHRUN}}}" if placeholder.name == LEFT_TO_TORCHRUN else values[placeholder.name]


def render_template(value: Template) -> str:
    """Write the text out, its holes as `<name>`."""
    return "".join(part if isinstance(part, str) else render_placeholder(part) for part in value)


def quote_template(value: Template) -> str:
    """Write the text as one word of a shell; its holes stay readable as `<name>`."""
    return "".join(quote_word(part) if isinstance(part, str) else _quote_placeholder(part) for part in value)


def _quote_placeholder(placeholder: AgentValue | Unmeasured) -> str:
    return (
        shlex.quote(placeholder.initial)
        if isinstance(placeholder, AgentValue) and placeholder.initial
        else render_placeholder(placeholder)
    )


def render_placeholder(placeholder: AgentValue | Unmeasured) -> str:
    """Write a hole as `<name>`, or as what it is at first."""
    if isinstance(placeholder, AgentValue) and placeholder.initial:
        return placeholder.initial
    return PLACEHOLDER_LABELS.get(placeholder.name, f"<{placeholder.name}>")


def list_unmeasured(values: Iterable[Template]) -> tuple[str, ...]:
    """Name what still has to be measured."""
    return tuple(part.name for value in values for part in value if isinstance(part, Unmeasured))


def template_to_json(value: Template) -> SentTemplate:
    """Return the form the agent reads: a string, or segments with `{"fill": name}` holes."""
    if len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return [_segment_to_json(part) for part in value]


def _segment_to_json(part: Segment) -> str | Hole:
    if isinstance(part, Unmeasured):
        raise ValueError(f"{part.name} was never measured")
    return part if isinstance(part, str) else {"fill": part.name}
