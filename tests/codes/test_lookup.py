"""The table of codes: every entry is complete, and both languages have the same placeholders."""

from __future__ import annotations

import re

from clusterctl.codes.entry import Text
from clusterctl.codes.lookup import FAMILIES, entries, family_of
from clusterctl.translation import fill, placeholders

QUOTED = re.compile(r"`[^`]*`")
CHINESE = re.compile(r"[\u4e00-\u9fff]|^lab$")


def texts(code: str) -> list[Text]:
    """Give every text of an entry."""
    entry = entries()[code]
    return [
        *(entry.title, entry.why, entry.what, entry.do, entry.when),
        *(text for case in entry.cases.values() for text in case),
    ]


def test_every_entry_is_complete() -> None:
    """What one sees and what to do stand in both languages, as the pages show them."""
    for code, entry in entries().items():
        assert re.fullmatch(r"CC-[A-Z]+-\d{3}", code) and family_of(code) in FAMILIES, code
        assert entry.title.en and CHINESE.search(entry.title.zh), code
        assert entry.do.en and entry.do.zh, code


def test_both_languages_state_the_same_facts() -> None:
    """Every English text has a Chinese one, with the same placeholders and the same commands."""
    for code in entries():
        for text in texts(code):
            assert bool(text.zh) == bool(text.en), (code, text)
            assert placeholders(text.en) == placeholders(text.zh), (code, text)
            assert set(QUOTED.findall(text.en)) == set(QUOTED.findall(text.zh)), (code, text)


def test_braces_of_yaml_stand_for_themselves() -> None:
    """Only a name in braces is a placeholder."""
    template = "{host}: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, {limit:g} s"

    assert placeholders(template) == {"{host}", "{limit:g}"}
    assert fill(template, {"host": "gpu1", "limit": 20.0}) == (
        "gpu1: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, 20 s"
    )
