"""The verbs `pull` and `cp`: download a run's outputs, copy any files."""

from __future__ import annotations

import click

from clusterctl.cli.completion import complete_copy_path, complete_run
from clusterctl.cli.context.load import Settings, load_inventory
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import json_option, shared_options, with_node_options


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl pull", "your newest run"),
        ("clusterctl pull train-2026 ./results --logs", "with logs, to another folder"),
        ("clusterctl pull --nodes gpu01", "one node"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--logs", is_flag=True, help="Also download the logs, to DIR/<node>/logs-<run>.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also download the logs, and files outside ${output_dir} to DIR/<node>/code-<run>.",
)
@click.option("--job", metavar="NAME", help="The outputs of this job, even if its runs were removed.")
@with_node_options
@click.option("--overwrite", is_flag=True, help="Replace files that were changed on this machine.")
@click.option("--no-limit", is_flag=True, help="Allow more than 100 000 files or 100 GiB from a node.")
@json_option("Write what was downloaded as JSON.")
@shared_options
def pull(
    settings: Settings,
    run: str | None,
    folder: str | None,
    logs: bool,
    everything: bool,
    job: str | None,
    pattern: str | None,
    exclude: str | None,
    overwrite: bool,
    no_limit: bool,
    as_json: bool,
) -> int:
    """Download a run's outputs: the directory CLUSTERCTL_OUTPUT_DIR of every node.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run. Files that DIR/<node>/ has
    already are skipped, and an interrupted download is resumed. DIR is outputs/<job> by default; a single argument
    with a slash, such as ./results, is DIR. Files that the run wrote into its copy of the code are listed, and
    downloaded only with --all.
    """
    from clusterctl.cli.actions.files.pull import Pull, PullOptions
    from clusterctl.errors import UsageError

    if run and not folder and (job or "/" in run or run in (".", "..")):
        run, folder = None, run  # no run has a name like that
    if job and (run or logs or everything):
        raise UsageError("CC-USE-029")
    options = PullOptions(
        run_prefix=run,
        job=job,
        folder=folder,
        logs=logs,
        everything=everything,
        overwrite=overwrite,
        no_limit=no_limit,
        as_json=as_json,
        command=settings.command,
    )
    return Pull(load_inventory(settings, on_slurm=True), options).run(pattern, exclude)


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
    from clusterctl.errors import UsageError

    copy = Copy(
        load_inventory(settings, on_slurm=True), CopyOptions(run, overwrite, as_json, settings.command)
    )
    if gather:
        return copy.gather(paths)
    if len(paths) < 2:
        raise UsageError("CC-COPY-001", "one")
    return copy.copy(paths[:-1], paths[-1])
