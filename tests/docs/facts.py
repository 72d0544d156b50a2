"""What a page states in either language: commands, keys, numbers, codes, tests, targets of links, tables, lists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from pages import ROOT

HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$\n?", re.DOTALL | re.MULTILINE)
_GENERATED = re.compile(r"<!-- generated:.*?<!-- end of generated -->\n", re.DOTALL)
_HEADING = re.compile(r"^(#+ (?:\d+\. )?)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMENT = re.compile(r"(?m)(?:^|\s+)#\s.*$")
_NOT_A_NUMBER = re.compile(
    r"`[^`\n]+`|\]\([^)\s]*\)|\b(?:node|rank)s? \d+(?! m?s\b)|\d+ 号"
)  # "node 0", "0 号节点"
_PATTERNS = {
    "code": re.compile(r"\bCC-[A-Z]+(?:-[0-9]{3})?\b"),
    "test": re.compile(r"\btests/[\w/]+\.py(?:::\w+)?"),
}
_NUMBER = re.compile(r"(?<![\w.:/-])\d+(?:[.,:]\d+)*")
_COMMAND = re.compile(r"(?m)^(?:\$ )?((?:clusterctl|cctl|ssh|pip|python|git|cd|export) .*?)\s*$")
_WORD = re.compile(  # an option, a variable, a key, a path, anything with a digit
    r"(?<![\w-])--?[a-zA-Z][\w-]*|\b[A-Z][A-Z0-9_]{2,}(?=s?\b)|(?m:^[ -]*\w+:)"
    r"|[\w.~$<{}>-]+/[\w./~$<{}>-]*|[\w.]*\d[\w.]*"
)

_TIME = re.compile(r"^(\d[\d.]*)[smhd]$")  # `0.2s` on an English screen

# Headings of tables and beginnings of lines that a Chinese screen has in Chinese: `NODE`, `note:`
_CATALOGUE = ROOT / "clusterctl" / "locale" / "zh_CN" / "LC_MESSAGES" / "clusterctl.po"
_SHOWN = re.findall(r'(?m)^msgid "([A-Z_ ]+(?=")|[a-z]+:(?= \{|"))', _CATALOGUE.read_text(encoding="utf-8"))
TRANSLATED = frozenset(word for heading in _SHOWN for word in heading.split())

Fact = tuple[str, str]


def sections(text: str) -> list[tuple[str, str]]:
    """Give every section: its heading's level and number, then its text without blocks and generated tables."""
    parts = _HEADING.split(_FENCE.sub("", _GENERATED.sub("", text)))
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def facts(section: str, page: Path) -> Counter[Fact]:
    """Count what a section states; the sentences around it do not count."""
    found = [(kind, one) for kind, pattern in _PATTERNS.items() for one in pattern.findall(section)]
    found += [("words", one) for one in map(placeholder, _INLINE.findall(section)) if not HAN.search(one)]
    found += [("number", one) for one in _NUMBER.findall(_NOT_A_NUMBER.sub("", section)) if one != "0"]
    found += [("link", target(one, page)) for one in _LINK.findall(section)]
    found += [("row or point", mark) for mark in re.findall(r"(?m)^(\||-|\d+\.) ", section)]
    return Counter(found)


def placeholder(words: str) -> str:
    """Give words with nothing in their angle brackets, where each language has a name of its own."""
    return re.sub(r"<[^<>]*>", "<>", words)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """Give the blocks: their language, and their text without comments."""
    return [(found[1], _COMMENT.sub("", found[2])) for found in _FENCE.finditer(_GENERATED.sub("", text))]


def differences(english: tuple[str, str], chinese: tuple[str, str]) -> set[Fact]:
    """Compare two blocks: one without Chinese must be the same, one with Chinese has its commands, values and lines."""
    if english == chinese or english[0] != chinese[0]:
        return set() if english == chinese else {("language", english[0])}
    if not HAN.search(chinese[1]):
        return {("block", english[1])}
    ours, theirs = block_facts(chinese[1]), block_facts(english[1])
    return set((theirs - ours) + (ours - theirs))


def block_facts(text: str) -> Counter[Fact]:
    """Count the lines of a block, the commands in it, and the words that are no prose."""
    found = [("command", one) for one in _COMMAND.findall(text)]
    words = [_TIME.sub(r"\1", one.strip().rstrip(".")) for one in _WORD.findall(text.replace("\uff1a", ":"))]
    found += [("value", one) for one in words if one not in TRANSLATED and not HAN.search(one)]
    return Counter([*found, ("lines", str(len(text.splitlines())))])


def target(link: str, page: Path) -> str:
    """Name what a link leads to, in the same way for both languages: an anchor is a heading's place in its page."""
    if "://" in link:
        return link
    path, _, anchor = link.partition("#")
    file = (page.parent / path).resolve() if path else page
    name = str(file.relative_to(ROOT)).replace("docs/zh", "docs/en").replace(".zh-CN.", ".")
    return f"{name}#{place(anchor, file)}" if anchor else name


def place(anchor: str, file: Path) -> int:
    """Give the number of the heading that makes an anchor."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    made = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return made.index(anchor) if anchor in made else -1


def keys_of(value: Any, path: str = "") -> set[str]:
    """Name every key of a JSON value by its path; lists and the names of nodes do not count."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item, path)}
    if not isinstance(value, dict):
        return set()
    below = {key for name, item in value.items() for key in keys_of(item, f"{path}.{name}")}
    return below | {f"{path}.{name}" for name in value}
