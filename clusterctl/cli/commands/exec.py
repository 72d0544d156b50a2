"""The verb `exec`: one command on every node."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import Settings, load_inventory
from clusterctl.cli.help import RawArgumentsCommand
from clusterctl.cli.options import json_option, refuse_mixed, shared_options, with_node_options


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl exec -- nvidia-smi -L", "a program with its arguments"),
        ("clusterctl exec -- 'df -h ~ | tail -1'", "a shell line"),
        ("clusterctl exec --nodes gpu02 -- free -g", "one node"),
    ],
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@with_node_options
@click.option("--no-fold", is_flag=True, help="Print each line as it arrives, with the name of its node.")
@json_option("Write the output as JSON; with --no-fold as NDJSON.")
@shared_options
def exec(  # noqa: A001 - the name of the verb
    settings: Settings,
    command: tuple[str, ...],
    pattern: str | None,
    exclude: str | None,
    no_fold: bool,
    as_json: bool,
) -> int:
    """Run a command on every node and show equal output once.

    Several words are a program and its arguments, passed unchanged. A single word with a space or a shell character is
    run by the node's sh. The inventory's `activate` runs first, so the command sees the environment of a job. Ctrl-C
    stops the command and everything it started. Processes that it leaves in the background keep running, as with ssh,
    and are listed.
    """
    from clusterctl.cli.actions.exec import run_everywhere
    from clusterctl.plans.launch.placement import choose_nodes

    refuse_mixed(command, "exec")
    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is not None:
        from clusterctl.cli.actions.find_runs import with_live_nodes

        inventory = with_live_nodes(inventory)
    nodes = choose_nodes(inventory, pattern, exclude)
    return run_everywhere(nodes, command, fold=not no_fold, as_json=as_json)
