"""The verb `sync`: the code alone, ahead of a launch."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory, load_job
from clusterctl.cli.options import Settings, big_option, set_option, shared_options, with_node_options


@click.command()
@click.argument("job_file", metavar="JOB.yaml")
@with_node_options
@set_option
@big_option
@click.option("--json", "as_json", is_flag=True, help="Write what every node has as JSON.")
@shared_options
def sync(
    settings: Settings,
    job_file: str,
    pattern: str | None,
    exclude: str | None,
    overrides: tuple[str, ...],
    big: bool,
    as_json: bool,
) -> int:
    """Send a job's code to the nodes and start nothing.

    The next launch then has nothing to send, save what changes until then. The contents go to the store that
    all runs share; no run is made. Every node proves what it holds by the hash of the tree.
    """
    from clusterctl.cli.actions.sync import sync_code
    from clusterctl.cli.context.code import read_code
    from clusterctl.plans.launch.placement import plan_placement

    inventory = load_inventory(settings)
    job = load_job(job_file, overrides, ())
    members = plan_placement(inventory, job, pattern=pattern, exclude=exclude)
    return sync_code(job, members, read_code(job, big=big), as_json=as_json)
