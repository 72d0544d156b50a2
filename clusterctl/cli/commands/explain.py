"""The verbs `explain` and `completion`: what this machine answers by itself."""

from __future__ import annotations

import json
from pathlib import Path

import click

from clusterctl.cli.completion import SHELLS, complete_code, completion_script
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import json_option, shared_options
from clusterctl.console.text import json_text

EXAMPLES_FILE = Path(__file__).parents[1] / "examples.json"


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl explain CC-NET-003", "one code"),
        ("clusterctl explain job-41", "the same, short"),
        ("clusterctl explain NET", "all codes of a family"),
    ],
)
@click.argument("word", metavar="[CODE]", required=False, shell_complete=complete_code)
@json_option("Write it as JSON.")
@shared_options
def explain(
    settings: Settings,  # noqa: ARG001 - shared by all verbs
    word: str | None,
    as_json: bool,
) -> None:
    """Explain an error code: what it means, why it matters, an example and how to fix it.

    CODE may be short: `net-3` is CC-NET-003. A family, such as NET, lists its codes; without CODE all are listed.
    Needs no inventory and no network.
    """
    from clusterctl.console.findings import explanation_to_json, render_codes, render_explanation
    from clusterctl.console.terminal import stdout
    from clusterctl.plans import explain as explaining

    code = explaining.find_code(word) if word else ""
    if "-" in code:
        manual = explaining.parse_manual(json.loads(EXAMPLES_FILE.read_text(encoding="utf-8")))
        explanation = explaining.explain(code, manual)
        if as_json:
            click.echo(json_text(explanation_to_json(explanation), indent=2))
        else:
            render_explanation(stdout(), explanation)
        return
    titles = {
        name: text for name, text in explaining.list_titles().items() if code in ("", name.split("-")[1])
    }
    if as_json:
        click.echo(json_text({"schema": 1, "codes": titles}, indent=2))
    else:
        render_codes(stdout(), titles, code)


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
