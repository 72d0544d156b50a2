"""The verb `logs`: the output of the ranks."""

from __future__ import annotations

import click

from clusterctl.cli.completion import complete_run
from clusterctl.cli.context.load import Settings, load_inventory
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import WholeNumber, json_option, shared_options, with_node_options
from clusterctl.protocol.ranks import Rank
from clusterctl.translation import to_translate


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl logs --nodes 1", "one node"),
        ("clusterctl logs -f --rank 0", "follow one rank"),
        ("clusterctl logs --grep loss --tail 5", "the last matching lines of each rank"),
    ],
    former={"--node": "--nodes"},
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@with_node_options
@click.option(
    "--rank",
    type=WholeNumber(to_translate("{value!r} is not a rank")),
    metavar="N",
    multiple=True,
    help="Only this global rank; may be repeated.",
)
@click.option(
    "--attempt",
    type=WholeNumber(to_translate("{value!r} is not the number of an attempt"), 1),
    metavar="N",
    help="This attempt of a restarted run; default: the last.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option(
    "--tail",
    type=WholeNumber(to_translate("{value!r} is not a number of lines")),
    metavar="N",
    help="Only the last N lines of each file.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only lines written since: 10m, 14:05 or 2026-11-21T14:05; sorted by time.",
)
@click.option("-t", "timed", is_flag=True, help="Print the time of each line; all nodes sorted by time.")
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression.")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this stream.")
@json_option("Write NDJSON, one object per line.")
@shared_options
def logs(
    settings: Settings,
    run: str | None,
    pattern: str | None,
    exclude: str | None,
    rank: tuple[int, ...],
    attempt: int | None,
    follow: bool,
    tail: int | None,
    since: str | None,
    timed: bool,
    grep: str | None,
    stream: str | None,
    as_json: bool,
) -> int:
    """Show the output of a run's ranks.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run. Node ranks in --nodes are
    those of the inventory.
    """
    from clusterctl.cli.actions.logs import LogQuery, read_logs

    query = LogQuery(
        ranks=tuple(map(Rank, rank)) or None,
        tail=tail,
        grep=_checked(grep),
        stream=stream,
        follow=follow,
        attempt=attempt,
        since=_parse_since(since),
        show_times=timed,
        as_json=as_json,
    )
    return read_logs(
        load_inventory(settings, on_slurm=True), run, (pattern, exclude), query, settings.command
    )


def _parse_since(text: str | None) -> float | None:
    from datetime import datetime

    from clusterctl.cli.actions.logs import parse_since

    return None if text is None else parse_since(text, datetime.now())


def _checked(grep: str | None) -> str | None:
    import re

    from clusterctl.errors import UsageError
    from clusterctl.specs.kinds import is_slow

    try:
        re.compile(grep or "")
        slow = is_slow(grep or "")
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError("CC-USE-026", grep=grep, reason=error) from error
    if slow:
        raise UsageError("CC-USE-026", "slow", grep=grep)
    return grep
