"""The generated tables of the Chinese pages: the English ones, cell by cell in other words (`zh/words.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

WORDS = Path(__file__).parent / "zh" / "words.yaml"
CELL = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"`[^`]*`")
SECONDS = re.compile(r"(\d+(?:\.\d+)?) s")
HOLE = "{}"  # what differs each time, such as a number that was measured


@cache
def words() -> dict[str, str]:
    """Read the Chinese for every English cell or line."""
    read: dict[str, str] = YAML(typ="safe").load(WORDS.read_text(encoding="utf-8"))
    return read


def translate(part: str) -> str:
    """Write a generated part in Chinese; what has no Chinese words yet stays English."""
    return "\n".join("|".join(map(cell, CELL.split(line))) for line in part.split("\n"))


def cell(english: str) -> str:
    """Write one cell or line in Chinese, within the same spaces."""
    text = english.strip()
    if seconds := SECONDS.fullmatch(text):
        return english.replace(text, f"{seconds[1]} 秒")
    entry = next(entries(text), None)
    if entry is None:
        return english
    found = pattern(entry).fullmatch(text) if HOLE in entry else None
    return english.replace(text, words()[entry].format(*found.groups()) if found else words()[entry])


def entries(text: str) -> Iterator[str]:
    """Find the entry for a text: itself, or those with holes for what differs."""
    if text in words():
        yield text
    else:
        yield from (entry for entry in words() if HOLE in entry and pattern(entry).fullmatch(text))


def pattern(entry: str) -> re.Pattern[str]:
    """Make a pattern of an entry with holes."""
    return re.compile("(.+?)".join(map(re.escape, entry.split(HOLE))))


def wanted(part: str) -> Iterator[str]:
    """Give what of an English part has words, which are to be translated."""
    for line in part.split("\n"):
        for text in map(str.strip, CELL.split(line)):
            if re.search(r"[A-Za-z]{2}", CODE.sub("", text).replace("<br>", "")):
                yield text
