"""Every raise site has its case in the table of codes and gives its facts; every case of the table is raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clusterctl import errors
from clusterctl.codes.lookup import REPORTED, entries
from clusterctl.translation import PLACEHOLDER

PACKAGE = Path(errors.__file__).parent
KINDS = {
    *(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)),
    *("of", "add_issue"),
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


@cache
def tree_of(place: str) -> ast.Module:
    """Parse a module once."""
    return ast.parse(sources()[place])


def trees(*words: str) -> dict[str, ast.Module]:
    """Parse the modules that have one of these words: what is looked for cannot be in others."""
    return {place: tree_of(place) for place, text in sources().items() if any(word in text for word in words)}


@dataclass(frozen=True)
class Scope:
    """What a name may stand for: the expressions that a function assigns to it, and what a function returns."""

    assigned: Mapping[str, Sequence[ast.expr]]
    returned: Mapping[str, Sequence[ast.expr]]

    def words_in(self, node: ast.expr) -> tuple[str, ...] | None:
        """Give the texts that an expression may be; None if that is not known here."""
        if isinstance(node, ast.Constant):
            return () if node.value is None else (str(node.value),)
        if isinstance(node, ast.IfExp):
            return self._words_in_each((node.body, node.orelse))
        if isinstance(node, ast.Name):
            return (REPORTED,) if node.id == "REPORTED" else self._words_in_each(self.assigned.get(node.id))
        return (
            self._words_in_each(self.returned.get(ast.unparse(node.func)))
            if isinstance(node, ast.Call)
            else None
        )

    def _words_in_each(self, nodes: Sequence[ast.expr] | None) -> tuple[str, ...] | None:
        found = [self.words_in(node) for node in nodes or ()]
        return None if not found or None in found else tuple(word for words in found for word in words or ())


def scopes(tree: ast.Module) -> Iterator[tuple[Scope, list[ast.Call]]]:
    """Give every function of a module with its calls, and the module's own."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    returned = {
        function.name: [
            node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value
        ]
        for function in functions
    }
    inside = {id(node) for function in functions for node in ast.walk(function) if node is not function}
    for owner in (tree, *(function for function in functions if id(function) not in inside)):
        nodes = [node for node in ast.walk(owner) if owner is not tree or id(node) not in inside]
        assigned: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign):
                for name, value in assignments(node.targets[0], node.value):
                    assigned.setdefault(name, []).append(value)
        yield Scope(assigned, returned), [node for node in nodes if isinstance(node, ast.Call)]


def assignments(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Pair names with what an assignment gives them, one by one where it gives several."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.IfExp):
        yield from (*assignments(target, value.body), *assignments(target, value.orelse))
    elif isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else []
        for one_target, one_value in zip(target.elts, values, strict=False):
            yield from assignments(one_target, one_value)


NO_SCOPE = Scope({}, {})


@cache
def sites() -> tuple[Site, ...]:
    """Read the package; only for the tests here, since every process of a test run imports this file."""
    return tuple(find_sites())


def find_sites() -> Iterator[Site]:
    """Find every call that makes an error of a code that stands there, and every hit of a check."""
    for place, tree in trees("CC-").items():
        for scope, calls in scopes(tree):
            for call in calls:
                name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
                if name in KINDS and call.args:
                    codes = scope.words_in(call.args[0]) or ()
                    yield from (
                        site_of(place, scope, call, code, 1) for code in codes if CODE.fullmatch(code)
                    )
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for code in filter(None, map(code_of_check, function.decorator_list)):
                nodes = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                hits = [call for call in nodes if getattr(call.func, "id", "") in ("on_node", "across_nodes")]
                yield from (site_of(place, NO_SCOPE, hit, code, 2, given=frozenset({"node"})) for hit in hits)


def code_of_check(decorator: ast.expr) -> str:
    """Give the code of `@check("CC-...")`."""
    is_check = isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "check"
    return (NO_SCOPE.words_in(decorator.args[0]) or ("",))[0] if is_check else ""


def site_of(
    place: str, scope: Scope, call: ast.Call, code: str, position: int, given: frozenset[str] = frozenset()
) -> Site:
    """Read a call whose argument at `position` is the case; some facts are `given` to each text."""
    cases = scope.words_in(call.args[position]) if len(call.args) > position else ("",)
    names = [keyword.arg for keyword in call.keywords]
    facts = None if None in names else (frozenset(filter(None, names)) - OWN) | given
    return Site(f"{place}:{call.lineno}", code, cases, facts)


# Of sites that get the case from their caller or from a table of their own: what that may be.
CHOSEN = {
    "CC-CLEAN-003": ("", "unanswered"),
    "CC-PULL-006": ("", "unanswered"),
    "CC-RUN-061": ("unwritable", "large", "twice", "malformed"),
    "CC-SPEC-025": ("alias", "at-sign", "comma"),
    "CC-SPEC-033": ("unclosed", "unknown"),
    "CC-STAGE-010": ("hf", "ms", "url"),
    "CC-SYNC-012": ("", "unanswered"),
    "CC-USE-011": tuple(entries()["CC-USE-011"].cases),
    "CC-USE-091": ("lab", "run"),
}


def needed_facts(code: str, cases: Iterable[str]) -> set[str]:
    """Name the placeholders of some cases' texts; KeyError for a code or case that the table lacks."""
    texts = [text for case in cases for text in entries()[code].cases[case]]
    return {found[1] for text in texts for found in PLACEHOLDER.finditer(text)}


def test_every_site_has_its_case() -> None:
    """A code or case that the table lacks would be a KeyError at the worst moment."""
    for site in sites():
        assert site.code in entries(), site.place
        assert set(site.cases or ()) <= entries()[site.code].cases.keys(), site.place
        if site.cases is None:  # it gives the facts of all its cases; a text needs those of one
            assert site.facts in (None, needed_facts(site.code, CHOSEN[site.code])), site.place
        elif site.facts is not None:
            needed = needed_facts(site.code, site.cases)
            assert site.facts - {"node"} == needed - {"node"}, site.place
            assert "node" in site.facts or "node" not in needed, site.place


def own_words(call: ast.Call) -> bool:
    """Return whether a call words a fix, by its keyword or as the fourth value of an Issue, or gives text and code=."""
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
        for place, tree in trees("fix=", "code=", "Issue(").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    assert [place for place, call in calls if own_words(call)] == []


def test_every_code_is_raised() -> None:
    """A code that is gone leaves the table too, and none is named that it lacks."""
    named = {code for text in sources().values() for code in CODE.findall(text)}
    assert named == entries().keys()


def test_every_case_is_raised() -> None:
    """A case that nothing raises is a text that is never shown."""
    known = {(site.code, case) for site in sites() for case in site.cases or ()}
    quoted = set(re.findall(r'"([a-z][a-z0-9-]*)"', "\n".join(sources().values())))
    dead = [
        (code, case)
        for code, entry in entries().items()
        for case in entry.cases
        if case not in ("", REPORTED) and (code, case) not in known and case not in quoted
    ]
    assert dead == []
