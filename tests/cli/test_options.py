"""Words for a script or as a command: what is not plainly that is refused, with the command that was meant."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import click
import pytest

from clusterctl.cli.context.load import Settings
from clusterctl.cli.help import RawArgumentsCommand
from clusterctl.cli.options import is_confirmed, refuse_mixed, refuse_surplus
from clusterctl.errors import UsageError


@click.group()
@click.pass_context
def root(ctx: click.Context) -> None:
    """Stand for clusterctl with an inventory."""
    ctx.obj = Settings(inventory="x.yaml")


@root.command(cls=RawArgumentsCommand)
@click.argument("job")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "values", multiple=True)
def launch(job: str, words: tuple[str, ...], values: tuple[str, ...]) -> list[str]:
    """Take a job and words for its script."""
    refuse_surplus(words, "launch")
    return [job, *values, *words]


@root.command("exec", cls=RawArgumentsCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("-v", is_flag=True)
def run(words: tuple[str, ...], v: bool) -> list[str]:
    """Take a command."""
    refuse_mixed(words, "exec")
    return [str(v), *words]


def typed(line: str) -> Sequence[str]:
    """Type a line."""
    shown: Sequence[str] = root.main(line.split(), standalone_mode=False)
    return shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("launch j.yaml", ["j.yaml"]),
        ("launch j.yaml -- a -- b", ["j.yaml", "a", "--", "b"]),
        ("launch --set a -- j.yaml b", ["j.yaml", "a", "b"]),
        ("exec -v nvidia-smi", ["True", "nvidia-smi"]),
        ("exec -- grep -v x", ["False", "grep", "-v", "x"]),
    ],
)
def test_words_in_their_place_arrive(line: str, shown: list[str]) -> None:
    """Those behind `--`, and a command behind which nothing of ours stands."""
    assert typed(line) == shown


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("launch j.yaml extra", "clusterctl -i x.yaml launch j.yaml -- extra"),
        ("launch --set a j.yaml a --set b -- c", "clusterctl -i x.yaml launch --set a j.yaml --set b -- a c"),
        ("launch j.yaml one two -- three", "clusterctl -i x.yaml launch j.yaml -- one two three"),
        ("exec grep -v x", "clusterctl -i x.yaml exec -- grep -v x"),
        ("exec hostname -v", "clusterctl -i x.yaml exec -- hostname -v"),
    ],
)
def test_words_elsewhere_are_refused(line: str, meant: str) -> None:
    """Nothing is passed on or swallowed by accident; the fix can be pasted."""
    with pytest.raises(UsageError) as refused:
        typed(line)
    assert refused.value.code == "CC-USE-092"
    assert refused.value.message.startswith("unexpected ")
    assert meant in refused.value.fix


@pytest.mark.parametrize(
    ("typed", "default", "meant"),
    [
        ("y", False, True),
        ("YES", False, True),
        ("\u662f", False, True),
        ("n", True, False),
        ("\u5426", True, False),
        ("", True, True),
        ("", False, False),
        ("maybe\nn", True, False),
    ],
)
def test_a_question_is_answered_in_either_language(
    typed: str, default: bool, meant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else is asked again."""
    monkeypatch.setattr("sys.stdin", StringIO(f"{typed}\n"))
    assert is_confirmed("Stop it?", default=default) is meant
