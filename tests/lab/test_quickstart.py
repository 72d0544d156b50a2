"""The practice cluster of the page Start: its commands, in its order, print what the page shows."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import COMMAND, STUBBED
from pages import ROOT, blocks_below
from terminal import act_on, what_remains

PAGE, HEADING = ROOT / "docs" / "en" / "start.md", "No machines yet: a practice cluster"
COMMANDS = re.compile(r"(?:\. .*\n)?((?:clusterctl .*\n)+)")
PLAYBOOK = Path("playbooks") / "digits-ddp"
IN_NO_TIME = """
import argparse, os, time
from pathlib import Path

{options}

time.sleep(2)  # as long as torch takes to load: the stand-in for torchrun does not wait for the other nodes
epochs = parse_options().epochs
for epoch in range(epochs):
    if os.environ["RANK"] == "0":
        print(f"epoch {{epoch + 1}}/{{epochs}}  loss 1.0  accuracy 90.00%  0.5 s", flush=True)
    time.sleep(0.5)
"""
CODES = {"-- --epochs 50": 130, "-- --epochs many": 1, "clusterctl check": 3}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
VOLATILE = (
    (r"from /\S+(?=,)", "from PLACE"),
    (r"\S*/(?=[\w.-])", ""),  # where a file lies
    (r"digits-ddp-\d{8}T\d{6}-[0-9a-f]{4}", "RUN"),
    (r"(clusterctl (?:attach|status|stop|logs|pull)) [0-9a-f]{4}\b", r"\1 RUN"),
    (r"\S+@\S+", "WHO"),
    (r"(?<=parameter hash )[0-9a-f]+", "HASH"),
    (r"rank \d+ (?:failed|exited with \d+)", "rank ENDED"),
    (r"^\s*also .*", "also"),  # who had failed, too, before the stop came
    (r"\d[\d.]*\s?(?:[kM]B|bytes|s|min)\b", "N"),
    (r"\d[\d.]*", "N"),
    ("─+", "─"),
    (r"\s+", " "),
)


@dataclass(frozen=True)
class Shell:
    """Where the page's commands are typed: a folder with the playbook, and labs of its own."""

    folder: Path

    def run(self, line: str, *deeds: tuple[str, Callable[[int], object]]) -> tuple[int, str]:
        """Type a line on a terminal and wait; gives its exit code and all that it wrote, without colours.

        When the text of a deed has come, it is done to the terminal.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CLUSTERCTL_")}
        environment |= {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TERM": "xterm-256color",
            "COLUMNS": "140",
        }
        words = [*COMMAND, *shlex.split(line)[1:]]
        code, written = act_on(["env", "-C", str(self.folder), *words], environment, deeds)
        return code, "\n".join(what_remains(COLOUR.sub("", written)))

    def learn_in_no_time(self) -> None:
        """Put a script in the place of the playbook's that has its options, and neither learns nor needs torch."""
        script, job = self.folder / PLAYBOOK / "train.py", self.folder / PLAYBOOK / "job.yaml"
        source = script.read_text(encoding="utf-8")
        parse = next(one for one in ast.parse(source).body if getattr(one, "name", "") == "parse_options")
        script.write_text(IN_NO_TIME.format(options=ast.get_source_segment(source, parse)), encoding="utf-8")
        variables = "".join(f"  {name}: {value}\n" for name, value in STUBBED.items())
        text = job.read_text(encoding="utf-8")
        job.write_text(text.replace("env:\n", f"env:\n{variables}", 1), encoding="utf-8")

    def interrupt(self, line: str, after: str) -> tuple[int, str]:
        """The same with Ctrl-C when a text has come."""
        return self.run(line, (after, lambda terminal: os.write(terminal, b"\x03")))


@pytest.fixture
def shell(namespaces: None, place: Path) -> Iterator[Shell]:  # noqa: ARG001 - the page needs them
    """The playbook with few images, so that its epochs are short; the labs go whatever happens."""
    folder = place / PLAYBOOK
    shutil.copytree(ROOT / PLAYBOOK, folder)
    job = (folder / "job.yaml").read_text(encoding="utf-8")
    few = job.replace("  - --epochs\n", "  - --samples\n  - 300\n  - --epochs\n", 1)
    (folder / "job.yaml").write_text(few, encoding="utf-8")
    made = Shell(place)
    yield made
    made.run("clusterctl lab down --all")


def shown_commands() -> list[tuple[list[str], str]]:
    """Return the commands of each block of the section, and what the block after it shows that they print."""
    texts = blocks_below(PAGE, HEADING)
    return [
        (found[1].splitlines(), "" if COMMANDS.fullmatch(after) else after)
        for text, after in zip(texts, [*texts[1:], ""], strict=True)
        if (found := COMMANDS.fullmatch(text))
    ]


def missing(shown: str, written: str) -> list[str]:
    """Give the lines of the page that were not written; numbers, names of runs and places may be others."""
    lines = {steady(line) for line in written.splitlines()}
    return [
        line
        for line in shown.splitlines()
        if not re.fullmatch(r"|\.\.\.|\^C|\$ .*", line.strip())
        and not any(re.fullmatch(as_pattern(line), found) for found in lines)
    ]


def as_pattern(line: str) -> str:
    """Make a pattern of a line of the page, in which ... stands for anything."""
    return re.escape(steady(line.replace("...", "ANYTHING"))).replace("ANYTHING", ".*")


def steady(line: str) -> str:
    """Take out what differs each time."""
    for pattern, word in VOLATILE:
        line = re.sub(pattern, word, line)
    return line.strip()


@pytest.mark.timeout(400)  # a dozen commands, one after the other
def test_the_page(shell: Shell) -> None:
    """From `lab up` to `lab down`; the first launch trains. What is lost and takes 20 s is left to other tests."""
    page = [
        (lines, shown)
        for lines, shown in shown_commands()
        if not {"heal", "power"} & set(" ".join(lines).split())
    ]
    for lines, shown in page:
        written = ""
        for line in lines:
            code, more = shell.interrupt(line, "epoch 1/50") if line.endswith(" 50") else shell.run(line)
            assert code == next((code for end, code in CODES.items() if line.endswith(end)), 0), more
            written += more
        assert missing(shown, written) == [], written
        if "SUCCEEDED after" in written:
            shell.learn_in_no_time()

    assert [lines[-1].split()[1] for lines, _ in page].count("launch") == 3
    assert list((shell.folder / "state" / "clusterctl" / "lab").iterdir()) == []
