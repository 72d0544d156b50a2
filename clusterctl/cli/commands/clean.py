"""The verb `clean`: keep what the nodes hold within bounds."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Settings, WholeNumber, shared_options, with_node_options


@click.command()
@click.option(
    "--keep",
    type=WholeNumber("a number of runs"),
    default=10,
    show_default=True,
    help="Newest runs of each job that stay.",
)
@click.option(
    "--older-than",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="Runs that were still for so long go.",
)
@click.option(
    "--everyone", is_flag=True, help="Look at everybody's runs under this account, not only at yours."
)
@with_node_options
@click.option("--dry-run", is_flag=True, help="Say what would go, and stop.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Write what goes, or would go, as JSON.")
@shared_options
def clean(
    settings: Settings,
    keep: int,
    older_than: str,
    everyone: bool,
    pattern: str | None,
    exclude: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Remove old runs, what nobody uses any more, and what crashed runs left running, from the nodes.

    Says what would go and asks before anything does. Processes are ended whose run has no agent any more. Outputs
    are never removed, nor is a run that lives on any node, nor what belongs to another account. Runs with files
    outside ${output_dir} are listed and asked about once more: `clean` does not know whether they were pulled.
    """
    from clusterctl.cli.actions.clean import Clean, CleanOptions
    from clusterctl.plans.cleanup import RetentionPolicy
    from clusterctl.plans.launch.placement import choose_nodes

    bounds = RetentionPolicy(keep, _seconds(older_than))
    options = CleanOptions(
        bounds, everyone=everyone, dry_run=dry_run, yes=yes, as_json=as_json, command=settings.command
    )
    return Clean(choose_nodes(load_inventory(settings), pattern, exclude), options).run()


def _seconds(text: str) -> float:
    from clusterctl.errors import UsageError
    from clusterctl.specs.codes import InvalidValueError
    from clusterctl.specs.values import parse_duration

    if text.isdecimal() and int(text):  # seconds, to us; who removes things with it may have meant days
        raise UsageError("CC-USE-030", "unit", number=text)
    try:
        return parse_duration(text)
    except InvalidValueError as error:
        raise UsageError("CC-USE-030", reason=error) from error
