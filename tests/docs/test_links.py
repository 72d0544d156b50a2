"""Links lead somewhere."""

from __future__ import annotations

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


def test_every_page_of_the_manual_can_be_reached() -> None:
    """The index names each page."""
    index = ROOT / "docs" / "en" / "README.md"
    named = {target.partition("#")[0] for target in links(index)}

    assert {page.name for page in index.parent.glob("*.md")} - {index.name} <= named


def test_decisions_are_numbered_without_gaps() -> None:
    """0001, 0002, ...: a note keeps its number, and its heading begins with it."""
    notes = sorted((ROOT / "docs" / "decisions").glob("*.md"))

    assert [int(note.name[:4]) for note in notes] == list(range(1, len(notes) + 1))
    for note in notes:
        assert note.read_text(encoding="utf-8").startswith(f"# {int(note.name[:4])}. ")
