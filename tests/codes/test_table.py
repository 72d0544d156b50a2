"""The table of codes: every entry is complete, and both languages have the same placeholders."""

from __future__ import annotations

import re

import pytest

from clusterctl.codes.entry import Text
from clusterctl.codes.lookup import family_of
from clusterctl.codes.table import FAMILIES, TABLE
from clusterctl.translation import fill, placeholders

CHINESE = re.compile(r"[\u4e00-\u9fff]|^lab$")


def texts(code: str) -> list[Text]:
    """Give every text of an entry."""
    entry = TABLE[code]
    return [
        *(entry.title, entry.why, entry.what, entry.do, entry.when),
        *(text for case in entry.cases.values() for text in case),
    ]


@pytest.mark.parametrize("code", TABLE)
def test_an_entry_is_complete(code: str) -> None:
    """What one sees and what to do stand in both languages, as the pages show them."""
    entry = TABLE[code]
    assert re.fullmatch(r"CC-[A-Z]+-\d{3}", code) and family_of(code) in FAMILIES
    assert entry.title.en and CHINESE.search(entry.title.zh)
    assert entry.do.en and entry.do.zh


@pytest.mark.parametrize("code", TABLE)
def test_both_languages_have_the_same_placeholders(code: str) -> None:
    """A fact that one language names would be missing in the other."""
    for text in texts(code):
        assert not text.zh or placeholders(text.en) == placeholders(text.zh), text


def test_braces_of_yaml_stand_for_themselves() -> None:
    """Only a name in braces is a placeholder."""
    template = "{host}: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, {limit:g} s"

    assert placeholders(template) == {"{host}", "{limit:g}"}
    assert fill(template, {"host": "gpu1", "limit": 20.0}) == (
        "gpu1: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, 20 s"
    )


# commands, lines of a file, and what is only put together of facts
SAME_IN_BOTH = re.compile(r"[$#{\[]|--|(chmod|clusterctl|files:|job:|notify:|on_end:|read|sudo) ")


@pytest.mark.parametrize("code", TABLE)
def test_what_a_screen_shows_has_chinese(code: str) -> None:
    """Title, reason, advice, messages and fixes; only the long explanation may lack it."""
    for text in texts(code):
        assert text.zh or not text.en or text is TABLE[code].what or SAME_IN_BOTH.match(text.en), text
