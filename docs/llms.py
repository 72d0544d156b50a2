"""The list of pages for language models (llmstxt.org), from the README and the index of the manual."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
FILE = DOCS / "llms.txt"
ROW = re.compile(r"^\| \[(.+?)\]\((\S+?)\) \| (.+) \|$")


def index() -> str:
    """Write the file: what clusterctl is, then each page with when to read it."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    summary = " ".join(readme.split("\n\n")[2].split())
    chinese = "The same pages in Chinese: [docs/zh](zh/README.md)."
    return "\n".join(["# clusterctl", "", f"> {summary}", "", chinese, "", *agents(), *pages()]) + "\n"


def agents() -> list[str]:
    """Name what a coding agent reads first."""
    return [
        "## For coding agents",
        "",
        "- [SKILL.md](../SKILL.md): commands, files, exit codes, failures, what never to do",
    ]


def pages() -> Iterator[str]:
    """Give the headings and rows of the English index."""
    for line in (DOCS / "en" / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            yield from ("", line, "")
        elif found := ROW.match(line):
            title, target, when = found.groups()
            yield f"- [{title}]({moved(target)}): {re.sub(LINK, linked, when)}"


LINK = re.compile(r"\]\((\S+?)\)")


def linked(found: re.Match[str]) -> str:
    """Write a link of the index as one from this folder."""
    return f"]({moved(found[1])})"


def moved(target: str) -> str:
    """Give the path of a page from this folder."""
    return target.removeprefix("../") if target.startswith("../") else f"en/{target}"
