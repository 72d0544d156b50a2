"""The verbs with their options and examples, as `--help` shows them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from tables import anchor, table

from clusterctl.cli.help import VERBS, VerbCommand, own_options
from clusterctl.cli.main import root
from clusterctl.cli.options import Number
from clusterctl.translation import language, tr

SHARED = frozenset(("inventory", "lab", "machines", "verbose", "quiet", "color", "version"))
WIDTH = 118
UNBROKEN: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def verb_list(_: str) -> str:
    """Write every verb that does something, and which of them write JSON."""
    rows = (
        (f"`{path}`", "`--json`" if any("--json" in one.opts for one in command.params) else "", tr(line))
        for path, command, line in leaves()
    )
    return table((tr("verb"), "", tr("what it does")), rows)


def leaves() -> Iterator[tuple[str, click.Command, str]]:
    """Yield each verb that does something, those below `lab` and the like too, with its line; no former spelling."""
    for name, (_, line) in VERBS.items():
        command = root.get_command(click.Context(root), name)
        assert command is not None, name
        below = command.commands if isinstance(command, click.Group) else {}
        found = [(f"{name} {word}", one, one.get_short_help_str(200)) for word, one in below.items()]
        yield from (one for one in found or [(name, command, line)] if not one[1].hidden)


def verbs(_: str) -> str:
    """Write a list of all verbs, then a section about each."""
    rows = ((f"[`{path}`](#{anchor(path)})", tr(line)) for path, _, line in leaves())
    sections = (f"## {path}\n\n{verb(path, command)}" for path, command, _ in leaves())
    return "\n".join([table((tr("verb"), tr("what it does")), rows), *sections])


def verb(path: str, command: click.Command) -> str:
    """Write one verb: how it is called, what it says of itself, its own options, examples."""
    ctx = click.Context(command, info_name=f"clusterctl {path}")
    usage = " ".join(["clusterctl", path, *command.collect_usage_pieces(ctx)])
    parts = [
        f"```\n{usage}\n```\n",
        *help_of(command),
        options(own_options(command, ctx)),
        *examples(command),
    ]
    return "\n".join(filter(None, parts))


def help_of(command: click.Command) -> Iterator[str]:
    """Write what a verb says of itself, a paragraph a time."""
    for one in re.split(r"\n\s*\n", (command.help or "").strip()):
        yield textwrap.fill(tr(" ".join(one.split())), WIDTH, **UNBROKEN) + "\n"


def examples(command: click.Command) -> Iterator[str]:
    """Write the examples of `--help`, each with what it is for."""
    found = command.examples if isinstance(command, VerbCommand) else ()
    if found:
        width = max(len(text) for text, _ in found)
        lines = (f"{text:<{width}}  # {tr(comment)}" if comment else text for text, comment in found)
        yield "```bash\n" + "\n".join(lines) + "\n```\n"


def shared(_: str) -> str:
    """Write the options that all verbs share."""
    return options(option for option in root.params if option.name in SHARED)


def options(params: Iterable[click.Parameter]) -> str:
    """Write options as a table; nothing if there are none."""
    rows = [row(param) for param in params if isinstance(param, click.Option) and not param.hidden]
    return table((tr("option"), tr("meaning")), rows) if rows else ""


def row(option: click.Option) -> tuple[str, str]:
    """Write one option with what it takes, its default and its limits."""
    value = "" if option.is_flag else f" `{value_of(option)}`"
    notes = []
    if option.show_default and option.default is not None:
        notes.append(tr("Default: `{}`.").format(option.default))
    if isinstance(option.type, Number):
        notes.append(tr("{} or more.").format(f"{option.type.least:g}"))
    meaning = (" " if language() == "en" else "").join([tr(option.help or ""), *notes])
    return ", ".join(f"`{name}`" for name in option.opts) + value, meaning


def value_of(option: click.Option) -> str:
    """Write what an option takes."""
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or "N"
