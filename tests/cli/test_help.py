"""`--help`: groups, examples, options reported once; the verb that a wrong word stands for, and former names."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile

import click
import pytest
from click.testing import CliRunner
from verbs_below import commands

from clusterctl.cli.help import LAB_WORDS, OTHER_WORDS, VERB_GROUPS, VERBS, SharedOption, VerbCommand
from clusterctl.cli.main import root
from clusterctl.cli.main import run as main
from clusterctl.specs.job.parse import parse_job

EVALUATED = re.compile(r'eval "\$\((.*)\)"')


LEAVES = [(path, command) for path, command in commands(root) if not isinstance(command, click.Group)]


def test_every_verb_stands_in_one_group() -> None:
    """No verb is listed twice, and all are."""
    assert sum(map(len, VERB_GROUPS.values())) == len(VERBS)
    shown = CliRunner().invoke(root, ["--help"], terminal_width=80).output
    assert [line.split()[0] for line in shown.splitlines() if line[2:].split(" ")[0] in VERBS] == list(VERBS)


@pytest.mark.parametrize("width", [80, 120])
def test_help_fits_the_terminal(width: int) -> None:
    """No line is longer than the terminal is wide, except a single word."""
    for path, _ in commands(root):
        shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=width)
        assert shown.exit_code == 0, shown.output
        assert [line for line in shown.output.splitlines() if len(line) > width] == [], path


@pytest.mark.parametrize(
    "path", [path for path, command in commands(root) if isinstance(command, click.Group)]
)
def test_lines_of_verbs_are_whole(path: tuple[str, ...]) -> None:
    """click cuts the line of a verb that is too long, and ends it with dots."""
    shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=80).output
    assert [line for line in shown.splitlines()[1:] if line.endswith("...")] == []


def test_numbers_of_options_have_short_names() -> None:
    """click's own name of a bounded number is INTEGER RANGE."""
    for path, _ in commands(root):
        assert "RANGE" not in CliRunner().invoke(root, [*path, "--help"]).output, path


def test_examples_are_commands_that_the_parser_takes() -> None:
    """Every example is parsed by the verb that it calls; a renamed option would be seen here."""
    leaves = dict(LEAVES)
    for path, command in LEAVES:
        assert isinstance(command, VerbCommand), path
        assert len(command.examples) >= 2 or path[0] == "lab", path
        for text, _ in command.examples:
            words = list(takewhile(lambda word: word != "|", shlex.split(EVALUATED.sub(r"\1", text))))
            called, start = find_verb(words)
            assert called[0] == path[0], text
            assert words[0] == "clusterctl", text
            root.make_context("clusterctl", [*words[1:start], called[0]])
            leaves[called].make_context(" ".join(called), words[start + len(called) :])


def find_verb(words: list[str]) -> tuple[tuple[str, ...], int]:
    """Find the verb that a command line calls, and the index where it stands."""
    calls = [
        (path, start)
        for start in range(len(words))
        for path, _ in LEAVES
        if tuple(words[start : start + len(path)]) == path
    ]
    return min(calls, key=lambda call: call[1])


