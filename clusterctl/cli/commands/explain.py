"""The verbs `explain` and `completion`: what this machine answers by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import SHELLS, complete_code, completion_script, json_option, shared_options
from clusterctl.console.documents.output import write_document
from clusterctl.console.text import json_text
from clusterctl.translation import tr

EXAMPLES_FILE = Path(__file__).parents[1] / "examples.json"


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl explain CC-NET-003", "one code"),
        ("clusterctl explain job-41", "the same, short"),
        ("clusterctl explain NET", "all codes of a family"),
        ("clusterctl explain torch missing", "codes whose texts have these words"),
        ("clusterctl explain job.restart", "a key of a job file or an inventory"),
    ],
)
@click.argument("words", metavar="[CODE|KEY|WORD...]", nargs=-1, shell_complete=complete_code)
@json_option("Write it as JSON.")
@shared_options
def explain(
    settings: Settings,  # noqa: ARG001 - shared by all verbs
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain an error code: what it means, why it matters, an example and how to fix it; or a key of a file.

    CODE may be short: `net-3` is CC-NET-003. A family, such as NET, lists its codes; without CODE all are listed. KEY
    is a path such as job.restart.max or inventory.nic; `job` lists all keys. Other words, also a part of an error
    message, list the codes whose texts have all of them. Needs no inventory and no network.
    """
    from clusterctl.console.explanation import (
        explanation_to_json,
        key_to_json,
        render_codes,
        render_explanation,
        render_keys,
    )
    from clusterctl.console.terminal import stdout
    from clusterctl.plans import explain as explaining

    if len(words) == 1 and (keys := explaining.choose_keys(words[0])):
        if as_json:
            write_document({"schema": 1, "keys": [key_to_json(key) for key in keys]})
        else:
            render_keys(stdout(), keys)
        return
    code, titles = explaining.choose_code(words)
    if "-" in code:
        manual = json.loads(EXAMPLES_FILE.read_text(encoding="utf-8"))
        explanation = explaining.explain(code, manual)
        if as_json:
            write_document(explanation_to_json(explanation))
        else:
            render_explanation(stdout(), explanation)
        return
    if as_json:
        write_document({"schema": 1, "codes": titles})
    else:
        render_codes(stdout(), titles, code)


@click.command(
    "help",
    cls=VerbCommand,
    examples=[
        ("clusterctl help launch", ""),
        ("clusterctl help lab up", ""),
        ("clusterctl help json status", "the JSON Schema of `status --json`"),
    ],
)
@click.argument("verbs", metavar="[json] [VERB]...", nargs=-1)
@shared_options
def help_(settings: Settings, verbs: tuple[str, ...]) -> None:  # noqa: ARG001 - shared by all verbs
    """Show the help of a verb, as `VERB --help` does; without one the list of verbs.

    `help json VERB` prints the JSON Schema of what the verb writes with --json; `help json` lists these verbs.
    """
    context = click.get_current_context().find_root()
    if verbs == ("json",):
        _list_json_verbs(context)
    elif verbs[:1] == ("json",):
        _print_json_schema(" ".join(verbs[1:]))
    else:
        click.echo(_find_context(context, verbs).get_help())


def _find_context(context: click.Context, verbs: Sequence[str]) -> click.Context:
    """Return the context of the command to which these words lead."""
    for verb in verbs:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(tr("{verb!r} has no verbs of its own", verb=context.info_name), context)
        name, command, _ = group.resolve_command(context, [verb])
        assert command is not None
        context = command.context_class(command, info_name=name, parent=context)
    return context


def _list_json_verbs(context: click.Context) -> None:
    """Print which verbs write JSON, and what that is."""
    from clusterctl.console.documents.schema import ERROR, VERBS

    rows = [(verb, _describe_json(context, verb)) for verb in VERBS if verb != ERROR]
    formatter = context.make_formatter()
    formatter.write_text(
        tr("`clusterctl help json VERB` prints the JSON Schema of what VERB writes with --json.")
    )
    with formatter.section(tr("Verbs")):
        formatter.write_dl([*rows, (ERROR, tr("What each of them writes where an error ends it."))])
    click.echo(formatter.getvalue(), nl=False)


def _describe_json(context: click.Context, verb: str) -> str:
    """Return the help of a verb's `--json`."""
    command = _find_context(context, verb.split()).command
    options = [param for param in command.params if isinstance(param, click.Option)]
    return next(tr(option.help or "") for option in options if "--json" in option.opts)


def _print_json_schema(verb: str) -> None:
    """Print the JSON Schema of what a verb writes."""
    from clusterctl.console.documents.schema import VERBS

    if verb not in VERBS:
        verbs = ", ".join(VERBS)
        raise click.UsageError(
            tr("no JSON Schema for {verb!r}; available: {verbs}", verb=verb, verbs=verbs),
            click.get_current_context(),
        )
    from clusterctl.console.documents.schema import make_schema

    click.echo(json_text(make_schema(verb), indent=2))


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
