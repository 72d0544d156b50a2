"""Read or follow logs."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from clusterctl.cli.actions.find_runs import Remembered, ask_runs
from clusterctl.cli.context.nodes import (
    interpreter,
    myself,
    notice,
    open_cluster,
    reading_exit_code,
    tell_failures,
)
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.follower import LogLines, StreamEnd, Update
from clusterctl.client.watch.reader import Onlooker, Reading, Window
from clusterctl.console.logs import JsonLogs, LogPrinter, ManyLogs
from clusterctl.console.terminal import say
from clusterctl.errors import UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.selection import Parts, choose_run
from clusterctl.plans.runs.state import NodeState
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line

LOOK = 0.1  # seconds between two looks at lines that wait for their turn


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which lines are wanted; `since` is in seconds since 1970, `timed` shows times."""

    ranks: tuple[int, ...] | None
    tail: int | None
    grep: str | None
    stream: str | None
    follow: bool
    attempt: int | None
    since: float | None
    timed: bool
    as_json: bool

    @property
    def ordered(self) -> bool:
        """Tell whether what was written comes in the order of time, of all nodes."""
        return not self.follow and (self.timed or self.since is not None)

    @property
    def has_times(self) -> bool:
        """Tell whether it must be known when lines were written."""
        return self.timed or self.since is not None or self.as_json

    @property
    def past(self) -> Filter:
        """The same of what was written until now."""
        return replace(self, follow=False)

    def request(self) -> dict[str, Any]:
        """Give the question that a node answers."""
        logs: dict[str, Any] = {
            "ranks": list(self.ranks) if self.ranks is not None else None,
            "streams": [self.stream] if self.stream else ["stdout", "stderr"],
            "offsets": {},
            "tail": self.tail,
            "grep": self.grep,
            "times": self.has_times,
            "ordered": self.ordered,
            "moment": self.since,
            **({"attempt": self.attempt} if self.attempt is not None else {}),
        }
        return {"events": None, "logs": logs, "follow": self.follow, "clock": self.has_times}


class Sieve:
    """Passes on to a printer the lines that are young enough, counts them, and tells once where times are guessed."""

    def __init__(self, printer: ManyLogs, since: float | None, *, timed: bool) -> None:
        self._printer, self._since = printer, since
        self._doubted: set[str] | None = set() if timed or since is not None else None
        self.lines = 0

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""
        young = [entry for entry in map(self._sift, entries) if entry.lines or entry.gone]
        self.lines += sum(len(entry.lines) for entry in young)
        if young:
            self._printer.show_all(young)

    def _sift(self, entry: LogLines) -> LogLines:
        if entry.guessed and self._doubted is not None and entry.node not in self._doubted:
            self._doubted.add(entry.node)
            notice(f"{entry.node}: no times were kept for its logs; each file's are that of its last write")
        if self._since is None or not entry.times or entry.times[0] >= self._since:
            return entry
        return entry.cut(slice(bisect_left(entry.times, self._since), None), None)


@dataclass(frozen=True)
class Source:
    """Whose lines of which run are read, and where they go."""

    cluster: Cluster
    nodes: Sequence[Node]
    remembered: Remembered
    run: str
    wanted: Filter
    sieve: Sieve

    @property
    def pythons(self) -> dict[str, tasks.Interpreter]:
        """Give each node's interpreter: the one that answered, else the inventory's."""
        known = self.remembered.pythons
        return {node.name: known.get(node.name) or interpreter(node) for node in self.nodes}


def read_logs(inventory: Inventory, run: str | None, pattern: str | None, wanted: Filter) -> int:
    """Print the logs of a run; 0 when all its chosen nodes answered, 5 some, 4 none."""
    nodes = choose_nodes(inventory, pattern, None)
    with open_cluster() as cluster:
        remembered = ask_runs(cluster, nodes, run, one=True)
        tell_failures(remembered.errors)
        if not remembered.answered:
            return 4
        chosen = choose_run(remembered.runs, run, myself())
        parts = remembered.runs[chosen]
        _check_attempt(chosen, parts, wanted.attempt)
        holders = _holders(nodes, chosen, parts, wanted)
        say(f"run {chosen}")
        sieve = Sieve(_printer(chosen, parts, wanted), wanted.since, timed=wanted.timed)
        failed = _way_of(wanted)(Source(cluster, holders, remembered, chosen, wanted, sieve))
    if wanted.grep is not None and not sieve.lines:
        say(f"no line matches {wanted.grep!r}")
    elif wanted.since is not None and not sieve.lines:
        say("nothing was written since then")
    return reading_exit_code(remembered.asked - len(failed), remembered.asked)


def _way_of(wanted: Filter) -> Callable[[Source], set[str]]:
    if wanted.follow:
        return _follow_in_order if wanted.timed else _follow
    return _read_in_order if wanted.ordered else _read


def _check_attempt(run: str, parts: Parts, wanted: int | None) -> None:
    last = max((part.attempt for part in parts.values() if part), default=1)
    if wanted is not None and wanted > last:
        fix = f"it has attempts 1 to {last}" if last > 1 else "it has one attempt only"
        raise UsageError(f"{run} has no attempt {wanted}", code="CC-USE-034", fix=fix)


