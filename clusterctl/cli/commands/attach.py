"""The verb `attach`: follow a run as `launch` does."""

from __future__ import annotations

import click

from clusterctl.cli.completion import complete_run
from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import json_option, shared_options


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl attach", "your newest live run"),
        ("clusterctl attach train-2026", "the run with this prefix"),
        ("clusterctl attach --json", "NDJSON, the result last"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@json_option("Write NDJSON: log lines, then the result.")
@shared_options
def attach(settings: Settings, run: str | None, as_json: bool) -> int:
    """Follow a run until it ends, as `launch` does; from any machine that has the inventory.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest live run, else your newest run.
    While you are attached to your own run, the failure of one node stops all nodes. A run of another user must be
    named and is only shown. Ctrl-C does not stop the run.
    """
    from clusterctl.cli.actions.attach import attach_run
    from clusterctl.cli.context.run_output import RunOutput

    inventory = load_inventory(settings, on_slurm=True)
    output = RunOutput(as_json, settings.command)
    if inventory.slurm is None:
        return attach_run(inventory, run, output)
    from clusterctl.cli.slurm.follow import find_queued

    return attach_run(inventory, run, output, find_queued)
