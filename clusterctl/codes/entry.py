"""The parts of an entry of the table of codes.

Texts are English; their Chinese is in the catalogue of messages, and `tr` translates them where they are shown. A text
may hold placeholders such as {host}, {name!r} or {limit:g}: a raise site gives their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]


class Same(str):
    """A text that is the same in every language: a command, lines of a file, or only facts."""

    __slots__ = ()


class Case(NamedTuple):
    """One situation in which a code is raised: what failed, and what fixes it.

    Of a finding there is no message: its evidence is what was seen. A fix that begins with `$ ` is a command for the
    node, `# ` one for its root.
    """

    message: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Entry:
    """What is known about a code; `texts` are what programs print, word for word."""

    severity: Severity
    title: str
    why: str = ""
    what: str = ""  # more about it, in sentences
    do: str = ""  # in general, whatever the case
    when: str = ""  # at which step, if not at any
    cases: Mapping[str, Case] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    command: str = ""  # shows more; its placeholders are node, rank, run and groups of the known text
    related: str = ""  # another code

    def prose(self) -> Iterator[str]:
        """Yield every text that clusterctl itself has to say about the code."""
        yield from filter(None, (self.title, self.why, self.what, self.do, self.when))
        yield from (text for case in self.cases.values() for text in case if text)
