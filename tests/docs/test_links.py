"""Links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Every relative link names a file of the checkout, and every fragment a heading of it."""
    for link in links(page):
        target, _, fragment = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page

        assert file.exists(), f"{link} leads nowhere"
        assert file.is_relative_to(ROOT), f"{link} leaves the checkout"
        if fragment:
            assert fragment in anchors(file), f"no heading makes #{fragment}"


@pytest.mark.parametrize("folder", ["en", "zh", "inside"])
def test_every_page_can_be_reached(folder: str) -> None:
    """Each page of the manual, its reference and docs/inside is named in its index."""
    index = ROOT / "docs" / folder / "README.md"
    named = {target.partition("#")[0] for target in links(index)}

    assert {str(page.relative_to(index.parent)) for page in index.parent.rglob("*.md")} - {
        index.name
    } <= named


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_begins_with_its_command(language: str) -> None:
    """The command that a page is about stands before its first heading."""
    pages = sorted(page for page in (ROOT / "docs" / language).glob("*.md") if page.name != "README.md")

    assert len(pages) == 11
    assert [
        page.name for page in pages if "```" not in page.read_text(encoding="utf-8").partition("\n## ")[0]
    ] == []


NOTES = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
INDEX = ROOT / "docs" / "decisions" / "README.md"
ROW = re.compile(r"^- \[?(\d+)(?:\]\(([^)]+)\))?: .+$", re.MULTILINE)
SUPERSEDED = re.compile(r"[Ss]uperseded (?:in part )?by \[(?:decision )?(\d+)\]")


def test_decisions_are_numbered_without_gaps() -> None:
    """0001, 0002, ...: a note keeps its number, and its heading begins with it."""
    assert [int(note.name[:4]) for note in NOTES] == list(range(1, len(NOTES) + 1))
    for note in NOTES:
        assert note.read_text(encoding="utf-8").startswith(f"# {int(note.name[:4])}. ")


def test_every_decision_is_in_the_index_once() -> None:
    """A new note gets its line under a topic; a line may be there before its note is, without a link."""
    rows = ROW.findall(INDEX.read_text(encoding="utf-8"))
    numbers = [int(number) for number, _ in rows]

    assert {int(note.name[:4]) for note in NOTES} <= set(numbers)
    assert len(numbers) == len(set(numbers))
    assert [(number, link) for number, link in rows if link and int(link[:4]) != int(number)] == []


def test_superseded_decisions_say_so_at_their_top_and_in_the_index() -> None:
    """Whoever finds the older note is led to the newer one."""
    index = {
        found[1]: SUPERSEDED.findall(found[0]) for found in ROW.finditer(INDEX.read_text(encoding="utf-8"))
    }
    tops = {
        str(int(note.name[:4])): "".join(note.read_text(encoding="utf-8").split("\n")[:4]) for note in NOTES
    }

    assert {number: SUPERSEDED.findall(top) for number, top in tops.items()} == {n: index[n] for n in tops}
    assert any(index.values())
