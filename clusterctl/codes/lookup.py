"""Look up a code; the table is loaded when the first code is looked up, since most commands need none."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import NOTHING, Case, Entry, Text
from clusterctl.translation import Translated, fill, fill_chinese, fill_english, language

REPORTED = "reported"  # the case of an error whose message comes from a node, which may send any code
_AS_REPORTED = Case(Text("{message}", "{message}"))
_UNKNOWN = Entry("error", NOTHING)


def entries() -> Mapping[str, Entry]:
    """Give every entry by its code."""
    from clusterctl.codes.table import TABLE

    return TABLE


def families() -> Mapping[str, Text]:
    """Give the heading of every family, in the order in which they are listed."""
    from clusterctl.codes.table import FAMILIES

    return FAMILIES


def find_entry(code: str) -> Entry:
    """Give the entry of a code; one without texts for a code that this version does not know."""
    return entries().get(code, _UNKNOWN)


def word(code: str, case: str, facts: Mapping[str, object]) -> tuple[str, str]:
    """Give message and fix of one case of a code, in the language in use."""
    cases = find_entry(code).cases
    message, fix = cases.get(case, _AS_REPORTED) if case == REPORTED else cases[case]
    return _fill(message, facts), _fill(fix, facts)


def _fill(text: Text, facts: Mapping[str, object]) -> str:
    if language() == "en":
        return fill(text.en, facts)
    return Translated(fill_chinese(text.here, facts), fill_english(text.en, facts))


def family_of(code: str) -> str:
    """Give the middle of a code."""
    return code.split("-")[1]
