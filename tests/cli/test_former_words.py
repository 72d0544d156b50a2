"""What earlier versions called otherwise still works, and no help shows it."""

from __future__ import annotations

import re

import click
import pytest

from clusterctl.cli.help import VERB_GROUPS, VERBS
from clusterctl.cli.main import root
from clusterctl.specs.job.parse import parse_job

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
    assert len(VERBS) == 26


def test_a_result_that_had_another_name() -> None:
    """In `when` of a job file; records of old runs are read by the nodes: tests/node/verbs/test_format_1.py."""
    text = "name: j\nscript: t.py\non_end: {command: [echo], when: [cancelled, failed]}\n"
    on_end = parse_job(text, "job.yaml").on_end
    assert on_end is not None
    assert on_end.when == ("stopped", "failed")
