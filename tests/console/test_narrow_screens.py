"""No line is wider than a terminal of 80 columns, in either language; what is pasted stays whole, for a shell too."""

from __future__ import annotations

import ast
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from failures import fail
from rich.cells import cell_len
from rich.console import Console

from clusterctl.cli.context.run_output import RunOutput
from clusterctl.cli.context.settings import Settings
from clusterctl.client.openssh import render_ssh_command
from clusterctl.client.rpc.cluster import Answers
from clusterctl.codes.lookup import entries
from clusterctl.console.explanation import render_explanation
from clusterctl.console.inventory import print_inventory
from clusterctl.console.run import hang
from clusterctl.console.run.hang import show_diagnosis, show_gpus
from clusterctl.console.run.verdict import render_cause
from clusterctl.console.terminal import make_table
from clusterctl.console.text import ItemsCell
from clusterctl.errors import NodeError
from clusterctl.plans.checks.framework import exclude_option, ssh_to
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import judge
from clusterctl.plans.explain import explain
from clusterctl.plans.notify import RunEnd, render_message
from clusterctl.plans.runs.verdict import Verdict, advised_command, cause_to_json, conclude
from clusterctl.protocol.known_errors import SymptomMatch, all_symptoms
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.root_cause import Cause, Failure, find_cause
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Inventory, Node, Ssh
from clusterctl.specs.text import command_line
from clusterctl.translation import Language, use_language

COLUMNS = 80


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> Iterator[Language]:
    """Use both languages."""
    use_language(request.param)
    yield request.param
    use_language("en")


def screen() -> Console:
    """Make a terminal of 80 columns."""
    return Console(file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system=None, highlight=False)


def lines_of(console: Console) -> list[str]:
    """Return the lines that a console has printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.usefixtures("language")
def test_prose_that_begins_with_the_name_of_a_program_is_wrapped() -> None:
    """`pip shows one version ...` is no command; those of a fix stay on one line."""
    wide = []
    for code in entries():
        console = screen()
        explanation = explain(code, {"examples": {}, "happens": {}})
        render_explanation(console, explanation)
        lines = lines_of(console)[1:]  # below the title, which is to be copied
        pasted = {explanation.command or "clusterctl explain"}
        wide += [line for line in lines if cell_len(line) > COLUMNS and not any(map(line.count, pasted))]
    assert wide == []


@pytest.fixture
def waiting() -> list[RankEvidence]:
    """Three ranks that wait for another one: a table of 101 columns."""
    entry = Entry(4, None, "all_reduce", "[[1]]", "Float", done=False, age=95.0)
    group = GroupRecord("0", "default_pg", (), (entry,))
    waits, loads = Frame("train.py", 25, "train_step"), Frame("train.py", 8, "load_next_batch")
    ranks = [
        RankEvidence(n, f"gpu0{n + 1}", process="S", stack="s", frames=(waits,), groups=(group,))
        for n in range(3)
    ]
    return [
        *ranks,
        RankEvidence(
            3, "gpu04", process="S", stack="s", frames=(loads,), groups=(replace(group, entries=()),)
        ),
    ]


@pytest.mark.usefixtures("language")
def test_a_diagnosis_fits(waiting: list[RankEvidence], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sentence, the table of ranks and the GPUs; no row is padded beyond the screen."""
    console = screen()
    monkeypatch.setattr(hang, "stdout", lambda: console)
    nodes = {rank.node: NodeEvidence(rank.node, (rank,), 0.1) for rank in waiting}
    answers = Answers(nodes, {name: NodeError("CC-RUN-004", node=name) for name in nodes})

    show_diagnosis(judge(waiting, (), 4), waiting, answers, "clusterctl --lab practice", with_stacks=False)
    show_gpus({"gpu01": [GpuUsage(index=n, busy=100, memory_used=81000, memory=81559) for n in range(8)]})

    lines = lines_of(console)
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    assert any("load_next_batch()" in line for line in lines)


@pytest.mark.usefixtures("language")
def test_the_inventory_fits_with_what_all_nodes_share_above_it() -> None:
    """No heading and no name is broken."""
    ssh = Ssh(user="root", proxy_command="nc %h %p")
    nodes = tuple(
        Node(
            name=f"gpu{n:02}",
            index=n,
            host=f"10.77.0.{n}",
            ip=f"10.77.0.{n}",
            ssh=ssh,
            nic=(f"enp{n}s0f0",),
            python="/home/me/projects/training/.venv/bin/python",
        )
        for n in range(2)
    )
    console = screen()
    print_inventory(console, Inventory(cluster="lab-a", file="f", nodes=nodes))

    lines = lines_of(console)
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    assert any("node_rank" in line for line in lines)
    assert sum("/home/me/projects/training/.venv/bin/python" in line for line in lines) == 1


@pytest.mark.parametrize("width", [24, 40, 80])
def test_the_state_of_a_rank_is_not_broken(width: int) -> None:
    """`r3 退出码 1` stays in one line of its cell."""
    items = [f"r{n} 退出码 1" for n in range(4)]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    table = make_table("RANK")
    table.add_row(ItemsCell(items))
    console.print(table)

    assert sum(line.count(item) for line in lines_of(console) for item in items) == len(items)
    assert all(cell_len(line) <= width for line in lines_of(console))


@pytest.mark.usefixtures("language")
def test_an_inventory_that_does_not_fit_as_a_table_becomes_records() -> None:
    """Values stay whole, so that they can be copied: no name is broken in the middle of a word."""
    nodes = tuple(
        Node(
            name=f"gpu-rack-{index}",
            index=index,
            host=f"node{index}.cluster.example.org",
            nic=(f"enp{index}s0f0", f"enp{index}s0f1"),
            python=f"/data/home{index}/alice/miniconda3/envs/train/bin/python",
            ssh=Ssh(user="alice", port=2200 + index, jump="login.example.org"),
        )
        for index in range(2)
    )
    console = screen()

    print_inventory(console, Inventory(cluster="lab-a", file="f", nodes=nodes))

    lines = lines_of(console)
    assert "0  gpu-rack-0" in lines and "1  gpu-rack-1" in lines
    assert any(line.endswith("/data/home1/alice/miniconda3/envs/train/bin/python") for line in lines)
    assert any("alice@node1.cluster.example.org:2201" in line for line in lines)


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
