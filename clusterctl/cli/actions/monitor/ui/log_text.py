"""Lines of logs: those of a traceback stay together, and all of a run are a file to download.

Of a download only as much is held as the browser takes at once, however long the logs are.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, repeat

from clusterctl.cli.actions.logs import LogQuery
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.logs import LogReader
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.console.lines import describe_dropped
from clusterctl.console.text import sanitize
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.specs.nodeset import fold_names
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


def read_whole_log(
    run: RunHandle, clocks: Mapping[str, float], silent: Iterable[str]
) -> Generator[str, None, None]:
    """Yield pieces of the text, empty ones too while nothing comes; `clocks` are those of the nodes minus ours.

    A node that fails is named at its place, and at the end with those that are silent: what is missing may be anywhere.
    Raises IncompleteError instead of the end if one was lost meanwhile: the next try may have its lines.
    """
    request, text, failed = QUERY.request(), LogText(), list(silent)
    has_broken_off = False
    request["logs"] = {**(request["logs"] or {}), "since": 1}  # all attempts
    for batch in LogReader(run, request, clocks=clocks).read_by_time():
        if isinstance(batch, list):
            yield "".join(map(text.render, batch))
        elif isinstance(batch, (ReplacedLog, StreamEnd)) and batch.error is not None:
            failed += [batch.node] if batch.node not in failed else []
            has_broken_off = has_broken_off or isinstance(batch, StreamEnd)
            reason = f"{batch.error.code} {batch.error.message}"
            yield (
                text.finish_line() + f"{sanitize(tr('{subject}: {text}', subject=batch.node, text=reason))}\n"
            )
    yield text.finish_line()
    reason = tr("not all was read from {nodes}", nodes=fold_names(failed))
    if has_broken_off:
        raise IncompleteError(reason)
    if failed:
        yield describe_incomplete(reason)


class IncompleteError(Exception):
    """A node was lost while a log was read; the message names the nodes from which lines are missing."""


def describe_incomplete(reason: str) -> str:
    """Return the last line of a log of which something is missing."""
    return f"{sanitize(tr('this log is not complete: {reason}', reason=reason))}\n"


class LogText:
    """Writes lines below each other; the rest of a long line goes on in it, or after others has `+` for its mark."""

    def __init__(self) -> None:
        self._open: tuple[str, str] | None = None  # the file of the last line, which has no end yet

    def render(self, entry: LogLines) -> str:
        """Return the text of lines but the end of the last: its rest may follow."""
        rank, mark = (
            ("-" if entry.rank is None else f"r{entry.rank}"),
            "!" if entry.stream == "stderr" else "|",
        )
        label, file, pieces = f"{sanitize(entry.node)} {rank}", (entry.node, entry.file), list[str]()
        if entry.gone:
            moment = _render_time(entry.began)
            pieces.append(f"{self.finish_line()}{moment} {label} ~ {describe_dropped(entry.gone)}\n")
        marks = chain(["+"] if entry.continues else [], repeat(mark))
        moments = [_render_time(moment) for moment in entry.times] or [""] * len(entry.lines)
        for moment, sign, line in zip(moments, marks, entry.lines, strict=False):
            goes_on = sign == "+" and self._open == file
            pieces.append(
                sanitize(line) if goes_on else f"{self.finish_line()}{moment} {label} {sign} {sanitize(line)}"
            )
            self._open = file
        return "".join(pieces)

    def finish_line(self) -> str:
        """Finish the last line: return its end."""
        was_open, self._open = self._open is not None, None
        return "\n" if was_open else ""


def _render_time(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # of a clock that is far off
        return f"{moment:.0f}"
