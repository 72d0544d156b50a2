"""The list of pages for language models (llmstxt.org), from the README, the index of the manual and docs/inside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "llms.txt"
INDEXES = (DOCS / "en" / "README.md", DOCS / "inside" / "README.md")
HEADING = re.compile(r"^##? (.+)$")
ROW = re.compile(r"^\| \[(.+?)\]\((\S+?)\) \| (.+) \|$")
LINK = re.compile(r"\]\((\S+?)\)")


def index() -> str:
    """Write the file: what clusterctl is, then each page with when to read it."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    summary = " ".join(readme.split("\n\n")[2].split())
    chinese = "The manual in Chinese: [docs/zh](zh/README.md)."
    found = [line for file in INDEXES for line in pages(file)]
    return "\n".join(["# clusterctl", "", f"> {summary}", "", chinese, "", *agents(), *found]) + "\n"


def agents() -> list[str]:
    """Name what a coding agent reads first."""
    return [
        "## For coding agents",
        "",
        "- [SKILL.md](../SKILL.md): commands, files, exit codes, failures, what never to do",
    ]


def pages(file: Path) -> Iterator[str]:
    """Yield the pages of an index, each group below its heading; sections of pages are left out."""
    heading = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if found := HEADING.match(line):
            heading = found[1]
        elif (row := ROW.match(line)) and "#" not in row[2]:
            title, target, when = row.groups()
            yield from ("", f"## {heading}", "") if heading else ()
            yield f"- [{title}]({moved(target, file)}): {LINK.sub(lambda one: f']({moved(one[1], file)})', when)}"
            heading = ""


def moved(target: str, file: Path) -> str:
    """Return the path of a page from this folder."""
    return os.path.relpath(file.parent / target, DOCS)
