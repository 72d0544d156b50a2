"""A Chinese page shows what its English page shows: the same steps, commands, files and outputs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pages import ROOT, Block, blocks, links

from clusterctl.cli.main import VERBS

sys.path.insert(0, str(ROOT / "docs"))

import chinese
import generate
import troubles

DOCS = ROOT / "docs"
INDEX = DOCS / "zh" / "README.md"
TRANSLATED = sorted(path for path in (DOCS / "zh").glob("*.md") if path != INDEX)
FRONT = ROOT / "README.zh-CN.md"
ENGLISH_ONLY = {  # what is made from English texts of the program, and what is measured
    *("command-line.md", "findings.md", "catalogue.md", "benchmarks.md"),
}
CODE = re.compile(r"\bCC-[A-Z]+-[0-9]{3}\b")
TEST = re.compile(r"\btests/[\w/]+\.py::\w+")


def english(page: Path) -> Path:
    """Give the page that a Chinese page translates."""
    return ROOT / "README.md" if page == FRONT else DOCS / "en" / page.name


def shown(page: Path) -> list[str]:
    """Give a page's blocks without comments, which are translated."""
    return [without_comments(block) for block in blocks() if block.page == page]


def without_comments(block: Block) -> str:
    """Drop what stands behind a # that begins a comment."""
    return re.sub(r"(?m)(?:^|\s+)#\s.*$", "", block.text)


def headings(page: Path) -> list[str]:
    """Give the level and the number of every heading, without its words."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    return re.findall(r"^#+ (?:\d+\. )?", text, re.MULTILINE)


@pytest.mark.parametrize("page", [FRONT, *TRANSLATED], ids=lambda page: page.name)
def test_it_is_in_step_with_the_english_page(page: Path) -> None:
    """If this fails, the English page has changed: bring the Chinese one up to date."""
    assert shown(page) == shown(english(page))
    assert headings(page) == headings(english(page))


@pytest.mark.parametrize("page", [FRONT, *TRANSLATED], ids=lambda page: page.name)
def test_it_leaves_nothing_out(page: Path) -> None:
    """The same codes and tests in the same order, as many rows in the tables, as many points in the lists."""
    chinese, other = (one.read_text(encoding="utf-8") for one in (page, english(page)))

    for kind in (CODE, TEST):
        assert kind.findall(chinese) == kind.findall(other)
    for mark in ("\n| ", "\n- ", "\n1. ", "\n2. "):
        assert chinese.count(mark) == other.count(mark), mark


def test_generated_tables_have_their_words() -> None:
    """Every cell of a generated table has its Chinese in docs/zh/words.yaml, and no word there is of no use."""
    shown = {"you see", "code", "do", *(title for _, title in troubles.families())}
    for page in TRANSLATED:
        for _, kind, name, _ in generate.PART.findall(english(page).read_text(encoding="utf-8")):
            literal = kind in ("troubles", *generate.LITERAL)
            shown |= set() if literal else set(chinese.wanted(generate.fill(kind, name)))
    found = {text: list(chinese.entries(text)) for text in shown}

    assert [text for text, entries in found.items() if not entries] == [], "without Chinese"
    assert chinese.words().keys() - {entry for entries in found.values() for entry in entries} == set(), (
        "gone"
    )


def test_every_chinese_page_can_be_reached() -> None:
    """From the README by way of the index, and from either language to the other at the top of the page."""
    named = set(links(INDEX))

    assert {page.name for page in TRANSLATED} <= named
    assert "docs/zh/README.md" in links(FRONT)
    for page, other in ((ROOT / "README.md", FRONT.name), (FRONT, "README.md"), (INDEX, "../en/README.md")):
        assert f"]({other})" in "\n".join(page.read_text(encoding="utf-8").splitlines()[:5]), page.name
    assert "../zh/README.md" in links(DOCS / "en" / "README.md")


def test_every_command_and_exit_code_is_told() -> None:
    """The index says what each command does; the rest of the command line is English, as --help is."""
    page, other = (
        (DOCS / place).read_text(encoding="utf-8") for place in ("zh/README.md", "en/command-line.md")
    )
    exit_code = re.compile(r"^\| (\d+) \|", re.MULTILINE)

    assert re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE) == list(VERBS)
    assert exit_code.findall(page) == exit_code.findall(other)


def test_both_manuals_have_the_same_pages() -> None:
    """A new page wants its Chinese one, or a place among those that are English for a reason."""
    pages, chinese_pages = ({page.name for page in (DOCS / name).glob("*.md")} for name in ("en", "zh"))

    assert chinese_pages - pages == set()
    assert pages - chinese_pages - ENGLISH_ONLY == set()