def _holders(nodes: Sequence[Node], run: str, parts: Parts, wanted: Filter) -> list[Node]:
    """Keep the nodes that took part and, when ranks are named, hold one of them."""
    holding = [node for node in nodes if node.name in parts and _holds(parts[node.name], wanted)]
    if not holding and not any(parts.get(node.name) for node in nodes):
        raise UsageError(
            f"{run} had no part on {fold_names([node.name for node in nodes])}",
            code="CC-USE-028",
            fix=f"{command_line('clusterctl', 'status', run)} shows its nodes",
        )
    if wanted.ranks and not holding:
        known = sorted(rank for part in parts.values() if part for rank in part.ranks_of(wanted.attempt))
        raise UsageError(
            f"no rank {', '.join(map(str, wanted.ranks))} on these nodes",
            code="CC-USE-027",
            fix=f"the run has ranks {known[0]} to {known[-1]}" if known else "no worker was ever started",
        )
    return holding


def _holds(part: NodeState | None, wanted: Filter) -> bool:
    """Tell whether a node has lines that are wanted; one that does not answer now may do so while we follow."""
    if part is None:
        return wanted.follow
    if wanted.follow and part.live and part.seats:  # another attempt may give it the rank
        return True
    return wanted.ranks is None or any(rank in wanted.ranks for rank in part.ranks_of(wanted.attempt))


def _printer(run: str, parts: Parts, wanted: Filter) -> ManyLogs:
    known = {name: part for name, part in parts.items() if part}
    if wanted.as_json:
        return JsonLogs(run, {name: part.node_rank for name, part in known.items()})
    world_size = max((part.world_size or 1 for part in known.values()), default=1)
    return LogPrinter(list(known), world_size, timed=wanted.timed)


def _follow(of: Source) -> set[str]:
    """Print lines as they come until the run has ended, none lost by cuts and none doubled; gives who failed."""
    failed = {error.node for error in of.remembered.errors}
    wish, clocks = of.wanted.request(), of.remembered.offsets
    onlooker = Onlooker(of.cluster, of.run, of.nodes, of.pythons, wish, notice=notice, clocks=clocks)
    for update in onlooker.updates():
        _print(update, of.sieve)
        (failed.add if isinstance(update, StreamEnd) else failed.discard)(update.node)
    return failed


def _follow_in_order(of: Source) -> set[str]:
    """Print what was written in the order of time, then what is being written as far as that is possible."""
    known = of.remembered.pythons
    past = replace(of, nodes=[node for node in of.nodes if node.name in known], wanted=of.wanted.past)
    reading = _reading(past)
    failed = {error.node for error in of.remembered.errors} | _print_in_order(reading, of.sieve)
    wish, clocks, window = of.wanted.request(), of.remembered.offsets, Window()
    onlooker = Onlooker(
        of.cluster, of.run, of.nodes, of.pythons, wish, notice=notice, clocks=clocks, offsets=reading.offsets
    )
    try:
        for update in onlooker.updates_or_nothing(LOOK):
            if isinstance(update, LogLines):
                window.hear(update, time.monotonic(), time.time())
            elif update is not None:
                _print(update, of.sieve)
            else:
                of.sieve.show_all(window.ready(time.monotonic()))
            if update is not None:
                (failed.add if isinstance(update, StreamEnd) else failed.discard)(update.node)
    finally:
        of.sieve.show_all(window.rest())
    return failed


def _read(of: Source) -> set[str]:
    """Print node by node; gives who failed."""
    failed = {error.node for error in of.remembered.errors}
    for update in _reading(of).in_turn():
        _print(update, of.sieve)
        if isinstance(update, StreamEnd) and update.error is not None:
            failed.add(update.node)
    return failed


def _read_in_order(of: Source) -> set[str]:
    """Print the lines of all nodes in the order of time; gives who failed."""
    return {error.node for error in of.remembered.errors} | _print_in_order(_reading(of), of.sieve)


def _print_in_order(reading: Reading, sieve: Sieve) -> set[str]:
    failed = set()
    for found in reading.in_order():
        if not isinstance(found, StreamEnd):
            sieve.show_all(found)
        elif found.error is not None:
            _print(found, sieve)
            failed.add(found.node)
    return failed


def _reading(of: Source) -> Reading:
    clocks = of.remembered.offsets
    return Reading(of.cluster, of.run, of.nodes, of.pythons, of.wanted.request(), clocks=clocks)


def _print(update: Update, sieve: Sieve) -> None:
    """Print lines; tell at once of a node that is given up, for the others' lines may go on for hours."""
    if isinstance(update, LogLines):
        sieve.show_all((update,))
    elif isinstance(update, StreamEnd) and update.error is not None:
        update.error.node = update.error.node or update.node
        tell_failures([update.error])


_SPAN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_FIX = "such as 10m, 1h30m, 14:05, 2026-11-21 or 2026-11-21T14:05; a time is that of this machine"


def parse_since(text: str, now: datetime) -> float:
    """Give the moment in seconds since 1970; `now` is local. A time of day is the last one before now."""
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
        raise UsageError(f"--since {text}: neither a span nor a time", code="CC-USE-035", fix=_FIX) from error
