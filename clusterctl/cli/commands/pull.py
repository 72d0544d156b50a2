"""The verb `pull`: bring a run's results home."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Settings, shared_options, with_node_options


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--logs", is_flag=True, help="Bring the run's logs too, to DIR/<node>/logs-<run>.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Bring the logs, and to DIR/<node>/code-<run> the files that the run has left outside ${output_dir}.",
)
@click.option("--job", metavar="NAME", help="Bring the outputs of this job, whose runs may be gone.")
@with_node_options
@click.option("--overwrite", is_flag=True, help="Replace files that were changed here.")
@click.option("--no-limit", is_flag=True, help="Bring more than 100 000 files or 100 GiB from a node.")
@click.option("--json", "as_json", is_flag=True, help="Write what was brought as JSON.")
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
    """Bring home what a run's job has put out: the directory CLUSTERCTL_OUTPUT_DIR of every node.

    RUN is an id or its beginning, by default your newest. What DIR/<node>/ has already is not brought again,
    and what broke off is taken up where it stopped. DIR is outputs/<job> by default; alone it is told from RUN by
    a slash in it, such as ./results. Files that the run has written elsewhere, into its copy of the code, are named and
    left there unless --all is given.
    """
    from clusterctl.cli.actions.pull import Pull, PullOptions
    from clusterctl.errors import UsageError

    if run and not folder and (job or "/" in run or run in (".", "..")):
        run, folder = None, run  # no run has a name like that
    if job and (run or logs or everything):
        raise UsageError("CC-USE-029")
    options = PullOptions(
        run, job, folder, logs, everything, overwrite, no_limit, as_json, command=settings.command
    )
    return Pull(load_inventory(settings), options).run(pattern, exclude)
