"""A Chinese page states what its English page states: the same steps, commands, files, numbers and codes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from facts import Fact, blocks_of, differences, facts, sections
from pages import ROOT, links

DOCS = ROOT / "docs"
INDEX = DOCS / "zh" / "README.md"
TRANSLATED = sorted(path for path in (DOCS / "zh").rglob("*.md") if path != INDEX)
FRONT = ROOT / "README.zh-CN.md"


def english(page: Path) -> Path:
    """Give the page that a Chinese page translates."""
    return ROOT / "README.md" if page == FRONT else DOCS / "en" / page.relative_to(DOCS / "zh")


def name(page: Path) -> str:
    """Return the name of a case: `reference/job.md`."""
    return page.name if page == FRONT else str(page.relative_to(DOCS / "zh"))


def mismatches(english: str, chinese: str, page: Path, other: Path) -> list[str]:
    """Name what only one of two texts states, by section and by block."""
    theirs, ours = sections(english), sections(chinese)
    if [kind for kind, _ in theirs] != [kind for kind, _ in ours]:
        return [
            f"headings: {[kind for kind, _ in theirs]} in English, {[kind for kind, _ in ours]} in Chinese"
        ]
    found = [
        f"{text.partition(chr(10))[0]}: {fact}"
        for (_, text), (_, own) in zip(theirs, ours, strict=True)
        for fact in one_sided(facts(text, other), facts(own, page), english)
    ]
    blocks, own_blocks = blocks_of(english), blocks_of(chinese)
    if len(blocks) != len(own_blocks):
        return [*found, f"{len(blocks)} blocks in English, {len(own_blocks)} in Chinese"]
    pairs = zip(blocks, own_blocks, strict=True)
    return [*found, *(f"block: {fact}" for pair in pairs for fact in sorted(differences(*pair)))]


def one_sided(theirs: Counter[Fact], ours: Counter[Fact], english: str) -> list[Fact]:
    """List what only one of two sections states, or more often; a word of the English page more is no harm."""
    more = [fact for fact in ours - theirs if fact[0] != "words" or fact[1] not in english]
    return sorted([*(theirs - ours), *more])


@pytest.mark.parametrize("page", [FRONT, INDEX, *TRANSLATED], ids=name)
def test_it_states_what_the_english_page_states(page: Path) -> None:
    """If this fails, one page has changed and the other has not; sentences and comments are free."""
    other = english(page)
    theirs, ours = other.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")

    assert mismatches(theirs, ours, page, other) == []


def test_every_chinese_page_can_be_reached() -> None:
    """The README leads to the index, the index to each page, and either language to the other."""
    named = set(links(INDEX))

    assert {name(page) for page in TRANSLATED} <= named
    assert "docs/zh/README.md" in links(FRONT)
    for page, other in ((ROOT / "README.md", FRONT.name), (FRONT, "README.md"), (INDEX, "../en/README.md")):
        assert f"]({other})" in "\n".join(page.read_text(encoding="utf-8").splitlines()[:5]), page.name
    assert "../zh/README.md" in links(DOCS / "en" / "README.md")


@pytest.mark.parametrize("page", [FRONT, INDEX, *TRANSLATED], ids=name)
def test_it_links_to_chinese_pages(page: Path) -> None:
    """A Chinese page links to English pages of the manual only to switch the language."""
    text = page.read_text(encoding="utf-8")

    assert re.findall(r"(?<!\[English\])\((?:[./]*|docs)/en/[\w/-]+\.md", text) == []


def test_both_manuals_have_the_same_pages() -> None:
    """Each page of the manual and its reference is there in both languages."""
    folders = (DOCS / "en", DOCS / "zh")
    pages, chinese_pages = ({page.relative_to(one) for page in one.rglob("*.md")} for one in folders)

    assert chinese_pages == pages
