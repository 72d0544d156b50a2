"""The verbs `explain` and `completion`: what this machine answers by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from clusterctl.cli.completion import SHELLS, complete_code, completion_script
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import json_option, shared_options
from clusterctl.console.text import json_text
from clusterctl.errors import UsageError
from clusterctl.translation import tr

EXAMPLES_FILE = Path(__file__).parents[1] / "examples.json"


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl explain CC-NET-003", "one code"),
        ("clusterctl explain job-41", "the same, short"),
        ("clusterctl explain NET", "all codes of a family"),
        ("clusterctl explain torch missing", "codes whose texts have these words"),
    ],
)
@click.argument("words", metavar="[CODE|WORD...]", nargs=-1, shell_complete=complete_code)
@json_option("Write it as JSON.")
@shared_options
def explain(
    settings: Settings,  # noqa: ARG001 - shared by all verbs
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain an error code: what it means, why it matters, an example and how to fix it.

    CODE may be short: `net-3` is CC-NET-003. A family, such as NET, lists its codes; without CODE all are listed. Other
    words, also a part of an error message, list the codes whose texts have all of them. Needs no inventory and no
    network.
    """
    from clusterctl.console.findings import explanation_to_json, render_codes, render_explanation
    from clusterctl.console.terminal import stdout
    from clusterctl.plans import explain as explaining

    code, titles = _find_code(words)
    if "-" in code:
        manual = explaining.parse_manual(json.loads(EXAMPLES_FILE.read_text(encoding="utf-8")))
        explanation = explaining.explain(code, manual)
        if as_json:
            click.echo(json_text(explanation_to_json(explanation), indent=2))
        else:
            render_explanation(stdout(), explanation)
        return
    if as_json:
        click.echo(json_text({"schema": 1, "codes": titles}, indent=2))
    else:
        render_codes(stdout(), titles, code)


def _find_code(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the code or the family that was named, and the codes to list: all, those of a family, or those found."""
    from clusterctl.plans import explain as explaining

    titles = explaining.list_titles()
    if not words:
        return "", titles
    try:
        code = explaining.find_code(" ".join(words))
    except UsageError:
        found = explaining.search_texts([part for word in words for part in word.split()])
        if not found:
            raise
        return next(iter(found)) if len(found) == 1 else "", found
    return code, {name: text for name, text in titles.items() if code == name.split("-")[1]}


@click.command(
    "help",
    cls=VerbCommand,
    examples=[("clusterctl help launch", ""), ("clusterctl help lab up", "")],
)
@click.argument("verbs", metavar="[VERB]...", nargs=-1)
@shared_options
def help_(settings: Settings, verbs: tuple[str, ...]) -> None:  # noqa: ARG001 - shared by all verbs
    """Show the help of a verb, as `VERB --help` does; without one the list of verbs."""
    context = click.get_current_context().find_root()
    for verb in verbs:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(tr("{verb!r} has no verbs of its own", verb=context.info_name), context)
        name, command, _ = group.resolve_command(context, [verb])
        assert command is not None
        context = command.context_class(command, info_name=name, parent=context)
    click.echo(context.get_help())


@click.command(
    cls=VerbCommand,
    examples=[
        ('eval "$(clusterctl completion bash)"', "in ~/.bashrc"),
        ('eval "$(clusterctl completion zsh)"', "in ~/.zshrc, after compinit"),
        ("clusterctl completion fish | source", "in ~/.config/fish/config.fish"),
    ],
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(SHELLS))
@shared_options
def completion(settings: Settings, shell: str) -> None:  # noqa: ARG001 - shared by all verbs
    """Print the completion script for your shell.

    Completes verbs, options, job files, nodes of the inventory, codes, and the runs that this machine has seen. It uses
    only files of this machine and never waits for a node.
    """
    click.echo(completion_script(click.get_current_context().find_root().command, shell))
