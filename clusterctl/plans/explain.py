"""What a code means, in full: of a finding, of what a rank ended with, or of an error.

The checks and the known texts explain themselves. What the manual says of errors, and the examples, come as a
`Manual`: plain values that the caller has read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.errors import UsageError
from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.known_errors import GUIDANCE, guidance_of
from clusterctl.protocol.known_errors import Symptom, all_symptoms
from clusterctl.specs.text import find_nearest

CODE_PATTERN = re.compile(r"(?:CC-)?([A-Z]+)(?:-(\d{1,3}))?", re.IGNORECASE)
EXAMPLE_VALUES = {"node": "NODE", "rank": "RANK", "module": "MODULE", "path": "PATH", "run": "RUN"}
QUALIFIER = re.compile(r" \((?P<severity>error|warning)(?P<when>, [^()]*)?\)$")
EFFECTS = {
    "error": "A launch starts nothing.",
    "warning": "A launch goes on.",
    "info": "Good to know; nothing is wrong.",
}


@dataclass(frozen=True)
class Example:
    """A case in which a check speaks: what it says, and the remedy."""

    seen: str
    fix: str


@dataclass(frozen=True)
class Manual:
    """What the manual knows: families, errors, examples, what goes wrong in life and what to do, by code or family."""

    families: Mapping[str, str]
    errors: Mapping[str, str]
    examples: Mapping[str, Example]
    incidents: Mapping[str, Sequence[str]]
    actions: Mapping[str, str]


@dataclass(frozen=True)
class Explanation:
    """A code in full; what there is nothing to say of is empty."""

    code: str
    kind: str
    title: str
    effect: str = ""
    why: str = ""
    text: str = ""
    do: str = ""
    happens: tuple[str, ...] = ()
    example: Example | None = None
    command: str = ""
    see: str = ""


def parse_manual(raw: Mapping[str, Any]) -> Manual:
    """Read the book from what `docs/generate.py` wrote."""
    examples = {
        code: Example(str(example["seen"]), str(example["fix"])) for code, example in raw["examples"].items()
    }
    return Manual(raw["families"], raw["errors"], examples, raw["happens"], raw["does"])


def list_titles(manual: Manual) -> dict[str, str]:
    """Give every code and what it means in a few words, family by family."""
    titles_by_code = {code: entry.title for code, entry in all_checks().items()}
    titles_by_code |= {code: entry.meaning for code, entry in GUIDANCE.items()}
    titles_by_code |= {code: _first_clause(text) for code, text in manual.errors.items()}
    order = {family: position for position, family in enumerate(manual.families)}
    return dict(sorted(titles_by_code.items(), key=lambda pair: (order.get(family_of(pair[0]), 99), pair[0])))


def _first_clause(text: str) -> str:
    return QUALIFIER.sub("", re.split(r"(?<=[\w)])[;:] |\. ", text)[0])


def family_of(code: str) -> str:
    """Give the middle of a code."""
    return code.split("-")[1]


def find_code(word: str, manual: Manual) -> str:
    """Give the code, or the family, that was meant; an unknown one names the nearest that there is."""
    known = list_titles(manual)
    match = CODE_PATTERN.fullmatch(word.strip())
    family = match[1].upper() if match else ""
    if match and family in manual.families:
        if match[2] is None:
            return family
        code = f"CC-{family}-{int(match[2]):03}"
        if code in known:
            return code
    raise _unknown_code_error(word, match, family, known, manual)


def _unknown_code_error(
    word: str, match: re.Match[str] | None, family: str, known: Mapping[str, str], manual: Manual
) -> UsageError:
    same_family = [code for code in known if family_of(code) == family]
    if same_family and match and match[2]:
        number = int(match[2])
        nearest_code = min(same_family, key=lambda code: abs(int(code[-3:]) - number))
        fix = f"the nearest is {nearest_code}: {known[nearest_code]}; `clusterctl explain {family}` lists its family"
    else:
        guess = find_nearest(family, manual.families) if family else find_nearest(word.upper(), known)
        hint = f"did you mean {guess}? " if guess else ""
        fix = f"{hint}A code looks like CC-NET-003; the families are {', '.join(manual.families)}"
    return UsageError(f"there is no code {word!r}", code="CC-USE-050", fix=fix)


def explain(code: str, manual: Manual) -> Explanation:
    """Explain a code that `find_code` gave."""
    happens, action = tuple(manual.incidents.get(code, ())), manual.actions.get(code, "")
    check = all_checks().get(code)
    if check is not None:
        effect = f"{check.severity}. {EFFECTS[check.severity]}"
        text, example = _join_lines(check.explanation), manual.examples.get(code)
        return Explanation(code, "finding", check.title, effect, check.why, text, action, happens, example)
    symptom = next((known for known in all_symptoms() if known.code == code), None)
    if symptom is not None:
        return _explain_symptom(symptom, happens)
    text = manual.errors[code]
    title, qualifier = _first_clause(text), QUALIFIER.search(re.split(r"\. ", text)[0])
    effect = f"{qualifier['severity']}{qualifier['when'] or ''}." if qualifier else ""
    return Explanation(code, "error", title, effect, text=text, do=action, happens=happens)


def _explain_symptom(symptom: Symptom, happens: tuple[str, ...]) -> Explanation:
    grades = {
        "own": "A cause.",
        "doubtful": "A cause, unless another rank has a better one.",
        "waited": "Mostly a consequence: a rank did not come.",
        "peer": "Mostly a consequence: a rank went away.",
    }
    guidance = guidance_of(symptom.code)
    return Explanation(
        symptom.code,
        "end of a rank",
        guidance.meaning,
        grades[symptom.grade],
        text=guidance.advice,
        happens=happens,
        command=guidance.render_command(EXAMPLE_VALUES),
        see=guidance.related_check,
    )


def _join_lines(text: str) -> str:
    """Join the lines of each paragraph."""
    return "\n".join(" ".join(part.split()) for part in text.split("\n\n"))
