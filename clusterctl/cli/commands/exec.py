"""The verb `exec`: one command on every node."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import (
    RawArgumentsCommand,
    Settings,
    refuse_mixed,
    shared_options,
    with_node_options,
)


@click.command(cls=RawArgumentsCommand)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@with_node_options
@click.option("--no-fold", is_flag=True, help="Write every line at once, with its node's name before it.")
@click.option("--json", "as_json", is_flag=True, help="Write the answers as JSON; with --no-fold as NDJSON.")
@shared_options
def exec(  # noqa: A001 - the name of the verb
    settings: Settings,
    command: tuple[str, ...],
    pattern: str | None,
    exclude: str | None,
    no_fold: bool,
    as_json: bool,
) -> int:
    """Run a command on every node and show equal answers once.

    Several words are a program and its arguments, which arrive as they are. A single word with a space or a
    sign of the shell in it is a line for the node's sh. The inventory's `activate` comes first, so that the
    command sees what a job would see. Ctrl-C ends the command everywhere, with all that it started; what it leaves
    in the background by ending stays there, as with ssh, and is named.
    """
    from clusterctl.cli.actions.exec import run_everywhere
    from clusterctl.plans.launch.placement import choose_nodes

    refuse_mixed(command, "exec")
    nodes = choose_nodes(load_inventory(settings), pattern, exclude)
    return run_everywhere(nodes, command, fold=not no_fold, as_json=as_json)
