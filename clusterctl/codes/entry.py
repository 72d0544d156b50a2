"""The parts of an entry of the table of codes.

A text may hold placeholders such as {host}, {name!r} or {limit:g}: a raise site gives their values. Braces around anything else,
as in `{port: N}` or ${node_rank}, stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)(!r)?(?::([^{}\s]+))?\}")


class Text(NamedTuple):
    """The same text in English and Chinese; empty where it has not been translated."""

    en: str
    zh: str = ""


NOTHING = Text("")


class Case(NamedTuple):
    """One situation in which a code is raised: what failed, and what fixes it.

    Of a finding there is no message: its evidence says what was seen. A fix that begins with `$ ` is a command for the
    node, `# ` one for its root.
    """

    message: Text = NOTHING
    fix: Text = NOTHING


@dataclass(frozen=True)
class Entry:
    """What is known about a code; `texts` are what programs print, word for word."""

    severity: Severity
    title: Text
    why: Text = NOTHING
    what: Text = NOTHING  # more about it, in sentences
    do: Text = NOTHING  # in general, whatever the case
    when: Text = NOTHING  # at which step, if not at any
    cases: Mapping[str, Case] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    command: str = ""  # shows more; its placeholders are node, rank, run and groups of the known text
    related: str = ""  # another code


def fill(template: str, facts: Mapping[str, object]) -> str:
    """Put values into the placeholders of a text."""

    def value(found: re.Match[str]) -> str:
        name, quoted, form = found.groups()
        return format(repr(facts[name]) if quoted else facts[name], form or "")

    return PLACEHOLDER.sub(value, template)


def placeholders(template: str) -> frozenset[str]:
    """Name the placeholders of a text, with their formats."""
    return frozenset(found.group() for found in PLACEHOLDER.finditer(template))
