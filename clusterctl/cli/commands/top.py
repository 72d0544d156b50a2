"""`top`, `report` and `ui`: how busy the nodes are, what a run was like, and both on a page."""

from __future__ import annotations

import click

from clusterctl.cli.completion import complete_run
from clusterctl.cli.context.load import Settings, load_chosen_inventory, load_inventory
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import Seconds, WholeNumber, json_option, shared_options, with_node_options
from clusterctl.errors import UsageError
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate

MOST_RUNS = 2  # in one report


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl top", "every 2 s"),
        ("clusterctl top --nodes gpu[01-04] --interval 5", ""),
        ("clusterctl top --once --json", "one sample as JSON"),
        ("clusterctl top a017 --since 10m", "how busy a run's nodes were"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@with_node_options
@click.option(
    "--since",
    metavar="TIME",
    help="Show what was sampled of a run since then: 10m, 2h, 14:30; default with RUN: all of it.",
)
@click.option(
    "--openmetrics",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write each sample to this file, for Prometheus.",
)
@click.option(
    "--interval",
    type=Seconds(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two samples.",
)
@click.option("--once", is_flag=True, help="Show one sample and exit.")
@json_option("Write JSON: with --once one document, else one line per sample.")
@shared_options
def top(
    settings: Settings,
    run: str | None,
    pattern: str | None,
    exclude: str | None,
    since: str | None,
    openmetrics: str | None,
    interval: float,
    once: bool,
    as_json: bool,
) -> int:
    """Show how busy the nodes are: GPUs, CPUs, memory and the training NICs.

    Keeps one connection per node and installs nothing. A silent node is marked and retried. On a small screen similar
    nodes share a row. Keys: q quits, s sorts by use, g hides single GPUs. With RUN or --since: the samples of a run's
    nodes, which `report` plots.
    """
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.plans.launch.placement import choose_nodes

    inventory = load_inventory(settings, on_slurm=True)
    if run is not None or since is not None:
        if openmetrics is not None:
            command = command_line("top", "--openmetrics", openmetrics, command=settings.command)
            raise UsageError("CC-USE-092", "live", command=command)
        from clusterctl.cli.actions.monitor.top import HistoryQuery, show_run_history

        query = HistoryQuery(run, since, pattern, exclude, settings.command)
        return show_run_history(inventory, query, as_json=as_json)
    if inventory.slurm is not None:
        from clusterctl.cli.actions.find_runs import with_live_nodes

        inventory = with_live_nodes(inventory)
    nodes = choose_nodes(inventory, pattern, exclude)
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        from clusterctl.cli.actions.monitor.top import (
            UtilizationMonitor,
        )  # loads while the connections are made

        monitor = UtilizationMonitor(
            cluster, inventory, nodes, interval, as_json=as_json, openmetrics=openmetrics
        )
        return monitor.show_once() if once else monitor.show_live()


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl report", "your newest run"),
        ("clusterctl report a017 -o run.html", ""),
        ("clusterctl report a017 716d", "two runs side by side"),
    ],
)
@click.argument("runs", metavar="[RUN] [RUN2]", nargs=-1, shell_complete=complete_run)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to write it; default: the run's short id with .html.",
)
@json_option("Write where the file is as JSON.")
@shared_options
def report(settings: Settings, runs: tuple[str, ...], output: str | None, as_json: bool) -> int:
    """Write one HTML file about a run: why it ended, when what happened, and plots of all nodes.

    It needs no network and no script, and secrets are removed, so that it can be sent. With two runs it puts them
    side by side. RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    if len(runs) > MOST_RUNS:
        raise UsageError(
            "CC-USE-092",
            "option",
            words=" ".join(runs[MOST_RUNS:]),
            command=f"{settings.command} report {' '.join(runs[:MOST_RUNS])}",
        )
    from clusterctl.cli.actions.monitor.report import write_report

    return write_report(
        load_inventory(settings, on_slurm=True), runs, output, settings.command, as_json=as_json
    )


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl ui", "opens a browser"),
        ("clusterctl ui --no-open", "only prints the address"),
        ("clusterctl ui --port 8471 --no-open", "on a machine that you reach by SSH: forward this port"),
    ],
)
@click.option(
    "--port",
    metavar="N",
    type=WholeNumber(to_translate("{value!r} is not a port"), 0, 65535),
    default=0,
    help="The port on 127.0.0.1; default: any free one.",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@shared_options
def ui(settings: Settings, port: int, no_open: bool) -> int:
    """Show runs on a page in the browser: states, logs, plots, and buttons for `diagnose` and `stop`.

    Listens on 127.0.0.1 only, until Ctrl-C. The address contains a secret; with it, runs can be stopped. The nodes are
    queried only while a page is open. Without a graphical session, or over SSH, only the address is printed.
    """
    inventory, chosen = load_chosen_inventory(settings)
    from clusterctl.cli.actions.monitor.ui.serve import serve
    from clusterctl.cli.actions.monitor.ui.source import Target
    from clusterctl.cli.context.nodes import open_cluster

    with open_cluster() as cluster:
        target = Target(cluster, inventory, chosen.label, settings.command)
        return serve(target, port, opens_browser=not no_open)
