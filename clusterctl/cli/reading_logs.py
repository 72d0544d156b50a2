"""Open the log streams of a run and print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.cli.connecting import open_cluster
from clusterctl.cli.reaching import interpreter, myself, notice, reading_exit_code, tell_failures
from clusterctl.cli.remembering import Remembered, ask_runs
from clusterctl.console.choice import say
from clusterctl.console.logs import JsonLogs, LogPrinter, Logs
from clusterctl.errors import UsageError
from clusterctl.plans.choose_run import Parts, choose_run
from clusterctl.plans.placement import choose_nodes
from clusterctl.plans.state import NodeState
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.follow import Follower, LogLines, StreamEnd, Update
from clusterctl.runs.onlooking import Onlooker
from clusterctl.runs.session import Session
from clusterctl.specs.inventory import Inventory, Node
from clusterctl.specs.nodeset import fold_names


@dataclass(frozen=True)
class Filter:
    """Which lines are wanted."""

    ranks: tuple[int, ...] | None
    tail: int | None
    grep: str | None
    stream: str | None
    follow: bool
    attempt: int | None = None

    def request(self) -> dict[str, Any]:
        """Give the question that a node answers."""
        logs: dict[str, Any] = {
            "ranks": list(self.ranks) if self.ranks is not None else None,
            "streams": [self.stream] if self.stream else ["stdout", "stderr"],
            "offsets": {},
            "tail": self.tail,
            "grep": self.grep,
            **({"attempt": self.attempt} if self.attempt is not None else {}),
        }
        return {"events": None, "logs": logs, "follow": self.follow}


class Counting:
    """Counts the lines that go to a printer."""

    def __init__(self, printer: Logs) -> None:
        self._printer = printer
        self.lines = 0

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.lines += len(entry.lines)
        self._printer.show(entry)


@dataclass(frozen=True)
class Reading:
    """Whose lines of which run are read, and where they go."""

    cluster: Cluster
    nodes: Sequence[Node]
    remembered: Remembered
    run: str
    wanted: Filter
    printer: Logs


def read_logs(
    inventory: Inventory, run: str | None, pattern: str | None, wanted: Filter, *, as_json: bool
) -> int:
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
        printer = _printer(chosen, parts, as_json)
        read = _follow if wanted.follow else _read
        counting = Counting(printer)
        failed = read(Reading(cluster, holders, remembered, chosen, wanted, counting))
    if wanted.grep is not None and not counting.lines:
        say(f"no line matches {wanted.grep!r}")
    return reading_exit_code(remembered.asked - len(failed), remembered.asked)


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
            fix=f"clusterctl status {run} shows its nodes",
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


def _printer(run: str, parts: Parts, as_json: bool) -> LogPrinter | JsonLogs:
    known = {name: part for name, part in parts.items() if part}
    if as_json:
        return JsonLogs(run, {name: part.node_rank for name, part in known.items()})
    return LogPrinter(list(known), max((part.world_size or 1 for part in known.values()), default=1))


def _follow(of: Reading) -> set[str]:
    """Print lines as they come until the run has ended, none lost by cuts and none doubled; gives who failed."""
    failed = {error.node for error in of.remembered.errors}
    pythons = {node.name: of.remembered.pythons.get(node.name) or interpreter(node) for node in of.nodes}
    onlooker = Onlooker(of.cluster, of.run, of.nodes, pythons, of.wanted.request(), notice=notice)
    for update in onlooker.updates():
        _print(update, of.printer)
        (failed.add if isinstance(update, StreamEnd) else failed.discard)(update.node)
    return failed


def _read(of: Reading) -> set[str]:
    """Open every node's stream and print node by node, while the others are kept alive; gives who failed."""
    opened: dict[str, Session] = {}
    failed = {error.node for error in of.remembered.errors}

    for outcome in of.cluster.each(
        of.nodes,
        lambda c, node: tasks.follow(c, node, of.remembered.pythons[node.name], of.run, of.wanted.request()),
    ):
        if outcome.value is not None:
            opened[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            tell_failures([outcome.error])
            failed.add(outcome.node.name)
    ordered = {node.name: opened[node.name] for node in of.nodes if node.name in opened}
    return failed | _print_all(ordered, of.printer)


def _print_all(streams: Mapping[str, Session], printer: Logs) -> set[str]:
    follower = Follower(live=False)
    failed: set[str] = set()
    for name, stream in streams.items():
        follower.add(name, stream)
    try:
        for turn in streams:
            while follower.holds(turn):
                for update in follower.updates(1.0, only=turn):
                    _print(update, printer)
                    if isinstance(update, StreamEnd) and update.error is not None:
                        failed.add(update.node)
    finally:
        follower.close()
    return failed


def _print(update: Update, printer: Logs) -> None:
    """Print lines; tell at once of a node that is given up, for the others' lines may go on for hours."""
    if isinstance(update, LogLines):
        printer.show(update)
    elif isinstance(update, StreamEnd) and update.error is not None:
        update.error.node = update.error.node or update.node
        tell_failures([update.error])
