"""What a code means, in full: of a finding, of what a rank ended with, or of an error.

The texts are in `clusterctl/codes`. Examples, and the ways to fail that a code stands for, come as a `Manual`,
which the caller has read from what `tools/docs/generate.py` wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from clusterctl.codes.entry import Entry, Severity
from clusterctl.codes.lookup import FAMILIES, entries, family_of, find_entry
from clusterctl.errors import UsageError
from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.runs.verdict import render_command
from clusterctl.protocol.known_errors import Symptom, all_symptoms
from clusterctl.specs.json_schema import FILES, KeyEntry, find_keys
from clusterctl.specs.text import find_nearest
from clusterctl.translation import language, to_chinese, to_translate, tr

CODE_PATTERN = re.compile(r"(?:CC-)?([A-Z]+)(?:-(\d{1,3}))?", re.IGNORECASE)
EXAMPLE_VALUES = {"node": "NODE", "rank": "RANK", "module": "MODULE", "path": "PATH", "run": "RUN"}
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
BETWEEN_CLAUSES = ";: \uff1b\uff1a"  # the last two are Chinese
FIRST_CLAUSE = re.compile("(?<=[\\w)])(?:[;:] |[\uff1b\uff1a])")  # the last two are Chinese
SEVERITIES: Mapping[Severity, str] = {
    "error": to_translate("error"),
    "warning": to_translate("warning"),
    "info": to_translate("info"),
}
EFFECTS: Mapping[Severity, str] = {
    "error": to_translate("error: `launch` starts nothing"),
    "warning": to_translate("warning: `launch` continues"),
    "info": to_translate("info: nothing is wrong"),
}
GRADES: Mapping[str, str] = {
    "own": to_translate("a cause"),
    "doubtful": to_translate("a cause, unless another rank has a clearer one"),
    "waited": to_translate("usually a consequence: another rank did not take part"),
    "peer": to_translate("usually a consequence: another rank exited"),
}
MAX_FOUND = 20  # codes


class Example(TypedDict):
    """A case in which a code is reported: what was found, and the fix."""

    seen: str
    fix: str


class Manual(TypedDict):
    """What `cli/examples.json` adds to the table of codes: by language and code an example; how each code happens."""

    examples: Mapping[str, Mapping[str, Example]]
    happens: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Explanation:
    """A code in full; parts that do not apply are empty."""

    code: str
    kind: str
    title: str
    effect: str = ""
    role: str = ""  # of the end of a rank in the failure of a run
    why: str = ""
    text: str = ""
    do: str = ""
    happens: tuple[str, ...] = ()
    example: Example | None = None
    command: str = ""
    see: str = ""


def list_titles() -> dict[str, str]:
    """Return every code and what it means in a few words, family by family."""
    order = {family: position for position, family in enumerate(FAMILIES)}
    codes = sorted(entries(), key=lambda code: (order[family_of(code)], code))
    return {code: short_title(code) for code in codes}


def short_title(code: str) -> str:
    """Return the first clause of a title, without links; all of it where it is what a rank ended with."""
    title = _without_markup(tr(find_entry(code).title))
    return title if family_of(code) == "JOB" else FIRST_CLAUSE.split(title)[0]


def _without_markup(text: str) -> str:
    """Take the links and Markdown's signs out of a text."""
    return LINK.sub(r"\1", text).replace("**", "")


def find_code(word: str) -> str:
    """Return the code, or the family, that was meant; raises UsageError with the nearest for an unknown one."""
    known = list_titles()
    match = CODE_PATTERN.fullmatch(word.strip())
    family = match[1].upper() if match else ""
    if match and family in FAMILIES:
        if match[2] is None:
            return family
        code = f"CC-{family}-{int(match[2]):03}"
        if code in known:
            return code
    raise _unknown_code_error(word, match, family, known)


