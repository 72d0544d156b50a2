"""Findings that somebody has looked at and lives with: which, on which nodes, and why."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import ConfigDict, Field

from clusterctl.errors import UsageError
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.entry import Entry
from clusterctl.specs.leaf import Leaf
from clusterctl.specs.nodeset import ALL, parse_pattern
from clusterctl.specs.waiver import Waiver

CODE = r"CC-[A-Z]+-[0-9]{3}"
LONGEST_REASON = 300


def _parse_code(word: str) -> str:
    if re.fullmatch(CODE, word.upper()):
        return word.upper()
    raise BadValueError(f"expected the code of a finding such as CC-NET-009, got {word!r}")


def _parse_nodes(word: str) -> str:
    try:
        parse_pattern(word)
    except UsageError as wrong:
        raise BadValueError(wrong.message) from wrong
    return word


def _parse_reason(word: str) -> str:
    if word.strip() and len(word) <= LONGEST_REASON and word.isprintable():
        return word.strip()
    raise BadValueError(f"expected a reason in one line of at most {LONGEST_REASON} characters")


Code = Annotated[str, Leaf("the code of a finding", _parse_code, {"type": "string", "pattern": f"^{CODE}$"})]
Which = Annotated[str, Leaf("a choice of nodes", _parse_nodes, {"type": "string", "minLength": 1})]
Reason = Annotated[
    str,
    Leaf("a reason", _parse_reason, {"type": "string", "minLength": 1, "maxLength": LONGEST_REASON}),
]


class WaiveEntry(Entry):
    """One finding of `check` that does not count, and why."""

    model_config = ConfigDict(title="waive")

    code: Code = Field(description="Code of the finding, such as `CC-NET-009`.")
    nodes: Which = Field(ALL, description="On which nodes: names, ranges and globs such as `gpu[01-04]`.")
    reason: Reason = Field(description="Why it does not count; it is shown whenever the waiver is used.")


def waivers_of(entries: tuple[WaiveEntry, ...], file: str) -> tuple[Waiver, ...]:
    """Give the waivers of a file."""
    return tuple(
        Waiver(code=entry.code, nodes=entry.nodes, reason=entry.reason, file=file) for entry in entries
    )
