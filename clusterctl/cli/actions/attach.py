"""Follow a run until it ends; `status --watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.cli.actions.find_runs import FoundRuns, choose_found_run, find_runs
from clusterctl.cli.actions.notify import announce_detached, notify_end, notify_stall
from clusterctl.cli.context.nodes import (
    interpreter,
    notice,
    open_cluster,
    reading_exit_code,
    report_failures,
)
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.follower import LogLines, StateChange
from clusterctl.client.watch.logs import LiveReader
from clusterctl.client.watch.monitor import MonitorOptions, RunMonitor
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.console.lines import HeldTracebacks, LogSink
from clusterctl.console.run.status import describe_launch, showing_status
from clusterctl.console.run.verdict import show_verdict
from clusterctl.console.terminal import can_redraw, info, is_quiet, show_live_line
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.plans.runs.selection import choose_to_attach, is_live, submitted_at
from clusterctl.plans.runs.state import Parts
from clusterctl.plans.runs.verdict import name_state, verdict_to_json
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import UNKNOWN
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.text import begin_commands
from clusterctl.translation import trn

if TYPE_CHECKING:
    from clusterctl.plans.runs.verdict import Verdict
    from clusterctl.protocol.messages.verbs import FollowChoice


Resume = Callable[["Verdict"], int | None]


def watch_run(
    cluster: Cluster,
    options: MonitorOptions,
    output: RunOutput,
    logs: LogSink,
    began: float,
    resume: Resume | None = None,
    max_old_lines: int | None = None,
) -> int:
    """Follow a run that began at `began` (time.time()) until it ends and give its exit code; Ctrl-C detaches.

    Of the lines of a file that were there before so many are shown, without `max_old_lines` all.
    `resume` follows it further where this end is not the last one, and gives None where it is.
    """
    has_live_line = can_redraw(sys.stderr) and not is_quiet() and not output.as_json
    held = HeldTracebacks(logs)
    shown: LogSink = held if output.holds_tracebacks else logs
    shown = shown if max_old_lines is None else RecentLogs(shown, max_old_lines)
    monitor = RunMonitor(
        cluster,
        options,
        show=shown.show,
        on_tick=lambda stopping: held.tick(stopping=stopping),
        notice=lambda line: notice(begin_commands(line, output.command)),
        show_silence=show_live_line if has_live_line else None,
        on_stall=lambda kept: notify_stall(
            options.run_id, kept, [node.name for node in options.nodes], output.command, options.secrets
        ),
    )

    def announce() -> None:
        announce_detached(output, options.run_id, stopping=monitor.stopping)

    INTERRUPTS.set_leaving(announce)
    try:
        verdict = monitor.watch()
        INTERRUPTS.set_leaving(announce_interrupted)
    except KeyboardInterrupt as error:
        INTERRUPTS.announce(error)
        _release(held)
        return INTERRUPTS.exit_code
    except BrokenPipeError:
        announce()
        return INTERRUPTS.exit_code
    except BaseException:
        _release(held)
        info(output.describe_leaving(options.run_id, stopping=monitor.stopping))
        raise
    was_interrupted = False
    try:  # the run has ended, and its verdict is shown in any case
        held.finish(_culprits(verdict))
        verdict = monitor.explain(verdict)
    except KeyboardInterrupt as error:
        INTERRUPTS.announce(error)
        was_interrupted = True
    if resume is not None and not was_interrupted and (code := resume(verdict)) is not None:
        return code
    _show_end(verdict, output, options, time.time() - began, held.hidden)
    return INTERRUPTS.exit_code if was_interrupted else verdict.exit_code


def _show_end(
    verdict: Verdict, output: RunOutput, options: MonitorOptions, since_command: float, hidden: int
) -> None:
    output.write_json({"schema": 1, "run": verdict.run_id, "verdict": verdict_to_json(verdict)})
    show_verdict(verdict, since_command, output.command, hidden)
    seconds = since_command if verdict.seconds is None else verdict.seconds
    notify_end(verdict, seconds, output.command, options.secrets)


def _release(held: HeldTracebacks) -> None:
    """Show what was held back, if anything still reads it."""
    with suppress(OSError):
        held.finish(())


def _culprits(verdict: Verdict) -> set[tuple[str, Rank]]:
    """Return the rank (node, rank) that failed first, where that is known."""
    failure = verdict.cause.failure if verdict.cause is not None else None
    return {(failure.node, failure.rank)} if failure is not None and failure.rank is not None else set()


EVIDENCE_LINES = 100  # lines of each file from before we came that are read, in search of the cause
SHOWN_LINES = 10  # of these, so many are shown


@dataclass(frozen=True)
class RecentLogs:
    """Shows what comes from now on; of what was there before only the end, or nothing."""

    logs: LogSink
    max_lines: int

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""
        return self.logs.hidden

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        old_lines = sum(offset < entry.initial_size for offset in entry.offsets)
        skipped = max(0, old_lines - self.max_lines)
        if skipped < len(entry.lines):
            self.logs.show(entry.cut(slice(skipped, None), entry.gone))


@dataclass(frozen=True)
class QueuedRun:
    """A run that another program starts: `follow` waits for that, `resume` where it is put back into the queue."""

    follow: Callable[[], int]
    resume: Resume


FindQueued = Callable[[Cluster, FoundRuns, RunId, RunOutput], QueuedRun]


def attach_run(
    inventory: Inventory, run_prefix: str | None, output: RunOutput, find_queued: FindQueued | None = None
) -> int:
    """Follow a run; the exit code is the verdict's, 4 if no node answers. NDJSON ends in a verdict in any case.

    `find_queued` is for runs that Slurm starts.
    """
    try:
        return _attach(inventory, run_prefix, output, find_queued)
    except ClusterctlError as error:
        output.write_failure(UNKNOWN, error)
        raise


def _attach(
    inventory: Inventory, run_prefix: str | None, output: RunOutput, find_queued: FindQueued | None
) -> int:
    with open_cluster() as cluster:
        found_runs = find_runs(cluster, inventory.nodes, run_prefix, only_one=True)
        report_failures(found_runs.errors)
        if not found_runs.answered:
            output.write_end(UNKNOWN, 4, error="no node answered")
            return 4
        run_id = choose_found_run(choose_to_attach, found_runs.runs, run_prefix)
        parts = found_runs.runs[run_id]
        queued = find_queued(cluster, found_runs, run_id, output) if find_queued else None
        if queued is not None and any(part.is_queued for part in parts.values() if part):
            return queued.follow()
        _announce(run_id, parts, output)
        logs = open_logs(output, run_id, parts)
        old_lines = SHOWN_LINES if is_live(parts) else 0
        options = _monitor_options(inventory, found_runs, run_id)
        resume = queued.resume if queued and is_live(parts) else None
        return watch_run(cluster, options, output, logs, _start_time(parts), resume, old_lines)


def _monitor_options(inventory: Inventory, found_runs: FoundRuns, run_id: RunId) -> MonitorOptions:
    parts = found_runs.runs[run_id]
    nodes = found_runs.nodes_of(run_id)
    return MonitorOptions(
        run_id=run_id,
        nodes=nodes,
        interpreters={node.name: found_runs.pythons.get(node.name) or interpreter(node) for node in nodes},
        offsets=found_runs.offsets,
        known_states=parts,
        tail=EVIDENCE_LINES,
        inventory_names=[node.name for node in inventory.nodes],
    )


def _announce(run_id: RunId, parts: Parts, output: RunOutput) -> None:
    """Print which run is attached to, and what an attached client changes for it."""
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    facts = {"run": run_id, "state": name_state(run_id, parts), "launch": describe_launch(parts)}
    if attempt > 1:
        message = trn(
            "run {run}: {state}, attempt {attempt}, on {n} node, {launch}",
            "run {run}: {state}, attempt {attempt}, on {n} nodes, {launch}",
            len(parts),
            attempt=attempt,
            **facts,
        )
    else:
        message = trn(
            "run {run}: {state} on {n} node, {launch}",
            "run {run}: {state} on {n} nodes, {launch}",
            len(parts),
            **facts,
        )
    info(message)
    if is_live(parts):
        info(
            trn(
                "showing the last line of each rank, then new lines; full log: {command}",
                "showing the last {n} lines of each rank, then new lines; full log: {command}",
                SHOWN_LINES,
                command=output.hint("logs", run_id),
            )
        )


def open_logs(output: RunOutput, run_id: str, parts: Parts) -> LogSink:
    """Return what shows the lines of a run, as wide as its ranks need."""
    states = [part for part in parts.values() if part]
    node_ranks = {part.node: part.node_rank for part in states}
    return output.logs(run_id, node_ranks, max((part.world_size or 1 for part in states), default=1))


def _start_time(parts: Parts) -> float:
    """Return when the run began, for the time that it took: one that has ended took no longer than until then."""
    if is_live(parts):
        return submitted_at(parts)
    ended = max(part.since for part in parts.values() if part)
    return time.time() - max(0.0, ended - submitted_at(parts))


PULSE = 5.0  # seconds between two reads of the last line of each rank


def watch_status(cluster: Cluster, found_runs: FoundRuns, run_id: RunId, *, as_json: bool) -> int:
    """Follow the states; 0 when all nodes answered in the end, 5 some, 4 none."""
    parts = dict(found_runs.runs[run_id])
    taking_part = found_runs.nodes_of(run_id)
    pythons = {node.name: found_runs.pythons.get(node.name) or interpreter(node) for node in taking_part}
    unanswered = {error.node for error in found_runs.errors}
    request: FollowChoice = {"events": None, "logs": None, "activity": PULSE}
    run = tasks.RunHandle(cluster, run_id, taking_part, pythons)
    reader = LiveReader(run, request, notice=notice)
    with showing_status(run_id, found_runs.offsets, as_json=as_json) as show:
        show(parts)
        for update in reader.updates():
            if isinstance(update, StateChange) and update.state != parts[update.node]:
                parts[update.node] = update.state
                unanswered.discard(update.node)
                show(parts)
            elif isinstance(update, StreamEnd) and update.error is not None:
                unanswered.add(update.node)
                report_failures([update.error])
    return reading_exit_code(found_runs.asked - len(unanswered), found_runs.asked)
