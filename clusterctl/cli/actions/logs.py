"""Read or follow logs."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from clusterctl.cli.actions.find_runs import FoundRuns, choose_found_run, find_runs, refuse_queued
from clusterctl.cli.context.nodes import (
    PARTLY,
    interpreter,
    notice,
    open_cluster,
    reading_exit_code,
    report_failures,
)
from clusterctl.client.rpc import tasks
from clusterctl.client.watch.follower import LogLines, Update
from clusterctl.client.watch.logs import LiveReader, LogReader, ReorderWindow
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.console.lines import BatchLogSink, JsonLogPrinter, LogPrinter
from clusterctl.console.terminal import info
from clusterctl.errors import UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.plans.runs.selection import choose_run
from clusterctl.plans.runs.state import NodeState, Parts
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import FollowChoice, LogChoice

MAX_NAMED = 3  # nodes
MAX_RANKS = 8
CHECK_INTERVAL = 0.1  # seconds between two looks at lines that wait for their turn


@dataclass(frozen=True, kw_only=True)
class LogQuery:
    """Which lines are wanted; `since` is in seconds since 1970, `show_times` shows times."""

    ranks: tuple[Rank, ...] | None
    tail: int | None
    grep: str | None
    stream: str | None
    follow: bool
    attempt: int | None
    since: float | None
    show_times: bool
    as_json: bool

    @property
    def ordered(self) -> bool:
        """Return whether what was written comes in the order of time, of all nodes."""
        return not self.follow and (self.show_times or self.since is not None)

    @property
    def needs_times(self) -> bool:
        """Return whether the times of lines are needed, to print them or to sort by them."""
        return self.show_times or self.since is not None or self.as_json

    @property
    def without_follow(self) -> LogQuery:
        """The same of what was written until now."""
        return replace(self, follow=False)

    def request(self) -> FollowChoice:
        """Return the question that a node answers."""
        logs: LogChoice = {
            "ranks": list(self.ranks) if self.ranks is not None else None,
            "streams": [self.stream] if self.stream else ["stdout", "stderr"],
            "offsets": {},
            "tail": self.tail,
            "grep": self.grep,
            "times": self.needs_times,
            "ordered": self.ordered,
            "moment": self.since,
        }
        if self.attempt is not None:
            logs["attempt"] = self.attempt
        return {"events": None, "logs": logs, "follow": self.follow, "clock": self.needs_times}


class LineFilter:
    """Passes lines that are new enough to a printer, counts them, and warns once per node about estimated times."""

    def __init__(self, printer: BatchLogSink, since: float | None, *, show_times: bool) -> None:
        self._printer, self._since = printer, since
        self._guessed_nodes: set[str] | None = set() if show_times or since is not None else None
        self.lines = 0
        self.replaced = False  # whether a log could not be read, since something else is there

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""
        recent = [entry for entry in map(self._filter, entries) if entry.lines or entry.gone]
        self.lines += sum(len(entry.lines) for entry in recent)
        if recent:
            self._printer.show_all(recent)

    def _filter(self, entry: LogLines) -> LogLines:
        if entry.times_guessed and self._guessed_nodes is not None and entry.node not in self._guessed_nodes:
            self._guessed_nodes.add(entry.node)
            notice(
                tr(
                    "{node}: no times were recorded for its logs; each line shows the last write of its file",
                    node=entry.node,
                )
            )
        if self._since is None or not entry.times or entry.times[0] >= self._since:
            return entry
        return entry.cut(slice(bisect_left(entry.times, self._since), None), None)


@dataclass(frozen=True)
class LogRequest:
    """Whose lines of which run are read, and where they go; `clocks` are the nodes' minus ours."""

    run: tasks.RunHandle
    answered: Collection[str]
    clocks: Mapping[str, float]
    query: LogQuery
    line_filter: LineFilter
    failed: set[str]

    def print(self, update: Update) -> None:
        """Print lines; report the failure of a node at once, since the other nodes may send lines for hours."""
        if isinstance(update, LogLines):
            self.line_filter.show_all((update,))
        elif isinstance(update, ReplacedLog):
            self.line_filter.replaced = True
            report_failures([update.error])
        elif isinstance(update, StreamEnd) and update.error is not None:
            update.error.node = update.error.node or update.node
            report_failures([update.error])
            self.failed.add(update.node)

    def print_followed(self, update: Update) -> None:
        """Print what is followed: a node that sends something again has not failed."""
        self.print(update)
        if not isinstance(update, StreamEnd):
            self.failed.discard(update.node)

    def written(self) -> LogReader:
        """Return the reader of what was written until now on the nodes that answered."""
        run = self.run.on(node for node in self.run.nodes if node.name in self.answered)
        return LogReader(run, self.query.without_follow.request(), clocks=self.clocks)


