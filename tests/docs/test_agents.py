"""What coding agents read is true: verbs, exit codes and JSON keys of `SKILL.md`, pages of `docs/llms.txt`.

Its commands, files and links are tested with those of all pages: test_examples, test_links, test_generated.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from facts import keys_of
from pages import ROOT

DOCS = ROOT / "docs"
SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")
COMMAND_LINE = (DOCS / "en" / "command-line.md").read_text(encoding="utf-8")
KEYS = re.findall(r"^\| (`[^|]*--json`[^|]*) \| (`.*`) \|$", SKILL, re.MULTILINE)
EXIT_CODE = re.compile(r"^\| (\d+) \|", re.MULTILINE)


def test_exit_codes_are_those_of_the_command_line() -> None:
    """SKILL.md has the exit codes of the page of the command line, which are those of errors.py."""
    assert EXIT_CODE.findall(SKILL) == EXIT_CODE.findall(COMMAND_LINE)


def sample(verb: str) -> Any:
    """Return the sample of a verb's JSON: the block below a paragraph that begins with the verb."""
    texts = COMMAND_LINE + (DOCS / "en" / "reference" / "verbs.md").read_text(encoding="utf-8")
    for paragraph, block in pairwise(texts.split("\n\n")):
        if re.match(rf"`{verb}( --json)?`", paragraph) and block.startswith("```json\n"):
            return json.loads(block.removeprefix("```json").removesuffix("```"))
    raise AssertionError(f"no sample of {verb}")


@pytest.mark.parametrize(("commands", "keys"), KEYS)
def test_json_keys_exist(commands: str, keys: str) -> None:
    """Each key that SKILL.md names is in the sample of the verb's JSON, which is compared with the code."""
    verb = re.findall(r"`(\w+) --json`", commands)[0]

    assert {f".{key}" for key in re.findall(r"`([\w.]+)`", keys)} - keys_of(sample(verb)) == set()
