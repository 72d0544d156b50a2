"""The verb `top`: how busy the nodes are, now."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Seconds, Settings, shared_options, with_node_options


@click.command()
@with_node_options
@click.option(
    "--interval",
    type=Seconds(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Show one look and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write JSON: with --once a document, else a line per look."
)
@shared_options
def top(
    settings: Settings, pattern: str | None, exclude: str | None, interval: float, once: bool, as_json: bool
) -> int:
    """Show how busy the nodes are: GPUs, processors, memory, and what the training NICs carry.

    One connection per node stays open while it runs; nothing is installed or left there. A node that falls silent
    is shown as such, and asked again. On a small screen nodes that look alike share a row. Ctrl-C ends it.
    """
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(load_inventory(settings), pattern, exclude)
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        from clusterctl.cli.actions.top import UtilizationMonitor  # loads while the connections are made

        monitor = UtilizationMonitor(cluster, nodes, interval, as_json=as_json)
        return monitor.show_once() if once else monitor.show_live()
