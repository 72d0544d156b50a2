"""The verb `attach`: follow a run as `launch` does."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Settings, shared_options


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write NDJSON: log lines, and the verdict last.")
@shared_options
def attach(settings: Settings, run: str | None, as_json: bool) -> int:
    """Follow a run to its verdict, from any machine with the inventory, as `launch` does.

    RUN is an id or its beginning; by default your newest live run, else your newest. While you are attached to a run
    of your own, the failure of one node stops all. Somebody else's run must be named and is only watched. Ctrl-C
    leaves the run alone.
    """
    from clusterctl.cli.actions.attach import RunOutput, attach_run

    inventory = load_inventory(settings)
    return attach_run(inventory, run, RunOutput(as_json, settings.command))
