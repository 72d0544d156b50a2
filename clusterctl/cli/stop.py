"""The verb `stop`: end a run on every node."""

from __future__ import annotations

import click

from clusterctl.cli.loading import load_inventory
from clusterctl.cli.options import Settings, shared_options


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "--grace", type=click.FloatRange(min=0), help="Seconds between TERM and KILL; default: the job's grace."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, also when the run is somebody else's.")
@shared_options
def stop(settings: Settings, run: str | None, grace: float | None, yes: bool) -> int:
    """End every process of a run on every node, and say what was ended.

    RUN is an id or its beginning; by default your only live run. No other run and no other user is touched.
    """
    from clusterctl.cli.connecting import open_cluster
    from clusterctl.cli.reaching import myself, tell_failures
    from clusterctl.cli.remembering import ask_runs
    from clusterctl.cli.stopping import stop_run
    from clusterctl.console.runs import describe_launch
    from clusterctl.plans.choose_run import choose_live_run, is_live, may_hold, owner_of

    inventory = load_inventory(settings)
    with open_cluster() as cluster:
        remembered = ask_runs(cluster, inventory.nodes, run, one=True)
        tell_failures(remembered.errors)
        if not remembered.answered:
            return 4
        chosen = choose_live_run(remembered.runs, run, myself())
        parts = remembered.runs.get(chosen, {})
        if not yes and not parts:
            _confirm(f"no node remembers {chosen}, so nobody knows whose it was")
        if not yes and is_live(parts) and not owner_of(parts).is_same(myself()):
            _confirm(f"{chosen} was {describe_launch(parts)}")
        nodes = [node for node in inventory.nodes if may_hold(node.name, parts, remembered.pythons)]
        silent = [name for name, part in parts.items() if part is None]
        lived = is_live(parts)
        return stop_run(cluster, nodes, silent, remembered.pythons, chosen, grace, lived=lived)


def _confirm(why: str) -> None:
    """Never end somebody else's run by accident."""
    import sys

    from clusterctl.errors import UsageError

    if sys.stdin.isatty() and click.confirm(f"{why}. Stop it?", err=True):
        return
    raise UsageError(why, code="CC-USE-025", fix="add -y to stop it all the same")
