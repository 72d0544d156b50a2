"""What an inventory of another tool says, before it is written as one of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.yaml.reader import MOST_ISSUES, in_order

MOST_HOSTS = 4096
MOST_FOREIGN = 1 << 20  # what `ansible-inventory --list` writes is longer than any inventory of ours
LONGEST_LINE = 8192
MOST_NAMES = 50_000  # what ranges stand for, a host that stands in several groups counted each time

_CONTROL = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202f-\u2065\u2070-\ud7ff\ue000-\ufefe\uff00-\U0010ffff]"
)

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ForeignHost:
    """A machine; None stands for what the other tool's file does not say."""

    name: str
    host: str
    place: Place
    gpus: int | None = None
    python: str | None = None
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    config: str | None = None
    known_hosts: str | None = None
    host_keys: str | None = None


@dataclass(frozen=True)
class Remark:
    """Something that was understood but has no counterpart, or was guessed."""

    message: str
    place: Place


@dataclass(frozen=True)
class Foreign:
    """The machines of another tool's inventory in their order, and what the reader should know."""

    kind: str  # such as "an Ansible inventory (INI)"
    file: str
    hosts: tuple[ForeignHost, ...]
    remarks: tuple[Remark, ...]
    groups: tuple[
        tuple[str, int], ...
    ] = ()  # Ansible's, with the number of their hosts, where all hosts were taken


@dataclass(eq=False)
class Findings:
    """What is wrong in a file that is being read, and what is worth a remark."""

    issues: list[Issue] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def wrong(self, message: str, place: Place, fix: str = "", code: str = codes.FOREIGN_LINE) -> None:
        """Note a problem; raises SpecError when there are far more than anybody reads."""
        self.issues.append(Issue(code, message, place, fix))
        if len(self.issues) > MOST_ISSUES:
            self.settle()

    def remark(self, message: str, place: Place) -> None:
        """Note what the written file should tell in a comment."""
        self.remarks.append(Remark(message, place))

    def read(self, parse: Callable[[str], Value], text: str, place: Place) -> Value | None:
        """Read a value; None, and a problem, if it is not what it should be."""
        try:
            return parse(text)
        except BadValueError as bad:
            self.wrong(bad.message, place, bad.fix, bad.code)
            return None

    def too_many(self, what: str, place: Place) -> NoReturn:
        """Give up on a file that cannot be meant."""
        self.wrong(f"more than {what}", place, "is this the right file?", codes.TOO_LARGE)
        raise SpecError(in_order(self.issues))

    def settle(self) -> None:
        """Raise SpecError if there was any problem."""
        if self.issues:
            raise SpecError(in_order(self.issues))


def lines_of(text: str, file: str) -> Iterator[tuple[Place, str]]:
    """Give the lines that hold more than white space, and where each begins; raises SpecError for hostile texts."""
    start = Place(file, 1, 1)
    if len(text) > MOST_FOREIGN:
        message = f"more than {MOST_FOREIGN >> 20} MiB of text"
        raise SpecError([Issue(codes.TOO_LARGE, message, start, "is this the right file?")])
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    for number, line in enumerate(lines, 1):
        if strange := _CONTROL.search(line):
            message = f"the character U+{ord(strange.group()):04X} must not stand here"
            place = Place(file, number, strange.start() + 1)
            raise SpecError([Issue(codes.NOT_TEXT, message, place, "remove it")])
        if len(line) > LONGEST_LINE:
            message, place = (
                f"a line of more than {LONGEST_LINE} characters",
                Place(file, number, LONGEST_LINE),
            )
            raise SpecError([Issue(codes.TOO_LARGE, message, place, "is this the right file?")])
        if line.strip():
            yield Place(file, number, 1), line


def move(place: Place, columns: int) -> Place:
    """Give the place so many characters further in the same line."""
    return Place(place.file, place.line, place.column + columns)
