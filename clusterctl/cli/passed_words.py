"""Words that are passed on, to a script or as a command: those behind `--`; of the others nothing is guessed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from clusterctl.cli.options import Settings
from clusterctl.errors import UsageError

CODE = "CC-USE-092"
_WORDS = "clusterctl.words"


class PassesWords(click.Command):
    """A command that remembers its words as they were typed; click takes the `--` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then do as every command does."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)


def refuse_surplus(words: Sequence[str], verb: str) -> None:
    """Refuse words for a script that do not stand behind `--`: they may be options misspelled, or files."""
    before, behind = _split(_typed())
    surplus = list(words[: len(words) - len(behind)])
    if not surplus:
        return
    kept = list(before)
    for word in reversed(surplus):
        del kept[len(kept) - 1 - kept[::-1].index(word)]
    raise UsageError(
        f"{verb} does not expect {shlex.join(surplus)}",
        code=CODE,
        fix=f"for the script: {_command()} {verb} {shlex.join([*kept, '--', *surplus, *behind])}",
    )


def refuse_mixed(command: Sequence[str], verb: str) -> None:
    """Refuse a command without `--` behind whose first word an option of ours stands: it may be the command's own."""
    typed = list(_typed())
    if "--" in typed or not command or typed[-len(command) :] == list(command):
        return
    start = typed.index(command[0])
    told = f"{verb} {shlex.join([*typed[:start], '--', *typed[start:]])}"
    raise UsageError(
        f"{shlex.join(typed[start:])}: whose options are these?",
        code=CODE,
        fix=f"the command's: {_command()} {told}; options of clusterctl stand before the --",
    )


def _typed() -> tuple[str, ...]:
    words: tuple[str, ...] = click.get_current_context().meta[_WORDS]
    return words


def _command() -> str:
    """Give what stood before the verb."""
    parent = click.get_current_context().parent
    settings = parent.find_object(Settings) if parent is not None else None
    return (settings or Settings()).command


def _split(typed: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Part the words at the first `--`."""
    if "--" not in typed:
        return typed, ()
    place = typed.index("--")
    return typed[:place], typed[place + 1 :]
