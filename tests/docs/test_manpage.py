"""The man page: it names every verb and option, and groff reads it without a warning."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from clusterctl.cli.main import root

PAGE = Path(__file__).parents[2] / "docs" / "man" / "clusterctl.1"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Give every verb with the words that lead to it."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def rendered(width: int) -> str:
    """Give the page as a terminal shows it."""
    command = ["groff", "-man", "-Tascii", "-ww", "-P-cbou", f"-rLL={width}n", str(PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_a_terminal_shows_every_verb_and_option() -> None:
    """Without a warning of groff, and with nothing of its own language left over."""
    shown = rendered(200)
    for path, command in commands(root):
        assert f"clusterctl {path} [OPTIONS]" in shown
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        names = [name for option in options for name in option.opts]
        assert [name for name in names if name not in shown] == []
    for word in ("EXIT STATUS", "CLUSTERCTL_LANG", "known_hosts", "a bug in clusterctl"):
        assert word in shown
    assert "\\f" not in shown and "`" not in shown


def test_the_other_name_leads_to_the_page() -> None:
    """`man cctl`."""
    assert PAGE.with_name("cctl.1").read_text() == ".so man1/clusterctl.1\n"