def search_texts(words: Sequence[str]) -> dict[str, str]:
    """List the codes in whose texts all of these words stand, in either language; titles with them come first."""
    wanted = [word.casefold() for word in words]
    found: list[tuple[int, str]] = []
    for code, entry in entries().items():
        title = f"{entry.title} {to_chinese(entry.title)}".casefold()
        prose = [*entry.prose()]
        whole = " ".join([*entry.texts, *prose, *map(to_chinese, prose)]).casefold()
        if all(word in whole for word in wanted):
            found.append((-sum(word in title for word in wanted), code))
    return {code: short_title(code) for _, code in sorted(found)[:MAX_FOUND]}


def choose_keys(word: str) -> list[KeyEntry]:
    """Return the keys that a word means, if it is a path, a file, or a name that no family of codes has."""
    if "." not in word and word not in FILES:
        try:
            find_code(word)
        except UsageError:
            return find_keys(word)
        return []
    return find_keys(word)


def choose_code(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the code or the family that was named, and the codes to list: all, those of a family, or those found."""
    titles = list_titles()
    if not words:
        return "", titles
    try:
        code = find_code(" ".join(words))
    except UsageError:
        found = search_texts([part for word in words for part in word.split()])
        if not found:
            raise
        return next(iter(found)) if len(found) == 1 else "", found
    return code, {name: text for name, text in titles.items() if code == name.split("-")[1]}


def _unknown_code_error(
    word: str, match: re.Match[str] | None, family: str, known: Mapping[str, str]
) -> UsageError:
    same_family = [code for code in known if family_of(code) == family]
    if same_family and match and match[2]:
        number = int(match[2])
        nearest_code = min(same_family, key=lambda code: abs(int(code[-3:]) - number))
        title = known[nearest_code]
        return UsageError("CC-USE-050", "number", word=word, nearest=nearest_code, title=title, family=family)
    guess = find_nearest(family, FAMILIES) if family else find_nearest(word.upper(), known)
    case = "near" if guess else ""
    return UsageError("CC-USE-050", case, word=word, guess=guess, families=", ".join(FAMILIES))


def explain(code: str, manual: Manual) -> Explanation:
    """Explain a code that `find_code` gave."""
    entry, happens = find_entry(code), tuple(map(tr, manual["happens"].get(code, ())))
    symptom = next((known for known in all_symptoms() if known.code == code), None)
    if symptom is not None:
        return _explain_symptom(symptom, entry, happens)
    title, what, do = short_title(code), _without_markup(tr(entry.what)), _without_markup(tr(entry.do))
    if code in all_checks():
        effect, example = tr(EFFECTS[entry.severity]), manual["examples"].get(language(), {}).get(code)
        return Explanation(
            code,
            tr("finding"),
            title,
            effect,
            why=tr(entry.why),
            text=what,
            do=do,
            happens=happens,
            example=example,
        )
    whole = _without_markup(tr(entry.title))
    if entry.when:
        effect = tr("{severity}, {when}", severity=tr(SEVERITIES[entry.severity]), when=tr(entry.when))
        return Explanation(code, tr("error"), title, effect, text=what, do=do, happens=happens)
    more = whole[len(title) :].lstrip(BETWEEN_CLAUSES)
    text = join_sentences(more, what) if more and what else more or what
    return Explanation(code, tr("error"), title, text=text, do=do, happens=happens)


def join_sentences(first: str, second: str) -> str:
    """Put two texts into one; Chinese has its own full stop, and no space after it."""
    return tr("{first}. {second}", first=first, second=second)


def _explain_symptom(symptom: Symptom, entry: Entry, happens: tuple[str, ...]) -> Explanation:
    return Explanation(
        symptom.code,
        tr("end of a rank"),
        tr(entry.title),
        role=tr(GRADES[symptom.grade]),
        text=_without_markup(tr(entry.do)),
        happens=happens,
        command=render_command(symptom.code, EXAMPLE_VALUES),
        see=entry.related,
    )
