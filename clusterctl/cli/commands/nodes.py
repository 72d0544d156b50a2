"""The verbs about nodes: `top`, `ui`, `exec`, `ssh`, `forward`, `debug`, `cp` and `clean`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from clusterctl.cli.context.load import load_chosen_inventory, load_inventory, refuse_on_slurm
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import TYPED_KEY, RawArgumentsCommand, VerbCommand
from clusterctl.cli.options import (
    PORT,
    PORT_MESSAGE,
    RANK,
    Seconds,
    WholeNumber,
    complete_copy_path,
    complete_nodes,
    complete_run,
    json_option,
    refuse_mixed,
    run_argument,
    shared_options,
    with_node_options,
)
from clusterctl.errors import InvalidValueError, UsageError
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl top", "every 2 s"),
        ("clusterctl top --nodes gpu[01-04] --interval 5", ""),
        ("clusterctl top --once --json", "one sample as JSON"),
        ("clusterctl top a017 --since 10m", "how busy a run's nodes were"),
    ],
)
@run_argument
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
        ("clusterctl ui", "opens a browser"),
        ("clusterctl ui --no-open", "only prints the address"),
        ("clusterctl ui --port 8471 --no-open", "on a machine that you reach by SSH: forward this port"),
    ],
)
@click.option(
    "--port",
    metavar="N",
    type=WholeNumber(PORT_MESSAGE, 0, 65535),
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
    from clusterctl.cli.actions.monitor.ui.feed import Feed
    from clusterctl.cli.actions.monitor.ui.server import serve
    from clusterctl.cli.actions.monitor.ui.skeleton import render_page
    from clusterctl.cli.actions.monitor.ui.source import ClusterSource
    from clusterctl.cli.context.nodes import open_cluster

    with open_cluster() as cluster:
        source = ClusterSource(cluster, inventory, chosen.label, settings.command)
        return serve(Feed(source), render_page(inventory.cluster), port, opens_browser=not no_open)


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl exec -- nvidia-smi -L", "a program with its arguments"),
        ("clusterctl exec -- 'df -h ~ | tail -1'", "a shell line"),
        ("clusterctl exec --nodes gpu02 -- free -g", "one node"),
    ],
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@with_node_options
@click.option("--no-fold", is_flag=True, help="Print each line as it arrives, with the name of its node.")
@json_option("Write the output as JSON; with --no-fold as NDJSON.")
@shared_options
def exec(  # noqa: A001 - the name of the verb
    settings: Settings,
    command: tuple[str, ...],
    pattern: str | None,
    exclude: str | None,
    no_fold: bool,
    as_json: bool,
) -> int:
    """Run a command on every node and show equal output once.

    Several words are a program and its arguments, passed unchanged. A single word with a space or a shell character is
    run by the node's sh. The inventory's `activate` runs first, so the command sees the environment of a job. Ctrl-C
    stops the command and everything it started. Processes that it leaves in the background keep running, as with ssh,
    and are listed.
    """
    refuse_mixed(command, "exec")
    from clusterctl.cli.actions.remote import reachable_nodes, run_everywhere
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(reachable_nodes(settings), pattern, exclude)
    return run_everywhere(nodes, command, fold=not no_fold, as_json=as_json)


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl ssh gpu02", "a shell at home"),
        ("clusterctl ssh gpu02 --run train-2026", "in the run's code, with its environment"),
        ("clusterctl ssh gpu02 --run train-2026 -- python -i", "a program in its place"),
    ],
)
@click.argument("node", metavar="NODE", shell_complete=complete_nodes)
@click.argument("former_run", metavar="", required=False)  # as `--run`, for older scripts
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--run", metavar="RUN", shell_complete=complete_run, help="In the directory and environment of this run."
)
@shared_options
def ssh(
    settings: Settings, node: str, former_run: str | None, run: str | None, command: tuple[str, ...]
) -> int:
    """Open a shell on a node; with --run in the run's directory and environment.

    The terminal is a real one, and the exit code is the shell's. The variables are those of a live process of the run,
    its secrets included, without RANK and others that belong to one rank; of a run that has ended, those of the job.
    The shell is no part of the run: `stop` does not end it. It ends with the connection.
    """
    if run is None:
        run, command = _split_command(click.get_current_context().meta[TYPED_KEY], former_run, command)
    elif former_run is not None:  # the first word of the program
        command = (former_run, *command)
    if command:
        refuse_mixed(command, "ssh")
    from clusterctl.cli.actions.remote import open_shell

    return open_shell(settings, node, run, command)


def _split_command(
    typed: Sequence[str], run: str | None, command: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Take a word behind `--` for the program, also where RUN was left out: click has taken the `--` away."""
    if run is None or "--" not in typed or run in typed[: typed.index("--")]:
        return run, command
    return None, (run, *command)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl forward 6006", "TensorBoard on node 0 of your newest run: http://localhost:6006"),
        ("clusterctl forward train-2026 8265:9000", "another run, another port here"),
        ("clusterctl forward 5678 --nodes gpu02", "a port of another node"),
        ("clusterctl forward 8888:./jupyter.sock", "a socket that only you can use"),
    ],
    former={"--node": "--nodes"},
)
@run_argument
@click.argument("port", metavar="PORT[:LOCAL]", required=False)
@click.option(
    "--nodes",
    "node",
    metavar="NODE",
    help="The node; default: node 0 of the run.",
    shell_complete=complete_nodes,
)
@shared_options
def forward(settings: Settings, run: str | None, port: str | None, node: str | None) -> int:
    """Connect a port of this machine to a port of a run's node, until Ctrl-C.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run.

    Listens on 127.0.0.1 only, where every account of this machine can connect. With a path in place of LOCAL, such as
    6006:./sock, it listens on a Unix socket that only you can use. On the node the connection goes to the loopback
    address, else to the node's training address, so a program that listens on either is reached: TensorBoard, a
    dashboard, a debugger. Works over bastions.
    """
    if run is None:
        raise click.UsageError(tr("PORT is missing"), click.get_current_context())
    run, port = (run, port) if port is not None else (None, run)  # a single word is the port
    remote, local = _parse_target(port)
    from clusterctl.cli.actions.remote import forward_port

    return forward_port(settings, run, remote, local, node)