def test_shared_options_are_described_once() -> None:
    """The root's help describes them; the others only name them."""
    shared = [option for option in root.params if isinstance(option, SharedOption)]
    assert len(shared) == 6
    for path, command in LEAVES:
        shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=80).output
        takes_them = any(isinstance(option, SharedOption) for option in command.params)
        assert [option.help for option in shared if option.help and option.help in shown] == [], path
        assert ("Every verb takes -i FILE" in shown) == takes_them, path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        *((word, verb) for verb, words in OTHER_WORDS.items() for word in words),
        *((f"lab {word}", f"lab {verb}") for verb, words in LAB_WORDS.items() for word in words),
        ("lunch", "launch"),
        ("statsu", "status"),
    ],
)
def test_words_of_other_tools_lead_to_the_verb(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the verb, which exists."""
    assert main(words.split()) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err
    assert meant.startswith("--") or tuple(meant.split()) in {path for path, _ in commands(root)}


@pytest.mark.parametrize("words", ["launch", "lab up", "inventory", ""])
def test_help_is_a_verb(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As in git, the verb follows it; it prints what `--help` does."""
    assert main(["help", *words.split()]) == 0
    shown = capsys.readouterr().out
    assert main([*words.split(), "--help"]) == 0
    assert shown == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("man ps", "did you mean 'help ps'?"),
        ("help lanch", "did you mean 'launch'?"),
        ("help ps x", "no verbs of its"),
    ],
)
def test_help_of_what_is_no_verb(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest, or why there is none."""
    assert main(words.split()) == 2
    assert meant in capsys.readouterr().err


FORMER = [
    (["logs"], ["--node", "1", "-f"], {"pattern": "1", "follow": True}),
    (["logs"], ["--node=gpu01"], {"pattern": "gpu01"}),
    (
        ["launch"],
        ["job.yaml", "--no-check", "--", "--no-check"],
        {"ignore_checks": True, "script_args": ("--no-check",)},
    ),
    (["forward"], ["a1b2", "6006", "--node", "gpu02"], {"run": "a1b2", "port": "6006", "node": "gpu02"}),
    (
        ["ssh"],
        ["gpu01", "a1b2"],
        {"node": "gpu01", "former_run": "a1b2"},
    ),  # a word: see test_ssh_names_its_run
    (["stop"], ["--warm", "gpu01"], {"warm": True, "run": "gpu01"}),
    (["ps"], ["--orphans"], {"orphans": True}),
    (["keys", "push"], ["--nodes", "gpu05", "-y"], {"pattern": "gpu05", "yes": True}),
    (["inventory", "import"], ["hostfile", "-o", "x.yaml"], {"file": "hostfile", "output": "x.yaml"}),
    (["inventory", "discover"], ["gpu01"], {"hosts": ("gpu01",)}),
]


def find(path: list[str]) -> tuple[click.Command, click.Context]:
    """Find a command by its words."""
    command: click.Command = root
    context = click.Context(root)
    for word in path:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=word)
    return command, context


def is_former(path: list[str]) -> bool:
    """Return whether the verb itself is a former one."""
    return path in (["keys", "push"], ["inventory", "import"], ["inventory", "discover"])


OPTIONS = [one[:2] for one in FORMER if not is_former(one[0]) and one[0] != ["ssh"]]


@pytest.mark.parametrize(("path", "words", "params"), FORMER)
def test_a_former_spelling_is_read(path: list[str], words: list[str], params: dict[str, object]) -> None:
    """As the option or the verb of today."""
    command, context = find(path)
    read = command.make_context(path[-1], list(words), parent=context.parent).params

    assert {key: read[key] for key in params} == params


@pytest.mark.parametrize("path", [path for path, _, _ in FORMER if is_former(path)])
def test_no_list_of_verbs_has_it(path: list[str]) -> None:
    """Neither the verb nor, where only a part of it is former, that part."""
    group, context = find(path[:-1])
    assert isinstance(group, click.Group)
    assert path[0] not in root.list_commands(context) or path[-1] not in group.list_commands(context)


@pytest.mark.parametrize(("path", "words"), OPTIONS)
def test_no_help_shows_it(path: list[str], words: list[str]) -> None:
    """The option."""
    command, context = find(path)
    former = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--"}
    assert former
    assert not former & set(re.findall(r"--[a-z-]+", command.get_help(context)))


def test_ssh_names_its_run_by_an_option() -> None:
    """As `cp` does; a second word is still read."""
    command, context = find(["ssh"])
    usage = command.get_usage(context)
    assert "RUN" not in usage
    assert "--run RUN" in command.get_help(context)


def test_two_groups_of_verbs() -> None:
    """The thirteen of every day first."""
    assert list(next(iter(VERB_GROUPS.values()))) == [
        "init", "check", "launch", "logs", "status", "ps", "stop", "pull", "top", "diagnose", "report", "ui", "lab",
    ]  # fmt: skip
    assert len(VERBS) == 27


def test_a_result_that_had_another_name() -> None:
    """In `when` of a job file; records of old runs are read by the nodes: tests/node/verbs/test_format_1.py."""
    text = "name: j\nscript: t.py\non_end: {command: [echo], when: [cancelled, failed]}\n"
    on_end = parse_job(text, "job.yaml").on_end
    assert on_end is not None
    assert on_end.when == ("stopped", "failed")
