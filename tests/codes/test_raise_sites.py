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
from clusterctl.codes.table import REPORTED, TABLE

PACKAGE = Path(errors.__file__).parent
KINDS = {
    *(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)),
    *("InvalidValueError", "of", "add_issue"),
    "kind",  # a variable that holds one of them
}
OWN = {"node", "evidence"}
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
        return (str(node.value),)
    if isinstance(node, ast.IfExp):
        one, other = words_in(node.body), words_in(node.orelse)
        return None if one is None or other is None else one + other
    return (REPORTED,) if isinstance(node, ast.Name) and node.id == "REPORTED" else None


def sites() -> Iterator[Site]:
    """Find every call that makes an error of a code that stands there."""
    for place, text in sources().items():
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in KINDS and call.args:
                codes = words_in(call.args[0])
                cases = words_in(call.args[1]) if len(call.args) > 1 else ("",)
                names = [keyword.arg for keyword in call.keywords]
                facts = None if None in names else frozenset(filter(None, names)) - OWN
                for code in codes or ():
                    if CODE.fullmatch(code):
                        yield Site(f"{place}:{call.lineno}", code, cases, facts)


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
    assert site.facts == needed


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
