"""What a code means, in full: of a finding, of what a rank ended with, or of an error.

The checks and the known texts explain themselves. What the manual says of errors, and the examples, come as a
`Book`: plain values that the caller has read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.errors import UsageError
from clusterctl.plans.checks.registry import checks
from clusterctl.plans.known_errors import GUIDANCE, guidance_of
from clusterctl.protocol.known_errors import Symptom, all_symptoms
from clusterctl.specs.text import nearest

WRITTEN = re.compile(r"(?:CC-)?([A-Z]+)(?:-(\d{1,3}))?", re.IGNORECASE)
SHOWN = {"node": "NODE", "rank": "RANK", "module": "MODULE", "path": "PATH", "run": "RUN"}
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
class Book:
    """What the manual knows: families, errors, examples, what goes wrong in life and what to do, by code or family."""

    families: Mapping[str, str]
    errors: Mapping[str, str]
    examples: Mapping[str, Example]
    happens: Mapping[str, Sequence[str]]
    does: Mapping[str, str]


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


def parse_book(raw: Mapping[str, Any]) -> Book:
    """Read the book from what `docs/generate.py` wrote."""
    examples = {code: Example(str(one["seen"]), str(one["fix"])) for code, one in raw["examples"].items()}
    return Book(raw["families"], raw["errors"], examples, raw["happens"], raw["does"])


def titles(book: Book) -> dict[str, str]:
    """Give every code and what it means in a few words, family by family."""
    told = {code: one.title for code, one in checks().items()}
    told |= {code: one.meaning for code, one in GUIDANCE.items()}
    told |= {code: _first_words(text) for code, text in book.errors.items()}
    order = {family: place for place, family in enumerate(book.families)}
    return dict(sorted(told.items(), key=lambda pair: (order.get(family_of(pair[0]), 99), pair[0])))


def _first_words(text: str) -> str:
    return re.split(r"(?<=\w)[;:] |\. ", text)[0]


def family_of(code: str) -> str:
    """Give the middle of a code."""
    return code.split("-")[1]


def find_code(word: str, book: Book) -> str:
    """Give the code, or the family, that was meant; an unknown one names the nearest that there is."""
    known = titles(book)
    written = WRITTEN.fullmatch(word.strip())
    family = written[1].upper() if written else ""
    if written and family in book.families:
        if written[2] is None:
            return family
        code = f"CC-{family}-{int(written[2]):03}"
        if code in known:
            return code
    raise _unknown(word, written, family, known, book)


def _unknown(
    word: str, written: re.Match[str] | None, family: str, known: Mapping[str, str], book: Book
) -> UsageError:
    alike = [code for code in known if family_of(code) == family]
    if alike and written and written[2]:
        number = int(written[2])
        near = min(alike, key=lambda code: abs(int(code[-3:]) - number))
        fix = f"the nearest is {near}: {known[near]}; `clusterctl explain {family}` lists its family"
    else:
        guess = nearest(family, book.families) if family else nearest(word.upper(), known)
        told = f"did you mean {guess}? " if guess else ""
        fix = f"{told}A code looks like CC-NET-003; the families are {', '.join(book.families)}"
    return UsageError(f"there is no code {word!r}", code="CC-USE-050", fix=fix)


def explain(code: str, book: Book) -> Explanation:
    """Explain a code that `find_code` gave."""
    happens, do = tuple(book.happens.get(code, ())), book.does.get(code, "")
    one = checks().get(code)
    if one is not None:
        effect = f"{one.severity}. {EFFECTS[one.severity]}"
        text, example = _joined(one.explanation), book.examples.get(code)
        return Explanation(code, "finding", one.title, effect, one.why, text, do, happens, example)
    symptom = next((known for known in all_symptoms() if known.code == code), None)
    if symptom is not None:
        return _explain_symptom(symptom, happens)
    text = book.errors[code]
    return Explanation(code, "error", _first_words(text), text=text, do=do, happens=happens)


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
        command=guidance.fill(SHOWN),
        see=guidance.see,
    )


def _joined(text: str) -> str:
    """Join the lines of each paragraph."""
    return "\n".join(" ".join(part.split()) for part in text.split("\n\n"))
