"""Find a run on its nodes and follow it to its verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from clusterctl.cli.connecting import open_cluster
from clusterctl.cli.reaching import interpreter, myself, notice, tell_failures
from clusterctl.cli.remembering import Remembered, ask_runs
from clusterctl.cli.watching import Report, watch_run
from clusterctl.console.choice import say
from clusterctl.console.logs import Logs
from clusterctl.console.runs import describe_launch
from clusterctl.errors import ClusterctlError
from clusterctl.plans.choose_run import Parts, choose_to_attach, is_live, owner_of, submitted
from clusterctl.plans.state import whole_state
from clusterctl.protocol.run_id import RunId
from clusterctl.runs.attached import Watch
from clusterctl.runs.follow import LogLines
from clusterctl.specs.counted import counted
from clusterctl.specs.inventory import Inventory

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
