"""The pages of the manual, taken apart: headings, links, fenced blocks, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(
            ROOT / name
            for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md", "SKILL.md")
        ),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "playbooks").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`((?:clusterctl|cctl)(?: [^`]*)?)`")
_COMMAND = re.compile(r"^(?:\$ )?((?:clusterctl|cctl) .*)$", re.MULTILINE)
_SIGNS = re.compile(r"(?:[|;&>]|\s#).*")  # where the shell's own words begin


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, in which language, and its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str | None = None) -> list[Block]:
    """Give the fenced blocks of all pages, or those in one language."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if language is None or match[1] == language:
                found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2]))
    return found


def blocks_below(page: Path, heading: str) -> list[str]:
    """Return the texts of the fenced blocks of one section of a page."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, f"{page.name} has no section {heading}"
    return [match[2] for match in _FENCE.finditer(section + "\n")]


def links(page: Path) -> list[str]:
    """Give the targets of a page's links; fenced blocks hold none."""
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Give the anchors that a page's headings make, as GitHub names them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> Iterator[tuple[str, list[str], bool]]:
    """Give every command of ours on the pages: where, its words, and whether it must be complete."""
    for page in PAGES:
        place = str(page.relative_to(ROOT))
        text = page.read_text(encoding="utf-8")
        for line in _INLINE.findall(_FENCE.sub("", text)):
            yield place, _words(line), False
    for block in blocks():
        for line in _COMMAND.findall(block.text):
            if "[OPTIONS]" not in line:
                yield str(block), _words(line), True


def _words(line: str) -> list[str]:
    bare = line if "'" in line else _SIGNS.sub("", line)
    return [word for word in shlex.split(bare, comments=True)[1:] if word != "..."]