def _parse_target(text: str) -> tuple[int, int | str]:
    """Read PORT[:LOCAL]; the same port here if there is none; with a slash LOCAL is the path of a socket."""
    remote, colon, local = text.partition(":")
    first = PORT.convert(remote, None, click.get_current_context(silent=True))
    if "/" in local:
        return first, local
    return first, PORT.convert(local, None, click.get_current_context(silent=True)) if colon else first


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl debug", "rank 0 of your newest run"),
        ("clusterctl debug train-2026 --rank 3", "another rank"),
        ("clusterctl debug c82d --rank 1", "the run with this short id"),
    ],
)
@run_argument
@click.option(
    "--rank",
    type=RANK,
    metavar="N",
    default=0,
    help="The global rank; default: 0.",
)
@shared_options
def debug(settings: Settings, run: str | None, rank: int) -> int:
    """Type in pdb of a rank that waits at `breakpoint()`.

    The run must have been started with `launch --debug`, or `debug: true` in the job. Waits until the rank comes to a
    breakpoint. Ctrl-D or Ctrl-C leaves: the rank keeps waiting, and `debug` can be called again. `c` continues it,
    `q` ends it. The other ranks wait in their next collective until their timeout, which is that of
    init_process_group: 10 minutes with NCCL, 30 with Gloo, unless the script sets it.
    """
    from clusterctl.cli.actions.remote import debug_rank

    return debug_rank(settings, run, rank)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl cp gpu01:ckpt/last.pt .", "from a node's home directory"),
        ("clusterctl cp data.tar 'gpu[02-03]:/data/'", "to some nodes"),
        ("clusterctl cp --run train-2026 all:log.txt logs/", "of a run: logs/gpu01/log.txt, ..."),
        ("clusterctl cp gpu01:models/base all:models/", "from node to node"),
        ("clusterctl cp --gather 'all:ckpt/step-100'", "every node gets what only others have"),
    ],
)
@click.argument("paths", metavar="SRC... DST", nargs=-1, required=True, shell_complete=complete_copy_path)
@click.option(
    "--run",
    metavar="RUN",
    shell_complete=complete_run,
    help="Relative paths begin in this run's working directory; a path may begin with ${output_dir}.",
)
@click.option(
    "--gather",
    is_flag=True,
    help="No DST: every node of NODES:DIR gets the files that only other nodes have there.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist with other content.")
