"""The verb `stop`: end a run on every node."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_chosen
from clusterctl.cli.options import Settings, shared_options


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "--grace", type=click.FloatRange(min=0), help="Seconds between TERM and KILL; default: the job's grace."
)
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Do not ask for confirmation, even if no run is named or another user started it.",
)
@shared_options
def stop(settings: Settings, run: str | None, grace: float | None, yes: bool) -> int:
    """End every process of a run on every node, and say what was ended.

    RUN is an id or its beginning; without one your only live run, after a question. No other run and no other user is
    touched.
    """
    from clusterctl.cli.actions.find_runs import ask_runs
    from clusterctl.cli.actions.stop import choose_to_stop, confirm_stop, stop_run
    from clusterctl.cli.context.nodes import open_cluster, tell_failures
    from clusterctl.plans.runs.selection import is_live, may_hold

    inventory, place = load_chosen(settings)
    with open_cluster() as cluster:
        remembered = ask_runs(cluster, inventory.nodes, run, one=True)
        tell_failures(remembered.errors)
        if not remembered.answered:
            return 4
        chosen = choose_to_stop(remembered.runs, run, place.label)
        parts = remembered.runs.get(chosen, {})
        if not yes:
            confirm_stop(chosen, parts, named=run is not None, place=place.label, command=settings.command)
        nodes = [node for node in inventory.nodes if may_hold(node.name, parts, remembered.pythons)]
        silent = [name for name, part in parts.items() if part is None]
        lived, ended = is_live(parts), [name for name, part in parts.items() if part and not part.live]
        return stop_run(cluster, nodes, silent, remembered.pythons, chosen, grace, lived=lived, ended=ended)
