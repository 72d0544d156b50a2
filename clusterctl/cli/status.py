"""The verb `status`: one run, node by node."""

from __future__ import annotations

import click

from clusterctl.cli.loading import load_inventory
from clusterctl.cli.options import Settings, shared_options
from clusterctl.console.jsontext import json_text


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("-w", "--watch", is_flag=True, help="Show every change, until the run ends.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the state as JSON; with -w a line for each change."
)
@shared_options
def status(settings: Settings, run: str | None, watch: bool, as_json: bool) -> int:
    """Show one run, node by node and rank by rank; RUN is an id or its beginning, by default your newest."""
    from clusterctl.cli.connecting import open_cluster
    from clusterctl.cli.reaching import myself, reading_exit_code, tell_failures
    from clusterctl.cli.remembering import ask_runs, recall_end
    from clusterctl.cli.watching_status import watch_status
    from clusterctl.console.runs import show_status, status_to_json
    from clusterctl.plans.choose_run import choose_run

    inventory = load_inventory(settings)
    with open_cluster() as cluster:
        remembered = ask_runs(cluster, inventory.nodes, run, pulse=True, one=True)
        tell_failures(remembered.errors)
        if not remembered.answered:
            return 4
        chosen = choose_run(remembered.runs, run, myself())
        if watch:
            return watch_status(cluster, inventory.nodes, remembered, chosen, as_json=as_json)
        parts = recall_end(cluster, inventory.nodes, remembered, chosen)
    names = {node.name for node in inventory.nodes}
    if as_json:
        shown = status_to_json(chosen, parts, remembered.offsets, names)
        click.echo(json_text(shown, indent=2))
    else:
        show_status(chosen, parts, remembered.offsets, settings.command, names)
    return reading_exit_code(remembered.answered, remembered.asked)