def read_logs(
    inventory: Inventory,
    run_prefix: str | None,
    choice: tuple[str | None, str | None],
    query: LogQuery,
    command: str,
) -> int:
    """Print the logs of a run; 0 when all its chosen nodes answered, 5 some, 4 none.

    `choice`: of `--nodes` and `--exclude`; `command` is how fixes begin.
    """
    nodes = choose_nodes(inventory, *(choice if inventory.slurm is None else (None, None)))
    with open_cluster() as cluster:
        found_runs = find_runs(cluster, nodes, run_prefix, only_one=True)
        report_failures(found_runs.errors)
        if not found_runs.answered:
            return 4
        run_id = choose_found_run(choose_run, found_runs.runs, run_prefix)
        parts = found_runs.runs[run_id]
        if inventory.slurm is not None:
            refuse_queued(run_id, parts, "logs", command)
            nodes = _choose_slurm_nodes(inventory, found_runs, run_id, choice)
        _check_attempt(run_id, parts, query.attempt)
        holders = _holders(nodes, run_id, parts, query, command)
        if query.ranks and not holders:
            all_parts = find_runs(cluster, inventory.nodes, run_id, only_one=True).runs.get(run_id, parts)
            names = [node.name for node in nodes if node.name in parts]
            raise _no_such_rank(run_id, names, all_parts, query, command)
        info(tr("run {run}", run=run_id))
        line_filter = LineFilter(_printer(run_id, parts, query), query.since, show_times=query.show_times)
        pythons = {node.name: found_runs.pythons.get(node.name) or interpreter(node) for node in holders}
        run = tasks.RunHandle(cluster, run_id, holders, pythons)
        failed = {error.node for error in found_runs.errors}
        _choose_reader(query)(
            LogRequest(run, found_runs.pythons, found_runs.offsets, query, line_filter, failed)
        )
    if query.grep is not None and not line_filter.lines:
        info(tr("no line matches {pattern!r}", pattern=query.grep))
    elif query.since is not None and not line_filter.lines:
        info(tr("nothing was written since then"))
    code = reading_exit_code(found_runs.asked - len(failed), found_runs.asked)
    return code or (PARTLY if line_filter.replaced else 0)


def _choose_slurm_nodes(
    inventory: Inventory, found: FoundRuns, run_id: RunId, choice: tuple[str | None, str | None]
) -> tuple[Node, ...]:
    """Choose among the nodes of the run, which are in no inventory; their ranks are those of the run."""
    nodes = tuple(found.nodes_of(run_id))
    return choose_nodes(replace(inventory, nodes=nodes), *choice)


def _choose_reader(query: LogQuery) -> Callable[[LogRequest], None]:
    if query.follow:
        return _follow_in_order if query.show_times else _follow
    return _read_in_order if query.ordered else _read


def _check_attempt(run_id: str, parts: Parts, attempt: int | None) -> None:
    last = max((part.attempt for part in parts.values() if part), default=1)
    if attempt is not None and attempt > last:
        raise UsageError("CC-USE-034", "" if last > 1 else "one", run=run_id, attempt=attempt, last=last)


def _holders(nodes: Sequence[Node], run_id: str, parts: Parts, query: LogQuery, command: str) -> list[Node]:
    """Keep the nodes that took part and, when ranks are named, hold one of them."""
    holding = [node for node in nodes if node.name in parts and _holds(parts[node.name], query)]
    if not holding and not any(parts.get(node.name) for node in nodes):
        raise UsageError(
            "CC-USE-028",
            run_id=run_id,
            nodes=fold_names([node.name for node in nodes]),
            command=command_line("status", run_id, command=command),
        )
    return holding


def _no_such_rank(
    run_id: str, names: Collection[str], parts: Parts, query: LogQuery, command: str
) -> UsageError:
    """Return which ranks the chosen nodes have, and where the requested ones are; `names` are the chosen nodes."""
    requested = query.ranks or ()
    ranks = {name: own for name, part in parts.items() if part and (own := part.ranks_of(query.attempt))}
    lines = [_describe_ranks(name, ranks[name]) for name in names if name in ranks][:MAX_NAMED]
    all_ranks = _render_ranks([rank for own in ranks.values() for rank in own]) if ranks else ""
    lines.append(tr("the run has {ranks}", ranks=all_ranks) if ranks else tr("no worker was ever started"))
    found = {name: there for name, own in ranks.items() if (there := sorted(set(own) & set(requested)))}
    lines += [_describe_ranks(name, there) for name, there in found.items()][:MAX_NAMED]
    shown = command_line("status", run_id, command=command)
    if found:
        there = sorted(rank for own in found.values() for rank in own)
        options = [word for rank in there for word in ("--rank", str(rank))]
        options += ["--attempt", str(query.attempt)] if query.attempt is not None else []
        shown = command_line("logs", run_id, *options, command=command)
    return UsageError(
        "CC-USE-027",
        "elsewhere" if found else "",
        evidence="\n".join(lines),
        ranks=_render_ranks(requested),
        nodes=fold_names(list(names)),
        command=shown,
    )


