"""The verb `clean`: remove old runs and unused files from the nodes."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import Settings, load_inventory, refuse_on_slurm
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import WholeNumber, json_option, shared_options, with_node_options
from clusterctl.errors import UsageError
from clusterctl.translation import to_translate, tr


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl clean --dry-run", "list what would be removed"),
        ("clusterctl clean --keep 3 --older-than 7d", "keep 3 runs of each job, and all of this week"),
        ("clusterctl clean -y --nodes gpu02", "one node, without a question"),
        ("clusterctl clean --orphans", "only the processes that crashed runs left"),
        ("clusterctl clean --warm", "only what launch --keep-warm left"),
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
    from clusterctl.cli.actions.clean import Clean, CleanOptions, clean_orphans, clean_warm
    from clusterctl.plans.cleanup import RetentionPolicy
    from clusterctl.plans.launch.placement import choose_nodes

    bounds = RetentionPolicy(keep, _seconds(older_than))
    options = CleanOptions(
        bounds, everyone=everyone, dry_run=dry_run, yes=yes, as_json=as_json, command=settings.command
    )
    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is not None and (pattern is not None or exclude is not None):
        raise UsageError("CC-SLURM-007", "nodes")
    if orphans and warm:
        raise click.UsageError(tr("--orphans and --warm: use only one of them"), click.get_current_context())
    if orphans or warm:
        refuse_on_slurm(inventory, "clean --warm" if warm else "clean --orphans")
    nodes = choose_nodes(inventory, pattern, exclude)
    if warm:
        return clean_warm(nodes, dry_run=dry_run, as_json=as_json)
    return clean_orphans(nodes, options) if orphans else Clean(nodes, options).run()


def _seconds(text: str) -> float:
    from clusterctl.errors import InvalidValueError
    from clusterctl.specs.values import parse_duration

    if text.isdecimal() and int(text):  # seconds, to us; who removes things with it may have meant days
        raise UsageError("CC-USE-030", "unit", number=text)
    try:
        return parse_duration(text)
    except InvalidValueError as error:
        raise UsageError("CC-USE-030", reason=error) from error
