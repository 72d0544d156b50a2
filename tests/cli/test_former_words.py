"""What earlier versions called otherwise still works, and no help shows it."""

from __future__ import annotations

import click
import pytest

from clusterctl.cli.help import FORMER_VERBS, VERB_GROUPS, VERBS
from clusterctl.cli.main import root
from clusterctl.protocol.end_record import parse_record
from clusterctl.protocol.untrusted import Untrusted
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
    (["ssh"], ["gpu01", "a1b2"], {"node": "gpu01", "former_run": "a1b2"}),
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


@pytest.mark.parametrize(("path", "words", "params"), FORMER)
def test_a_former_spelling_is_read(path: list[str], words: list[str], params: dict[str, object]) -> None:
    """As the option or the verb of today."""
    command, context = find(path)
    read = command.make_context(path[-1], list(words), parent=context.parent).params

    assert {key: read[key] for key in params} == params


@pytest.mark.parametrize(("path", "words"), [one[:2] for one in FORMER])
def test_no_help_shows_it(path: list[str], words: list[str]) -> None:
    """Neither the option nor the verb."""
    group, context = find(path[:-1])
    assert isinstance(group, click.Group)
    if path[0] in FORMER_VERBS or (path[0] == "inventory" and path[-1] != "show"):
        assert path[-1] not in group.list_commands(context) or path[0] not in VERBS
        return
    command, context = find(path)
    text = command.get_help(context)
    assert [word for word in words if word.startswith("--") and f"{word} " in f"{text} "] == [
        "--"
    ] * words.count("--")


def test_two_groups_of_verbs() -> None:
    """The thirteen of every day first."""
    assert list(next(iter(VERB_GROUPS.values()))) == [
        "init", "check", "launch", "logs", "status", "ps", "stop", "pull", "top", "diagnose", "report", "ui", "lab",
    ]  # fmt: skip
    assert len(VERBS) == 26


def test_a_state_and_a_result_that_had_another_name() -> None:
    """In the record of an old run, and in `when` of a job file."""
    parts = [{"node": "gpu01", "state": "CANCELLED"}, {"node": "gpu02", "state": "FAILED"}]
    record = parse_record(Untrusted({"parts": parts}))
    assert record is not None
    assert [part.state for part in record.parts] == ["STOPPED", "FAILED"]
    text = "name: j\nscript: t.py\non_end: {command: [echo], when: [cancelled, failed]}\n"
    on_end = parse_job(text, "job.yaml").on_end
    assert on_end is not None
    assert on_end.when == ("stopped", "failed")
