"""The pictures of the READMEs, and the terminal that `tools/record.py` draws them from."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import ROOT, links
from screen import Screen
from svg import delays, render_svg

FOLDER = ROOT / "docs" / "pictures"
PICTURES, SCREENSHOTS = sorted(FOLDER.glob("*.svg")), sorted(FOLDER.glob("*.png"))
PAGES = ("README.md", "README.zh-CN.md", "docs/en/runs.md", "docs/zh/runs.md")
LARGEST = 200_000


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_and_self_contained(picture: Path) -> None:
    """It is well-formed, runs no script, loads nothing, and has colours for dark and light pages."""
    text = picture.read_text(encoding="utf-8")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}

    assert tags == {"svg", "style", "rect", "g", "text"}
    assert len(text) < LARGEST
    assert set(re.findall(r"\w+://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:light" in text


@pytest.mark.parametrize("picture", SCREENSHOTS, ids=lambda picture: picture.name)
def test_a_screenshot_is_small(picture: Path) -> None:
    """A PNG that a README can load."""
    content = picture.read_bytes()

    assert content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) < LARGEST


@pytest.mark.parametrize("page", PAGES)
def test_each_page_shows_the_pictures_in_its_language(page: str) -> None:
    """The same ones as in the other language; a README shows the failure alone."""
    is_chinese = "zh" in page
    shown = {Path(link).name for link in links(ROOT / page) if link.endswith((".svg", ".png"))}
    all_pictures = {picture.name for picture in (*PICTURES, *SCREENSHOTS)}

    assert shown and {".zh-CN." in name for name in shown} == {is_chinese}
    assert shown == all_pictures & shown
    assert not page.startswith("README") or shown == {f"failure{'.zh-CN' if is_chinese else ''}.svg"}


def test_no_picture_is_left_over() -> None:
    """Each is shown by a page."""
    shown = {
        Path(link).name for page in PAGES for link in links(ROOT / page) if link.endswith((".svg", ".png"))
    }

    assert shown == {picture.name for picture in (*PICTURES, *SCREENSHOTS)}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\r\ntwo", "one\ntwo"),
        ("12345678", "12345\n678"),
        ("old\rnew", "new"),
        ("one\r\ntwo\r\x1b[1A\x1b[Kup", "up\ntwo"),
        ("one\r\ntwo\x1b[1A\r\x1b[J", ""),
        ("节点节点", "节点\n节点"),
        ("\x1b]0;title\x07\x1b[?25la\tb", "a   b"),
    ],
)
def test_the_screen_is_that_of_a_terminal(written: str, shown: str) -> None:
    """New lines, the end of a row, overwriting, lines erased from below, wide characters, codes without a look."""
    screen = Screen(5)
    screen.feed(written, 0.0)

    assert screen.text() == shown


def test_styles_are_drawn() -> None:
    """Bold, one of the 16 colours, one of the 256, and markup as text."""
    screen = Screen(80)
    screen.feed("\x1b[1;31mno\x1b[0m \x1b[38;5;208m<b>\x1b[39m", 0.0)
    svg = render_svg(screen)

    assert '<text x="16.0" y="30" textLength="16.8" class="k c1">no</text>' in svg
    assert 'style="fill:#ff8700">&lt;b&gt;</text>' in svg


def test_long_waits_are_shortened_and_the_order_is_kept() -> None:
    """A minute of training takes about a second of the picture."""
    found = delays([10.0, 10.1, 70.0, 69.0])

    assert found[-1] < 3
    assert all(earlier < later for earlier, later in pairwise(found))