def _describe_ranks(node: str, ranks: Collection[int]) -> str:
    return tr("{node} has {ranks}", node=node, ranks=_render_ranks(ranks))


def _render_ranks(ranks: Collection[int]) -> str:
    """Write `rank 0`, `ranks 0 to 7`, or `ranks 0, 2, 5 and 12 more`."""
    ordered = sorted(set(ranks))
    if len(ordered) == 1:
        return tr("rank {rank}", rank=ordered[0])
    if ordered == list(range(ordered[0], ordered[-1] + 1)):
        return tr("ranks {first} to {last}", first=ordered[0], last=ordered[-1])
    listed, more = ", ".join(map(str, ordered[:MAX_RANKS])), len(ordered) - MAX_RANKS
    if more > 0:
        return trn("ranks {ranks} and {n} more", "ranks {ranks} and {n} more", more, ranks=listed)
    return tr("ranks {ranks}", ranks=listed)


def _holds(part: NodeState | None, query: LogQuery) -> bool:
    """Return whether a node has lines that are wanted; one that does not answer now may do so while we follow."""
    if part is None:
        return query.follow
    if query.follow and part.live and part.slots:  # another attempt may give it the rank
        return True
    return query.ranks is None or any(rank in query.ranks for rank in part.ranks_of(query.attempt))


def _printer(run_id: str, parts: Parts, query: LogQuery) -> BatchLogSink:
    states = {name: part for name, part in parts.items() if part}
    if query.as_json:
        return JsonLogPrinter(run_id, {name: part.node_rank for name, part in states.items()})
    world_size = max((part.world_size or 1 for part in states.values()), default=1)
    return LogPrinter(list(states), world_size, with_times=query.show_times)


def _follow(request: LogRequest) -> None:
    """Print lines as they come until the run has ended, none lost by cuts and none doubled."""
    reader = LiveReader(request.run, request.query.request(), notice=notice, clocks=request.clocks)
    for update in reader.updates():
        request.print_followed(update)


def _follow_in_order(request: LogRequest) -> None:
    """Print what was written in the order of time, then what is being written as far as that is possible."""
    log_reader, window = request.written(), ReorderWindow()
    _print_in_order(request, log_reader)
    live_reader = LiveReader(
        request.run,
        request.query.request(),
        notice=notice,
        clocks=request.clocks,
        offsets=log_reader.offsets,
    )
    try:
        for update in live_reader.updates_or_none(CHECK_INTERVAL):
            if isinstance(update, LogLines):
                window.add(update, time.monotonic(), time.time())
                request.failed.discard(update.node)
            elif update is not None:
                request.print_followed(update)
            else:
                request.line_filter.show_all(window.pop_ready(time.monotonic()))
    finally:
        request.line_filter.show_all(window.pop_all())


def _read(request: LogRequest) -> None:
    """Print node by node."""
    for update in LogReader(request.run, request.query.request(), clocks=request.clocks).read_by_node():
        request.print(update)


def _read_in_order(request: LogRequest) -> None:
    """Print the lines of all nodes in the order of time."""
    _print_in_order(request, LogReader(request.run, request.query.request(), clocks=request.clocks))


def _print_in_order(request: LogRequest, log_reader: LogReader) -> None:
    for batch in log_reader.read_by_time():
        if isinstance(batch, list):
            request.line_filter.show_all(batch)
        else:
            request.print(batch)


_SPAN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def parse_since(text: str, now: datetime) -> float:
    """Return the moment in seconds since 1970; `now` is local. A time of day is the last one before now."""
    span = _SPAN.fullmatch(text)
    try:
        if text and span:
            days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
            return now.timestamp() - ((days * 24 + hours) * 60 + minutes) * 60 - seconds
        clock = _CLOCK.fullmatch(text)
        if clock:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (today if today <= now else today - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(re.sub(r"Z$", "+00:00", text)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError("CC-USE-035", since=text) from error
