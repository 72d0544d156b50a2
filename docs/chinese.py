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


@cache
def words() -> dict[str, str]:
    """Read the Chinese for every English cell or line."""
    read: dict[str, str] = YAML(typ="safe").load(WORDS.read_text(encoding="utf-8"))
    return read


def translate(part: str) -> str:
    """Write a generated part in Chinese; what has no Chinese words yet stays English."""
    known = words()
    return "\n".join(
        "|".join(f" {known[c]} " if c in known else cell for cell, c in cells(line))
        for line in part.split("\n")
    )


def cells(line: str) -> list[tuple[str, str]]:
    """Take a line apart: every cell as it stands, and bare."""
    return [(cell, cell.strip()) for cell in CELL.split(line)]


def wanted(part: str) -> Iterator[str]:
    """Give what of an English part has words, which are to be translated."""
    for line in part.split("\n"):
        for _, text in cells(line):
            if re.search(r"[A-Za-z]{2}", CODE.sub("", text).replace("<br>", "")):
                yield text
