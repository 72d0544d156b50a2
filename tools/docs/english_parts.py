"""What Chinese pages take from others: links to Chinese pages and headings, blocks without Chinese words."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tables import anchor

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s#:]*)(?:#([^)\s]+))?\)((?:\uff08英文\uff09)?)")


def to_chinese_pages(text: str, page: Path, pages: Mapping[Path, str]) -> str:
    """Turn links to English pages into links to those of the Chinese `pages`; only `[English](...)` stays.

    An anchor becomes that of the Chinese heading at the same place: both pages have the same headings.
    """

    def link(found: re.Match[str]) -> str:
        words, path, place, _ = found.groups()
        target = Path(os.path.normpath(page.parent / path))
        if words == "[English]" or not target.is_relative_to(DOCS / "en"):
            return found[0]
        translated = DOCS / "zh" / target.relative_to(DOCS / "en")
        if translated not in pages:
            return found[0]
        if place:
            ours, theirs = anchors(pages[translated]), anchors(target.read_text(encoding="utf-8"))
            if place not in theirs or len(ours) != len(theirs):
                return found[0]  # one of the pages is still to be changed
            place = f"#{ours[theirs.index(place)]}"
        return f"{words}({os.path.relpath(translated, page.parent)}{place or ''})"

    return LINK.sub(link, text)


def anchors(text: str) -> list[str]:
    """Give the anchors of a page's headings in their order, as GitHub names them."""
    return [anchor(heading) for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)]


def with_english_blocks(text: str, english: str) -> str:
    """Replace each block without Chinese words, such as output, by the one in its place on the English page."""
    blocks = [found[0] for found in FENCE.finditer(english)]
    if len(blocks) != len(FENCE.findall(text)):
        return text  # one of the pages is still to be changed
    places = iter(blocks)

    def block(found: re.Match[str]) -> str:
        fresh = next(places)
        return found[0] if HAN.search(found[0]) else fresh

    return FENCE.sub(block, text)
