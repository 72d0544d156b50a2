"""Lines of logs: those of a traceback stay together, and all of a run are a file to download.

Of a download only as much is held as the browser takes at once, however long the logs are.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import datetime

from clusterctl.cli.actions.logs import LogQuery
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.logs import LogReader
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.console.text import sanitize
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.translation import tr

QUERY = LogQuery(
    ranks=None,
    tail=None,
    grep=None,
    stream=None,
    follow=False,
    attempt=None,
    since=None,
    show_times=True,
    as_json=False,
)
RANK_MARK = re.compile(r"\[rank\d{1,6}\]: ?")  # which torch puts before lines of its second traceback


def hold_together(entry: LogLines) -> LogLines:
    """Set the times of a traceback's lines to that of its last: they are estimates, and would let others in between."""
    times = list(entry.times)
    is_inside = [RANK_MARK.sub("", line, count=1).startswith((" ", "\t")) for line in entry.lines]
    for place in range(len(times) - 1, 0, -1):
        if is_inside[place] or is_inside[place - 1]:
            times[place - 1] = times[place]
    return replace(entry, times=tuple(times)) if entry.stream == "stderr" else entry


def read_whole_log(run: RunHandle, clocks: Mapping[str, float]) -> Generator[str, None, None]:
    """Yield pieces of the text; `clocks` are those of the nodes minus ours. A node that fails is named at its place."""
    for batch in LogReader(run, QUERY.request(), clocks=clocks).read_by_time():
        if isinstance(batch, list):
            yield "".join(map(_render_lines, batch))
        elif isinstance(batch, (ReplacedLog, StreamEnd)) and batch.error is not None:
            text = f"{batch.error.code} {batch.error.message}"
            yield f"{sanitize(tr('{subject}: {text}', subject=batch.node, text=text))}\n"


def _render_lines(entry: LogLines) -> str:
    rank = "-" if entry.rank is None else f"r{entry.rank}"
    mark = "!" if entry.stream == "stderr" else "|"
    moments = [_render_time(moment) for moment in entry.times] or [""] * len(entry.lines)
    return "".join(
        f"{moment} {entry.node} {rank} {mark} {sanitize(line)}\n"
        for moment, line in zip(moments, entry.lines, strict=True)
    )


def _render_time(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
