"""The content of another tool's inventory, before it is written as one of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from clusterctl.errors import InvalidValueError, Issue, Location, SpecError
from clusterctl.specs.yaml.reader import MAX_ISSUES, sort_issues

MAX_HOSTS = 4096
MAX_CHARACTERS = 1 << 20  # other tools' files are longer than any inventory of ours
MAX_LINE = 8192  # characters
MAX_NAMES = 50_000  # in all groups; a host that is in several groups counts each time

FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202f-\u2065\u2070-\ud7ff\ue000-\ufefe\uff00-\U0010ffff]"
)

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ImportedHost:
    """A machine; None for what the other tool's file does not have."""

    name: str
    host: str
    location: Location
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
    location: Location | None  # None: of what Ansible lists, which has no lines


@dataclass(frozen=True)
class Imported:
    """The machines of another tool's inventory in their order, and remarks for the user."""

    format_description: str  # such as "an Ansible inventory"
    file: str
    hosts: tuple[ImportedHost, ...]
    remarks: tuple[Remark, ...]
    groups: tuple[
        tuple[str, int], ...
    ] = ()  # Ansible's, with the number of their hosts, where all hosts were taken


@dataclass(eq=False)
class ImportReport:
    """What is wrong in a file that is being read, and what is worth a remark."""

    issues: list[Issue] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def add_issue(self, code: str, case: str, location: Location, /, **facts: object) -> None:
        """Add a problem of a case; raises SpecError as `append` does."""
        self.append(Issue.of(code, case, location, **facts))

    def append(self, issue: Issue) -> None:
        """Add a problem; raises SpecError when there are far more than are read."""
        self.issues.append(issue)
        if len(self.issues) > MAX_ISSUES:
            self.raise_issues()

    def add_remark(self, message: str, location: Location | None = None) -> None:
        """Add a comment for the written file."""
        self.remarks.append(Remark(message, location))

    def try_parse(self, parse: Callable[[str], Value], text: str, location: Location) -> Value | None:
        """Read a value; None, and a problem, if it is not what it should be."""
        try:
            return parse(text)
        except InvalidValueError as error:
            self.append(Issue(error.code, error.message, location, error.fix))
            return None

    def fail_too_many(self, limit: str, location: Location) -> NoReturn:
        """Raise the error of a file of another kind."""
        self.add_issue("CC-SPEC-003", "import", location, limit=limit)
        raise SpecError(sort_issues(self.issues))

    def raise_issues(self) -> None:
        """Raise SpecError if there was any problem."""
        if self.issues:
            raise SpecError(sort_issues(self.issues))


def iterate_lines(text: str, file: str) -> Iterator[tuple[Location, str]]:
    """Yield the lines that hold more than white space, and where each begins; raises SpecError for hostile texts."""
    start = Location(file, 1, 1)
    if len(text) > MAX_CHARACTERS:
        raise SpecError([Issue.of("CC-SPEC-003", "import-size", start, limit=MAX_CHARACTERS >> 20)])
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    for number, line in enumerate(lines, 1):
        if forbidden := FORBIDDEN.search(line):
            location = Location(file, number, forbidden.start() + 1)
            raise SpecError([Issue.of("CC-SPEC-002", "character", location, number=ord(forbidden.group()))])
        if len(line) > MAX_LINE:
            location = Location(file, number, MAX_LINE)
            raise SpecError([Issue.of("CC-SPEC-003", "line", location, most=MAX_LINE)])
        if line.strip():
            yield Location(file, number, 1), line


def shift_right(location: Location, columns: int) -> Location:
    """Return the place so many characters further in the same line."""
    return Location(location.file, location.line, location.column + columns)
