"""The verb `completion`: what a shell needs to complete verbs, options, runs, nodes, codes and files."""

from __future__ import annotations

import click

from clusterctl.cli.completion import SHELLS, completion_script
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import shared_options


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
