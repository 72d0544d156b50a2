"""The tables of troubles: what one sees, its code, what to do (`codes.yaml`), in English and in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from book import HEADING, written
from ruamel.yaml import YAML

from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.known_errors import GUIDANCE

HERE = Path(__file__).parent
CODES = HERE / "codes.yaml"
FINDINGS = HERE / "en" / "findings.md"
NAMED = {"node": "gpu02", "rank": "3", "module": "timm", "path": "/data/images", "run": "RUN"}
FIRST = "JOB"  # most who look something up have a text of torch or NCCL in front of them


@cache
def codes() -> dict[str, dict[str, Any]]:
    """Read what is written for every code."""
    read: dict[str, dict[str, Any]] = YAML(typ="safe").load(CODES.read_text(encoding="utf-8"))
    return read


def families() -> list[tuple[str, str]]:
    """Give every family with its heading, in the order of the page of findings; what ranks say comes first."""
    page = FINDINGS.read_text(encoding="utf-8")
    found = [(family, f"{words}: CC-{family}") for words, family in HEADING.findall(page)]
    return sorted(found, key=lambda one: one[0] != FIRST)


def rows(family: str, heading: str, language: str) -> Iterator[tuple[str, str, str]]:
    """Give the rows of one family: what one sees, the code with its link, what to do."""
    meanings, told = english(), codes()
    page = "findings.md" if language == "en" else "../en/findings.md"
    sections = set(re.findall(r"^### (\S+)$", FINDINGS.read_text(encoding="utf-8"), re.MULTILINE))
    table = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    for code in sorted(code for code in meanings if code.startswith(f"CC-{family}-")):
        entry = told.get(code, {})
        see, do = words(entry, *meanings[code], language)
        anchor = code.lower() if code in sections else table
        seen = [*map(literal, entry.get("texts", [])), see]
        yield "<br>".join(seen), f"[`{code}`]({page}#{anchor})", do


def words(
    entry: Mapping[str, Any], meaning: str, advice: str, command: str, language: str
) -> tuple[str, str]:
    """Say in one language what a code means and what to do."""
    own = entry if language == "en" else entry.get("zh", {})
    do = plain(own.get("do") or advice)
    return plain(own.get("see") or meaning), f"{do}<br>`{command}`" if command else do


def does() -> dict[str, str]:
    """Give what to do about each code that brings no advice of its own."""
    return {code: entry["do"] for code, entry in codes().items() if "do" in entry}


@cache
def english() -> dict[str, tuple[str, str, str]]:
    """Give for every code its title or meaning, and where it has them the advice and the command."""
    found = {code: (title_of(text), "", "") for code, text in written(FINDINGS.read_text(encoding="utf-8"))}
    found |= {code: (one.title, "", "") for code, one in all_checks().items()}
    return found | {
        code: (one.meaning, one.advice, one.render_command(NAMED)) for code, one in GUIDANCE.items()
    }


def title_of(text: str) -> str:
    """Take of an error's explanation what names it."""
    bold = re.match(r"\*\*(.+?)\*\*", text)
    return (bold[1] if bold else text).replace("\\_", "_")


def literal(text: str) -> str:
    """Write what is printed as code."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def plain(text: str) -> str:
    """Keep Markdown from reading signs of its own outside of code."""
    pieces = text.split("`")
    return "`".join(
        re.sub(r"([*_<])", r"\\\1", piece) if n % 2 == 0 else piece for n, piece in enumerate(pieces)
    )
