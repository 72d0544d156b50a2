"""Every command that is printed to be pasted is, for a shell, exactly the words that it was made of."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from failures import fail

from clusterctl.cli.context.load import Settings
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.client.openssh import render_ssh_command
from clusterctl.console.run.verdict import render_cause
from clusterctl.plans.checks.framework import exclude_option, ssh_to
from clusterctl.plans.notify import RunEnd, render_message
from clusterctl.plans.runs.verdict import Verdict, advised_command, cause_to_json, conclude
from clusterctl.protocol.known_errors import SymptomMatch, all_symptoms
from clusterctl.protocol.root_cause import Cause, Failure, find_cause
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.text import command_line

HOSTILE = [
    "x; touch /tmp/P #",
    "$(id)",
    "a\nb",
    "it's",
    "`id`",
    "--help me",
    "=ls",
    "",
    "a b",
    "\\",
    "!!",
    "${IFS}x",
]
ROOT = Path(__file__).parents[2] / "clusterctl"
GONE = "RuntimeError: Connection closed by peer"


def words_after(lines: list[str], label: str) -> list[str]:
    """Read the command behind a label as a shell does."""
    (line,) = [line for line in lines if line.strip().startswith(label)]
    return shlex.split(line.strip().removeprefix(label))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_cause_leads_to_its_logs(name: str) -> None:
    """Run and node come from what nodes tell."""
    silent = Failure(name, None, 1, None, 2.0, ("oops",))
    other = replace(silent, node=f"{name}2", time=3.0)
    of_rank = Cause(replace(silent, rank=3), (other,))
    logs = ["clusterctl", "-i", "my lab.yaml", "logs", short_id(name)]
    command = Settings(inventory="my lab.yaml").command
    for cause, where in ((Cause(silent, (other,)), ["--nodes", name]), (of_rank, ["--rank", "3"])):
        lines = render_cause(cause, name, command)
        assert words_after(lines, "next  ") == [*logs, *where]


@pytest.mark.parametrize("name", HOSTILE)
def test_every_symptoms_command_keeps_its_words(name: str) -> None:
    """With a hostile run, node, path: as many words as with plain ones, and the same but for the name."""
    for symptom in all_symptoms():
        hostile = Failure(name, 3, 1, None, 1.0)
        commands = [
            advised_command(
                Cause(
                    replace(hostile, node=node),
                    (),
                    symptom_match=SymptomMatch(symptom, "", {"path": path, "module": "m"}),
                ),
                node,
            )
            for node, path in ((name, name), ("PLAIN", "PLAIN"))
        ]
        shown, plain = map(shlex.split, commands)
        assert shown == [name if word == "PLAIN" else word for word in plain], symptom.code


@pytest.mark.parametrize("name", HOSTILE)
def test_hints_that_name_a_run(name: str) -> None:
    """How to come back to a run, what a notification says, what the own ssh would be."""
    report = RunOutput(False, "clusterctl")
    commands = [shlex.split(line) for line in report.describe_commands(name).split("\n  ")]
    node = Node(name="n", index=0, host=name, ssh=Ssh(user="ann", key=f"/k/{name}", jump=f"b{name}"))

    assert [words[:3] for words in commands] == [
        ["clusterctl", verb, short_id(name)] for verb in ("attach", "status", "stop")
    ]
    assert shlex.split(report.hint("stop", name)) == ["clusterctl", "stop", short_id(name)]
    assert shlex.split(render_ssh_command(node)) == [
        "ssh",
        "-i",
        f"/k/{name}",
        "-J",
        f"b{name}",
        f"ann@{name}",
    ]
    assert shlex.split(ssh_to(node, name))[-2:] == [f"ann@{name}", name]
    assert shlex.split(exclude_option(["gpu01", name]))[0] == "--exclude"
    assert shlex.split(command_line("clusterctl", name)) == ["clusterctl", name]


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\n" not in name])
def test_a_notification_leads_to_the_run(name: str) -> None:
    """Its last line is the command; line breaks are taken out of every line of a message."""
    failed = fail(0, ("Traceback (most recent call last):", GONE), 1.0)
    for cause, end in ((find_cause([failed], None), ["logs", name, "--rank", "0"]), (None, ["status", name])):
        ended = RunEnd("j", "c", 1.0, "clusterctl", Verdict(name, "FAILED", {}, cause, {}, {}))
        command = render_message(ended).rpartition("\nclusterctl ")[2]
        assert shlex.split(command) == end


def test_a_home_is_left_to_the_shell_that_pastes() -> None:
    """`~/` of a key file is expanded there, and nothing else is."""
    assert command_line("ssh-add", "~/.ssh/my key", "~ann/x") == "ssh-add ~/'.ssh/my key' '~ann/x'"


def test_what_a_record_tells_of_strangers_is_left_out() -> None:
    """A node that invents another one, or a hub, brings no name onto the screen that the inventory does not have."""
    from clusterctl.plans.runs.state import parse_state

    evil = "x; touch /tmp/PASTED #"
    failure = {"rank": 0, "exit": 1, "signal": None, "time": 1.0, "tracebacks": [], "tail": ["oops"]}
    shown = [
        {"node": name, "node_rank": rank, "state": "FAILED", "reason": "", "time": 2.0, "failures": [one]}
        for rank, (name, one) in enumerate([(evil, failure), ("gpu01", {**failure, "rank": 1, "time": 9.0})])
    ]
    record = {"run": "r", "hub": evil, "whole": True, "stop": None, "attempts": [{}] * 9, "parts": shown}
    state = {"run": "r", "node": "gpu01", "nnodes": 1, "state": "FAILED"}
    invented = parse_state(Untrusted({**state, "gang": {**record, "parts": shown[:1]}}))
    verdicts = [
        conclude("r", {"gpu01": parse_state(Untrusted({**state, "gang": record}))}, ["gpu01", "gpu02"]),
        conclude("r", {"gpu01": invented, "gpu02": parse_state(Untrusted({**state, "gang": record}))}, []),
    ]

    for verdict in verdicts:
        assert verdict is not None
        assert verdict.cause is not None
        assert (verdict.cause.failure.node, verdict.cause.consequences) == ("gpu01", ())
        assert evil not in verdict.node_states
        assert evil not in str(cause_to_json(verdict.cause, "r"))
    alone = conclude("r", {"gpu01": invented}, [])
    assert alone is not None
    assert evil not in str(alone)


COMMAND = re.compile(
    r"(?:^|[`(]|: )clusterctl [^`]*$|`(?:ssh|pip|getent|chmod)[\w-]* [^`]*$|\b(?:ssh|pip)[\w-]* -[^`]*$"
)


def holes(folder: str) -> Iterator[str]:
    """Find texts in which a value stands in a command, unquoted, after the word that begins it."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                before = ""
                for part in node.values:
                    if isinstance(part, ast.Constant):
                        before += str(part.value)
                    elif COMMAND.search(before):
                        yield f"{file.relative_to(ROOT)}:{part.lineno}: {before}"
                        break
                    else:
                        before += "VALUE"


@pytest.mark.parametrize("folder", ["console", "cli", "plans", "client"])
def test_no_value_is_put_into_a_command_by_hand(folder: str) -> None:
    """They all go through command_line, which quotes each word."""
    numbers = ("clusterctl lab up -n", "clusterctl lab up --gpus")  # counts of our own
    safe = (
        "plans/explain.py",
        "console/explanation.py",
        "console/documents/schema.py",
    )  # codes of our own
    assert [
        hole for hole in holes(folder) if not hole.startswith(safe) and not any(n in hole for n in numbers)
    ] == []
