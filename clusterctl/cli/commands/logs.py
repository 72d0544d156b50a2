"""The verb `logs`: what the ranks have written."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Settings, WholeNumber, shared_options
from clusterctl.protocol.ranks import Rank


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--node", "pattern", metavar="PAT", help="Only these nodes: ranks, names, gpu[01-04], globs.")
@click.option(
    "--rank", type=WholeNumber("a rank"), multiple=True, help="Only this global rank; may be repeated."
)
@click.option(
    "--attempt",
    type=WholeNumber("the number of an attempt", 1),
    help="Of a run that was started again, this attempt; default: the last.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are written, until the run ends.")
@click.option("--tail", type=WholeNumber("a number of lines"), help="Only the last N lines of each file.")
@click.option(
    "--since",
    metavar="T",
    help="Only lines written since then: 10m, 14:05 or 2026-11-21T14:05; in time order.",
)
@click.option("-t", "timed", is_flag=True, help="Say when each line was written; all nodes in time order.")
@click.option(
    "--grep", metavar="RE", help="Only lines that match this regular expression; searched on the nodes."
)
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this stream.")
@click.option("--json", "as_json", is_flag=True, help="Write NDJSON, one object a line.")
@shared_options
def logs(
    settings: Settings,
    run: str | None,
    pattern: str | None,
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
    """Show what the ranks of a run have written; RUN is an id or its beginning, by default your newest.

    Node ranks in --node are those of the inventory.
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
    return read_logs(load_inventory(settings), run, pattern, query, settings.command)


def _parse_since(text: str | None) -> float | None:
    from datetime import datetime

    from clusterctl.cli.actions.logs import parse_since

    return None if text is None else parse_since(text, datetime.now())


def _checked(grep: str | None) -> str | None:
    import re

    from clusterctl.errors import UsageError

    try:
        re.compile(grep or "")
    except re.error as error:
        raise UsageError("CC-USE-026", grep=grep, reason=error) from error
    return grep
