"""What `clusterctl explain` knows beside the code: the manual's tables of errors, what to do, examples of the cases.

`generate.py` writes it as `clusterctl/cli/codes.json`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BOOK = ROOT / "clusterctl" / "cli" / "codes.json"
HEADING = re.compile(r"^## (.+): CC-([A-Z]+)$", re.MULTILINE)
ROW = re.compile(r"^\| `(CC-[A-Z]+-\d{3})` \| (.+) \|$", re.MULTILINE)
SECTION = re.compile(r"^### (CC-[A-Z]+-\d{3})\n\n(.+?)(?=\n#|\n<!--|\Z)", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- generated:.*?<!-- end of generated -->", re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def book(page: str, happens: dict[str, list[str]], does: dict[str, str]) -> str:
    """Render the book; `page` is the manual's page of findings, `does` what to do about each code."""
    parts = {
        "families": {family: heading for heading, family in HEADING.findall(page)},
        "errors": {code: bare(text) for code, text in written(page)},
        "examples": examples(),
        "happens": happens,
        "does": {code: bare(text) for code, text in sorted(does.items())},
    }
    return json.dumps(parts, ensure_ascii=False, indent=1) + "\n"


def written(page: str) -> Iterator[tuple[str, str]]:
    """Give the codes that are explained by hand: in a row of a table, or in a section of their own."""
    by_hand = GENERATED.sub("", page)
    yield from ROW.findall(by_hand)
    yield from ((code, " ".join(text.split())) for code, text in SECTION.findall(by_hand))


def bare(text: str) -> str:
    """Take the links and Markdown's own signs out of a cell."""
    return LINK.sub(r"\1", text).replace("\\|", "|").replace("\\_", "_").replace("**", "")


def examples() -> dict[str, dict[str, str]]:
    """Take of every check the first case in which it speaks, and what it says there."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from cases import every_case, judge  # noqa: PLC0415 - the cases are where the tests keep them

    found: dict[str, dict[str, str]] = {}
    for _, case in every_case():
        wanted = {told["code"] for told in case.get("findings", [])} - found.keys()
        spoken: Any = judge(case) if wanted else ()
        found |= {one.code: {"seen": one.evidence, "fix": one.fix} for one in spoken if one.code in wanted}
    return dict(sorted(found.items()))
