"""The table of codes: every entry is complete, and what differs between languages is in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from clusterctl.codes.entry import Same
from clusterctl.codes.lookup import FAMILIES, entries, family_of
from clusterctl.translation import Translated, fill, placeholders, to_chinese, tr, use_language


@pytest.fixture
def chinese() -> Iterator[None]:
    """Use Chinese for one test."""
    use_language("zh")
    yield
    use_language("en")


def test_every_entry_is_complete() -> None:
    """What one sees and what to do stand there, as the pages show them."""
    for code, entry in entries().items():
        assert re.fullmatch(r"CC-[A-Z]+-\d{3}", code) and family_of(code) in FAMILIES, code
        assert entry.title and entry.do, code


def test_what_is_the_same_in_both_languages_says_so() -> None:
    """A text is in the catalogue, or is marked as one that needs no translation: a command or facts."""
    for code, text in [(code, text) for code, entry in entries().items() for text in entry.prose()]:
        assert (to_chinese(text) == text) == isinstance(text, Same), (code, text)


@pytest.mark.usefixtures("chinese")
def test_a_text_keeps_its_english() -> None:
    """JSON and records are English in every language."""
    title = tr(entries()["CC-DISK-003"].title)

    assert isinstance(title, Translated) and title == "磁盘已满" and title.english == "the disk is full"


def test_braces_of_yaml_stand_for_themselves() -> None:
    """Only a name in braces is a placeholder."""
    template = "{host}: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, {limit:g} s"

    assert placeholders(template) == {"{host}", "{limit:g}"}
    assert fill(template, {"host": "gpu1", "limit": 20.0}) == (
        "gpu1: `ssh: {port: 22}`, ${node_rank}, {NCCL_IB_DISABLE: 1}, 20 s"
    )
