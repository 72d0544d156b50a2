"""The verb `top`: how busy the nodes are."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import Seconds, json_option, shared_options, with_node_options


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl top", "every 2 s"),
        ("clusterctl top --nodes gpu[01-04] --interval 5", ""),
        ("clusterctl top --once --json", "one sample as JSON"),
    ],
)
@with_node_options
@click.option(
    "--interval",
    type=Seconds(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two samples.",
)
@click.option("--once", is_flag=True, help="Show one sample and exit.")
@json_option("Write JSON: with --once one document, else one line per sample.")
@shared_options
def top(
    settings: Settings, pattern: str | None, exclude: str | None, interval: float, once: bool, as_json: bool
) -> int:
    """Show how busy the nodes are: GPUs, CPUs, memory and the training NICs.

    Keeps one connection per node and installs nothing. A silent node is marked and retried. On a small screen similar
    nodes share a row. Keys: q quits, s sorts by use, g hides single GPUs.
    """
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.plans.launch.placement import choose_nodes

    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is not None:
        from clusterctl.cli.actions.find_runs import with_live_nodes

        inventory = with_live_nodes(inventory)
    nodes = choose_nodes(inventory, pattern, exclude)
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        from clusterctl.cli.actions.top import UtilizationMonitor  # loads while the connections are made

        monitor = UtilizationMonitor(cluster, inventory, nodes, interval, as_json=as_json)
        return monitor.show_once() if once else monitor.show_live()
