"""The tables of troubles: what one sees, its code, what to do, in English and in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from clusterctl.codes.entry import Entry
from clusterctl.codes.lookup import FAMILIES, entries, family_of
from clusterctl.plans.runs.verdict import render_command
from clusterctl.translation import language

FINDINGS = Path(__file__).parent / "en" / "findings.md"
NAMED = {"node": "gpu02", "rank": "3", "module": "timm", "path": "/data/images", "run": "RUN"}
FIRST = "JOB"  # most who look something up have a text of torch or NCCL in front of them


def families() -> list[tuple[str, str]]:
    """Give every family with its heading; what ranks say comes first."""
    colon = ": " if language() == "en" else "\uff1a"
    found = [(family, f"{title.here}{colon}CC-{family}") for family, title in FAMILIES.items()]
    return sorted(found, key=lambda one: one[0] != FIRST)


def rows(family: str, heading: str) -> Iterator[tuple[str, str, str]]:
    """Give the rows of one family: what one sees, the code with its link, what to do."""
    sections = set(re.findall(r"^### (\S+)$", FINDINGS.read_text(encoding="utf-8"), re.MULTILINE))
    table = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    for code in sorted(code for code in entries() if family_of(code) == family):
        see, do = words(code, entries()[code])
        anchor = code.lower() if code in sections else table
        seen = [*map(literal, entries()[code].texts), see]
        yield "<br>".join(seen), f"[`{code}`](findings.md#{anchor})", do


def words(code: str, entry: Entry) -> tuple[str, str]:
    """Give what a code means and what to do."""
    see, do = plain(entry.title.here), plain(entry.do.here)
    command = render_command(code, NAMED)
    return see, f"{do}<br>`{command}`" if command else do


def literal(text: str) -> str:
    """Write what is printed as code."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def plain(text: str) -> str:
    """Keep Markdown from reading signs of its own outside of code."""
    pieces = text.split("`")
    return "`".join(
        re.sub(r"([*_<])", r"\\\1", piece) if n % 2 == 0 else piece for n, piece in enumerate(pieces)
    )
