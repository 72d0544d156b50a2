"""The terms of known texts: how a symptom is told, and whether it is a cause or what follows from one.

Symptom("CC-JOB-022", r"Disk quota exceeded", "the account's disk quota is used up", "...", "clusterctl exec ...")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from clusterctl.specs.commandline import quote_word
from clusterctl.specs.job import Reason

# own: the rank's own failure. doubtful: that, or the answer to another's. waited: nobody came. peer: somebody left.
Grade = Literal["own", "doubtful", "waited", "peer"]


@dataclass(frozen=True)
class Symptom:
    """One known text; `see` is a related check, `restart` the reason for which a run may be started again.

    `command` may name {node}, {rank}, {run} and the pattern's named groups. Each is quoted for the shell, and so stands
    outside of the command's own quotes, but for a group that matches only word characters.
    """

    code: str
    pattern: str
    meaning: str
    advice: str
    command: str = ""
    grade: Grade = "own"
    see: str = ""
    restart: Reason | None = None

    def fill(self, names: Mapping[str, str]) -> str:
        """Give the command for one case; nothing where it needs a name that the case lacks."""
        try:
            return self.command.format_map({name: quote_word(value) for name, value in names.items()})
        except KeyError:
            return ""


@dataclass(frozen=True)
class Recognised:
    """A symptom in what one rank said: the words that showed it, and the pattern's named groups."""

    symptom: Symptom
    text: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


def find_in(symptoms: tuple[Symptom, ...], text: str) -> Recognised | None:
    """Give the first symptom, in the table's order, that a text shows."""
    for symptom in symptoms:
        found = re.search(symptom.pattern, text, re.IGNORECASE) if text else None
        if found:
            return Recognised(
                symptom, found[0], {key: value for key, value in found.groupdict().items() if value}
            )
    return None
