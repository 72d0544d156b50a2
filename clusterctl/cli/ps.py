"""The verb `ps`: which runs are on the nodes?"""

from __future__ import annotations

import click

from clusterctl.cli.loading import load_inventory
from clusterctl.cli.options import Settings, shared_options
from clusterctl.console.jsontext import json_text


@click.command()
@click.option("--orphans", is_flag=True, help="List instead the processes that crashed runs have left.")
@click.option("--json", "as_json", is_flag=True, help="Write the runs as JSON.")
@shared_options
def ps(settings: Settings, orphans: bool, as_json: bool) -> int:
    """List the runs that the nodes remember: your own first, then everybody else's, newest first."""
    from clusterctl.cli.connecting import open_cluster
    from clusterctl.cli.reaching import myself, reading_exit_code, tell_failures
    from clusterctl.cli.remembering import ask_runs
    from clusterctl.console.runs import runs_to_json, show_runs
    from clusterctl.plans.choose_run import own_first

    inventory = load_inventory(settings)
    with open_cluster() as cluster:
        if orphans:
            from clusterctl.cli.orphans import list_orphans

            return list_orphans(cluster, inventory.nodes, as_json=as_json)
        remembered = ask_runs(cluster, inventory.nodes, None)
    tell_failures(remembered.errors)
    me = myself()
    runs = own_first(remembered.runs, me)
    if as_json:
        click.echo(json_text(runs_to_json(runs, me), indent=2))
    elif remembered.answered:
        show_runs(runs, me)
    return reading_exit_code(remembered.answered, remembered.asked)
