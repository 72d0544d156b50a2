"""Everything that can be wrong in a file, as data: see cases/yaml.txt for the form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from clusterctl.codes.lookup import entries, family_of
from clusterctl.errors import Issue, SpecError
from clusterctl.specs.importers.detect import parse_imported
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

FILE = "file.yaml"
FOREIGN = "hosts"
CASES = Path(__file__).parent / "cases"
KINDS = ("yaml", "inventory", "job", "foreign")


@dataclass(frozen=True)
class Case:
    """A text, and what must be reported about it."""

    kind: str
    title: str
    overrides: tuple[tuple[str, str], ...]
    text: str
    expected: tuple[str, ...]

    def read(self) -> None:
        """Read the text as the file that it is."""
        if self.kind == "job":
            parse_job(self.text, FILE, self.overrides)
        elif self.kind == "foreign":
            parse_imported(self.text, FOREIGN, **dict(self.overrides))
        else:
            parse_inventory(self.text, FILE)


def read_cases(kind: str) -> Iterator[Case]:
    """Split a file of cases."""
    content = (CASES / f"{kind}.txt").read_text(encoding="utf-8")
    for block in re.split(r"^===== ", content, flags=re.MULTILINE)[1:]:
        title, _, rest = block.partition("\n")
        given, _, expected = rest.partition("----- expected\n")
        lines = given.splitlines(keepends=True)
        sets = list(takewhile(lambda line: line.startswith("--set "), lines))
        pairs = (line.removeprefix("--set ").rstrip("\n").partition("=") for line in sets)
        overrides = tuple((key, value) for key, _, value in pairs)
        yield Case(
            kind, title, overrides, "".join(lines[len(sets) :]), tuple(filter(None, expected.splitlines()))
        )


ALL = [case for kind in KINDS for case in read_cases(kind)]


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.kind}: {case.title}")
def test_everything_wrong_is_reported(case: Case) -> None:
    """Each issue has its code, its place and its words, and there is no other issue."""
    with pytest.raises(SpecError) as caught:
        case.read()

    assert [shorten(issue, line) for issue, line in pair(caught.value.issues, case.expected)] == list(
        case.expected
    )


def pair(issues: tuple[Issue, ...], expected: tuple[str, ...]) -> Iterator[tuple[Issue, str]]:
    """Put each issue beside the line that expects it; one too many stands beside nothing."""
    return zip(issues, (*expected, *[""] * (len(issues) - len(expected))), strict=False)


def shorten(issue: Issue, line: str) -> str:
    """Write an issue as the line that expects it if the line's words are in it, else in full."""
    place = str(issue.location).removeprefix(f"{FILE}:").removeprefix(f"{FOREIGN}:")
    said = f"{issue.message} | {issue.fix}"
    words = line.split(" ", 2)[-1]
    return f"{issue.code} {place} {words if words and words in said else said}"


def test_every_code_has_a_case() -> None:
    """No code is given without an example of it."""
    spec_codes = {code for code in entries() if family_of(code) == "SPEC"}
    tested_elsewhere = {"CC-SPEC-003", "CC-SPEC-007"}  # sizes, and files that cannot be read

    assert {line.split()[0] for case in ALL for line in case.expected} == spec_codes - tested_elsewhere
