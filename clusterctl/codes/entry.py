"""The parts of an entry of the table of codes.

A text may hold placeholders such as {host}, {name!r} or {limit:g}: a raise site gives their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from clusterctl.translation import language

Severity = Literal["error", "warning", "info"]


class Text(NamedTuple):
    """The same text in English and Chinese; empty where it has not been translated."""

    en: str
    zh: str = ""

    @property
    def here(self) -> str:
        """The text in the language in use."""
        return self.zh if self.zh and language() == "zh" else self.en


NOTHING = Text("")


def same(text: str) -> Text:
    """Give a text that is the same in both languages: a command, lines of a file, or only facts."""
    return Text(text, text)


class Case(NamedTuple):
    """One situation in which a code is raised: what failed, and what fixes it.

    Of a finding there is no message: its evidence is what was seen. A fix that begins with `$ ` is a command for the
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
