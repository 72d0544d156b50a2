"""Follow a run until it ends; `status --watch`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from clusterctl.cli.actions.find_runs import Remembered, ask_runs
from clusterctl.cli.actions.notify import remind, tell_end
from clusterctl.cli.context.nodes import (
    interpreter,
    myself,
    notice,
    open_cluster,
    reading_exit_code,
    tell_failures,
)
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.follower import LogLines, StateChange, StreamEnd
from clusterctl.client.watch.monitor import Attached, Watch
from clusterctl.client.watch.reader import Onlooker
from clusterctl.console.logs import JsonLogs, LogPrinter, Logs
from clusterctl.console.runs import describe_launch, make_board
from clusterctl.console.terminal import say
from clusterctl.console.text import json_text
from clusterctl.console.verdict import show_verdict
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.selection import Parts, choose_to_attach, is_live, owner_of, submitted
from clusterctl.plans.runs.state import whole_state
from clusterctl.plans.runs.verdict import to_json
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.text import command_line, counted


@dataclass(frozen=True)
class Report:
    """How a command speaks of a run: as NDJSON or in words; `command` is how its hints begin."""

    as_json: bool
    command: str

    def logs(self, run: str, ranks: Mapping[str, int], world_size: int | None) -> Logs:
        """Give what shows log lines; `ranks` are the node ranks by name."""
        return JsonLogs(run, ranks) if self.as_json else LogPrinter(ranks, world_size or 1)

    def write_end(self, state: str, exit_code: int, error: str | None = None) -> None:
        """Close the NDJSON of a run that was not followed to its end."""
        self.write_json({"verdict": {"state": state, "exit_code": exit_code, "error": error}})

    def write_json(self, entry: Mapping[str, object]) -> None:
        """Write one line of NDJSON, if that is wanted."""
        if self.as_json:
            with suppress(BrokenPipeError):
                print(json_text({"schema": 1, **entry}), flush=True)

    def hint(self, verb: str, run: str) -> str:
        """Give a command to paste."""
        return command_line(verb, run, command=self.command)

    def come_back(self, run: str) -> str:
        """Say how to come back to a run that goes on."""
        ways = {"attach": "follow it again", "status": "how it stands", "stop": "end it"}
        commands = {self.hint(verb, run): meaning for verb, meaning in ways.items()}
        width = max(map(len, commands))
        return "\n".join(f"  {command:{width}}  {meaning}" for command, meaning in commands.items())

    def leaving(self, run: str, *, stopping: bool) -> str:
        """Say what becomes of a run that nobody watches any more."""
        if stopping:
            return f"\nleft while the run was being stopped; make sure that it is: {self.hint('stop', run)}"
        return f"\ndetached; the run goes on\n{self.come_back(run)}"


def watch_run(cluster: Cluster, watch: Watch, report: Report, logs: Logs, began: float) -> int:
    """Follow a run that began at `began` (time.time()) to its verdict, whose exit code this gives; Ctrl-C leaves."""
    attached = Attached(cluster, watch, show=logs.show, notice=notice)
    try:
        verdict = attached.watch()
    except BaseException as leaving:
        say(report.leaving(watch.run, stopping=attached.stopping))
        if not isinstance(leaving, (KeyboardInterrupt, BrokenPipeError)):
            raise
        report.write_end("RUNNING", 130)
        remind(watch.run, report.hint("attach", watch.run))
        return 130
    report.write_json({"run": verdict.run, "verdict": to_json(verdict)})
    seconds = time.time() - began
    show_verdict(verdict, seconds, report.command)
    tell_end(verdict, seconds, report.command, watch.secrets)
    return verdict.exit_code


EVIDENCE = 100  # lines of each file from before we came that are read, in search of the cause
SHOWN = 10  # of these, so many are shown


@dataclass(frozen=True)
class Latest:
    """Shows what comes from now on; of what was there before only the end, or nothing."""

    logs: Logs
    shown: int

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        begin, old = entry.offset, 0
        for size in entry.sizes:
            old += begin < entry.before
            begin += size
        skipped = max(0, old - self.shown)
        if skipped < len(entry.lines):
            offset = entry.offset + sum(entry.sizes[:skipped])
            lines, sizes = entry.lines[skipped:], entry.sizes[skipped:]
            self.logs.show(replace(entry, offset=offset, lines=lines, sizes=sizes))


def attach_run(inventory: Inventory, wanted: str | None, report: Report) -> int:
    """Follow a run; the exit code is the verdict's, 4 if no node answers. NDJSON ends in a verdict in any case."""
    try:
        return _attach(inventory, wanted, report)
    except ClusterctlError as error:
        report.write_end("UNKNOWN", error.exit_code, error=f"{error.code} {error.message}")
        raise