@json_option("Write what was copied as JSON.")
@shared_options
def cp(
    settings: Settings,
    paths: tuple[str, ...],
    run: str | None,
    gather: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Copy files and directories between this machine and nodes, or between nodes.

    NODES:PATH is a path on nodes, relative to the home directory there; NODES is as for --nodes, such as gpu01,
    gpu[02-03] or all. A path without a colon is on this machine. If DST is a directory, ends with / or there are
    several sources, copies go into it, from several nodes to DST/<node>/; else DST is the name of the copy. SRC/.
    copies what is in a directory. Files that are there already with the same content are skipped; others are
    replaced only with --overwrite. Contents go directly from node to node where the nodes reach each other. On a Slurm
    cluster NODES is the login node, or with --run nodes of the run: files are those that they share with it.
    """
    from clusterctl.cli.actions.files.copy import Copy, CopyOptions

    copy = Copy(
        load_inventory(settings, on_slurm=True), CopyOptions(run, overwrite, as_json, settings.command)
    )
    if gather:
        return copy.gather(paths)
    if len(paths) < 2:
        raise UsageError("CC-COPY-001", "one")
    return copy.copy(paths[:-1], paths[-1])


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl clean --dry-run", "list what would be removed"),
        ("clusterctl clean --keep 3 --older-than 7d", "keep 3 runs of each job, and all of this week"),
        ("clusterctl clean -y --nodes gpu02", "one node, without a question"),
        ("clusterctl clean --orphans", "only the processes that crashed runs left"),
        ("clusterctl clean --warm", "only what launch --keep-warm left"),
        ("clusterctl clean --staged --dry-run", "what the key `stage` of jobs has copied, and its size"),
    ],
)
@click.option(
    "--keep",
    metavar="N",
    type=WholeNumber(to_translate("{value!r} is not a number of runs")),
    default=10,
    show_default=True,
    help="Keep this many newest runs of each job.",
)
@click.option(
    "--older-than",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="Remove runs that ended longer ago than this.",
)
@click.option("--everyone", is_flag=True, help="Include the runs of other users of this account.")
@click.option("--orphans", is_flag=True, help="Only end processes that crashed runs left; remove nothing.")
@click.option(
    "--warm", is_flag=True, help="Only stop the processes that `launch --keep-warm` left; asks nothing."
)
@click.option(
    "--staged", is_flag=True, help="Only remove what the key `stage` of jobs has copied to the nodes."
)
@with_node_options
@click.option("--dry-run", is_flag=True, help="List what would be removed, and stop.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option("Write what is or would be removed as JSON.")
@shared_options
def clean(
    settings: Settings,
    keep: int,
    older_than: str,
    everyone: bool,
    orphans: bool,
    warm: bool,
    staged: bool,
    pattern: str | None,
    exclude: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Remove old runs, unused files and processes that crashed runs left from the nodes.

    Lists what would be removed and asks first. Ends only processes whose run has no agent any more. Never removes
    outputs, a run that is live on any node, or files of another account. Runs with files outside ${output_dir} are
    listed and confirmed separately, because `clean` cannot know whether these files were downloaded. On a Slurm cluster
    a run stays while its Slurm job waits or runs.
    """
    from clusterctl.cli.actions.clean import Clean, CleanOptions, clean_orphans, clean_staged, clean_warm
    from clusterctl.plans.cleanup import RetentionPolicy
    from clusterctl.plans.launch.placement import choose_nodes

    bounds = RetentionPolicy(keep, _seconds(older_than))
    options = CleanOptions(
        bounds, everyone=everyone, dry_run=dry_run, yes=yes, as_json=as_json, command=settings.command
    )
    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is not None and (pattern is not None or exclude is not None):
        raise UsageError("CC-SLURM-007", "nodes")
    if orphans + warm + staged > 1:
        raise click.UsageError(
            tr("--orphans, --warm and --staged: use only one of them"), click.get_current_context()
        )
    if orphans or warm:
        refuse_on_slurm(inventory, "clean --warm" if warm else "clean --orphans")
    nodes = choose_nodes(inventory, pattern, exclude)
    if warm:
        return clean_warm(nodes, dry_run=dry_run, as_json=as_json)
    if staged:
        return clean_staged(nodes if inventory.slurm is None else nodes[:1], options)
    return clean_orphans(nodes, options) if orphans else Clean(nodes, options).run()


def _seconds(text: str) -> float:
    from clusterctl.specs.values import parse_duration

    if text.isdecimal() and int(text):  # seconds, to us; who removes things with it may have meant days
        raise UsageError("CC-USE-030", "unit", number=text)
    try:
        return parse_duration(text)
    except InvalidValueError as error:
        raise UsageError("CC-USE-030", reason=error) from error
