"""Links of the Chinese pages: to the Chinese page and its heading wherever there is one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s#:]*)(?:#([^)\s]+))?\)((?:\uff08英文\uff09)?)")


def to_chinese_pages(text: str, page: Path, pages: Mapping[str, str]) -> str:
    """Turn links to English pages into links to those of the Chinese `pages`; only `[English](...)` stays."""

    def link(found: re.Match[str]) -> str:
        words, path, anchor, _ = found.groups()
        target = Path(os.path.normpath(page.parent / path))
        if words == "[English]" or target.parent != DOCS / "en" or target.name not in pages:
            return found[0]
        place = f"#{same_heading(anchor, target, pages[target.name])}" if anchor else ""
        return f"{words}({os.path.relpath(DOCS / 'zh' / target.name, page.parent)}{place})"

    return LINK.sub(link, text)


def same_heading(anchor: str, english: Path, chinese: str) -> str:
    """Give the anchor of the Chinese heading at the place of an English one: both pages have the same headings."""
    known = anchors(english.read_text(encoding="utf-8"))
    return anchors(chinese)[known.index(anchor)] if anchor in known else anchor


def anchors(text: str) -> list[str]:
    """Give the anchors of a page's headings in their order, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