def _attach(inventory: Inventory, wanted: str | None, report: Report) -> int:
    with open_cluster() as cluster:
        remembered = ask_runs(cluster, inventory.nodes, wanted, one=True)
        tell_failures(remembered.errors)
        if not remembered.answered:
            report.write_end("UNKNOWN", 4, error="no node answered")
            return 4
        run = choose_to_attach(remembered.runs, wanted, myself())
        parts = remembered.runs[run]
        _tell(run, parts, report)
        latest = Latest(_logs(report, run, parts), SHOWN if is_live(parts) else 0)
        return watch_run(cluster, _watch(inventory, remembered, run), report, latest, _began(parts))


def _watch(inventory: Inventory, remembered: Remembered, run: RunId) -> Watch:
    parts = remembered.runs[run]
    nodes = [node for node in inventory.nodes if node.name in parts]
    return Watch(
        run=run,
        nodes=nodes,
        interpreters={node.name: remembered.pythons.get(node.name) or interpreter(node) for node in nodes},
        offsets=remembered.offsets,
        known=parts,
        tail=EVIDENCE,
        reacts=owner_of(parts).is_same(myself()),
        names=[node.name for node in inventory.nodes],
    )


def _tell(run: str, parts: Parts, report: Report) -> None:
    """Say what one has attached to, and what one's presence means for it."""
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    state = whole_state(parts) + (f", attempt {attempt}," if attempt > 1 else "")
    say(f"run {run}: {state} on {counted(len(parts), 'node')}, {describe_launch(parts)}")
    if is_live(parts):
        say(f"each rank's last {SHOWN} lines, and what comes; all of it: {report.hint('logs', run)}")
    gang = any(part.gang for part in parts.values() if part)
    if is_live(parts) and not gang and not owner_of(parts).is_same(myself()):
        notice("it is not yours: if one node fails, the others are not stopped from here")


def _logs(report: Report, run: str, parts: Parts) -> Logs:
    known = [part for part in parts.values() if part]
    ranks = {part.node: part.node_rank for part in known}
    return report.logs(run, ranks, max((part.world_size or 1 for part in known), default=1))


def _began(parts: Parts) -> float:
    """Give when the run began, for the time that it took: one that has ended took no longer than until then."""
    if is_live(parts):
        return submitted(parts)
    ended = max(part.since for part in parts.values() if part)
    return time.time() - max(0.0, ended - submitted(parts))


PULSE = 5.0  # seconds between two looks at what each rank said last


def watch_status(
    cluster: Cluster, nodes: Sequence[Node], remembered: Remembered, run: RunId, *, as_json: bool
) -> int:
    """Follow the states; 0 when all nodes answered in the end, 5 some, 4 none."""
    parts = dict(remembered.runs[run])
    taking_part = [node for node in nodes if node.name in parts]
    pythons = {node.name: remembered.pythons.get(node.name) or interpreter(node) for node in taking_part}
    silent = {error.node for error in remembered.errors}
    wish = {"events": None, "logs": None, "pulse": PULSE}
    onlooker = Onlooker(cluster, run, taking_part, pythons, wish, notice=notice)
    with make_board(run, remembered.offsets, as_json=as_json) as board:
        board.show(parts)
        for update in onlooker.updates():
            if isinstance(update, StateChange) and update.state != parts[update.node]:
                parts[update.node] = update.state
                silent.discard(update.node)
                board.show(parts)
            elif isinstance(update, StreamEnd) and update.error is not None:
                silent.add(update.node)
                tell_failures([update.error])
    return reading_exit_code(remembered.asked - len(silent), remembered.asked)
