"""Every raise site has its case in the table of codes and gives its facts; every case of the table is raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from clusterctl import errors
from clusterctl.codes.entry import PLACEHOLDER
from clusterctl.codes.lookup import REPORTED
from clusterctl.codes.table import TABLE

PACKAGE = Path(errors.__file__).parent
KINDS = {
    *(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)),
    *("InvalidValueError", "of", "add_issue"),
    "kind",  # a variable that holds one of them
}
OWN = {"node", "evidence"}
# The reader of YAML names what stands in the text, and moves to the table with its next change.
WORDED_BY_HAND = {"specs/yaml/reader.py", "specs/yaml/validate.py"}
CODE = re.compile(r"CC-[A-Z]+-\d{3}")


@dataclass(frozen=True)
class Site:
    """A place in the code that raises; `cases` and `facts` are None where they are chosen at run time."""

    place: str
    code: str
    cases: tuple[str, ...] | None
    facts: frozenset[str] | None


@cache
def sources() -> dict[str, str]:
    """Read the package without the table itself."""
    files = (path for path in PACKAGE.rglob("*.py") if path.parent.name != "codes")
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in files}


def words_in(node: ast.expr) -> tuple[str, ...] | None:
    """Give the texts that an expression may be; None if that is not known here."""
    if isinstance(node, ast.Constant):
        return () if node.value is None else (str(node.value),)
    if isinstance(node, ast.IfExp):
        one, other = words_in(node.body), words_in(node.orelse)
        return None if one is None or other is None else one + other
    return (REPORTED,) if isinstance(node, ast.Name) and node.id == "REPORTED" else None


def sites() -> Iterator[Site]:
    """Find every call that makes an error of a code that stands there, and every hit of a check."""
    for place, text in sources().items():
        tree = ast.parse(text)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in KINDS and call.args:
                codes = words_in(call.args[0]) or ()
                yield from (site_of(place, call, code, 1) for code in codes if CODE.fullmatch(code))
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for code in filter(None, map(code_of_check, function.decorator_list)):
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                hits = [call for call in calls if getattr(call.func, "id", "") in ("on_node", "across_nodes")]
                yield from (site_of(place, hit, code, 2) for hit in hits)


def code_of_check(decorator: ast.expr) -> str:
    """Give the code of `@check("CC-...")`."""
    is_check = isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "check"
    return (words_in(decorator.args[0]) or ("",))[0] if is_check else ""


def site_of(place: str, call: ast.Call, code: str, position: int) -> Site:
    """Read a call whose argument at `position` is the case."""
    cases = words_in(call.args[position]) if len(call.args) > position else ("",)
    names = [keyword.arg for keyword in call.keywords]
    facts = None if None in names else frozenset(filter(None, names)) - OWN
    return Site(f"{place}:{call.lineno}", code, cases, facts)


SITES = list(sites())


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.place)
def test_a_site_has_its_case(site: Site) -> None:
    """A code or case that the table lacks would be a KeyError at the worst moment."""
    entry = TABLE[site.code]
    if site.cases is None or site.facts is None:
        return
    needed = set()
    for case in site.cases:
        for text in entry.cases[case]:
            needed |= {found[1] for found in PLACEHOLDER.finditer(text.en)}
    assert site.facts == needed - OWN


def own_words(call: ast.Call) -> bool:
    """Tell whether a call words a fix, by its keyword or as the fourth value of an Issue, or gives text and code=."""
    is_issue, name = getattr(call.func, "id", "") == "Issue", getattr(call.func, "id", "")
    if name in KINDS and any(keyword.arg == "code" for keyword in call.keywords):
        return True
    fixes = [keyword.value for keyword in call.keywords if keyword.arg == "fix"]
    words = (node for fix in (*fixes, *(call.args[3:] if is_issue else ())) for node in ast.walk(fix))
    return any(isinstance(node, ast.Constant) and " " in str(node.value) for node in words)


def test_no_site_words_a_fix() -> None:
    """What to do stands in the table, and nowhere else."""
    calls = [
        (place, node)
        for place, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
    ]
    assert {place for place, call in calls if own_words(call)} <= WORDED_BY_HAND


def test_every_code_is_raised() -> None:
    """A code that is gone leaves the table too, and none is named that it lacks."""
    named = {code for text in sources().values() for code in CODE.findall(text)}
    assert named == TABLE.keys()


def test_every_case_is_raised() -> None:
    """A case that nothing raises is a text that nobody reads."""
    known = {(site.code, case) for site in SITES for case in site.cases or ()}
    quoted = set(re.findall(r'"([a-z][a-z0-9-]*)"', "\n".join(sources().values())))
    dead = [
        (code, case)
        for code, entry in TABLE.items()
        for case in entry.cases
        if case not in ("", REPORTED) and (code, case) not in known and case not in quoted
    ]
    assert dead == []
