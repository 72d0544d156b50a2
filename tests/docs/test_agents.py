"""What coding agents read is true: verbs, exit codes and JSON keys of `SKILL.md`, pages of `docs/llms.txt`.

Its commands, files and links are tested with those of all pages: test_examples, test_links, test_generated.
"""

from __future__ import annotations

import json
import re

import pytest
from facts import keys_of
from pages import ROOT

SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "en" / "command-line.md").read_text(encoding="utf-8")
KEYS = re.findall(r"^\| (`[^|]*--json`[^|]*) \| (`.*`) \|$", SKILL, re.MULTILINE)
EXIT_CODE = re.compile(r"^\| (\d+) \|", re.MULTILINE)


def test_exit_codes_are_those_of_the_command_line() -> None:
    """The same numbers as on the page of the command line, which are those of errors.py."""
    assert EXIT_CODE.findall(SKILL) == EXIT_CODE.findall(COMMAND_LINE)


@pytest.mark.parametrize(("commands", "keys"), KEYS)
def test_json_keys_exist(commands: str, keys: str) -> None:
    """Each key is in the JSON of the verb on the page of the command line, which is compared with the code."""
    verb = re.findall(r"`(\w+) --json`", commands)[0]
    section = COMMAND_LINE.partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    document = json.loads(re.findall(r"^```json\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[0])

    assert {f".{key}" for key in re.findall(r"`([\w.]+)`", keys)} - keys_of(document) == set()


def test_the_front_matter_is_short() -> None:
    """A name and one description, as programs that load skills expect them."""
    front = re.match(r"---\nname: clusterctl\ndescription: (.+)\n---\n", SKILL)

    assert front is not None and len(front[1]) < 1024


def test_every_page_is_listed() -> None:
    """`docs/llms.txt` names each page of the manual."""
    listed = set(re.findall(r"\((en/[\w-]+\.md)\)", (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")))

    assert listed == {f"en/{page.name}" for page in (ROOT / "docs" / "en").glob("*.md")} - {"en/README.md"}
