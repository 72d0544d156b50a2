"""Keeps the first page up to date: the runs by asking now and then, the machines by the streams of `top`.

Both are read only while a page shows them. One thread asks for the runs, a second one reads the streams: a node that
is down holds up neither.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from clusterctl.cli.actions.find_runs import FoundRuns
from clusterctl.cli.actions.monitor.top import UtilizationMonitor
from clusterctl.cli.actions.monitor.ui import overview
from clusterctl.cli.actions.monitor.ui.feed import View
from clusterctl.cli.actions.monitor.ui.fragments import render_problem
from clusterctl.cli.actions.monitor.ui.overview import Usage
from clusterctl.cli.context.nodes import current_owner
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.console.run.listing import RunSummary, summarize_runs
from clusterctl.console.text import sanitize
from clusterctl.plans.facts.utilization import is_silent
from clusterctl.plans.report.markup import NOTHING, Html, join
from clusterctl.plans.runs.selection import sort_own_first
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory

POLL = 4.0  # seconds between two questions for the runs
INTERVAL = 5.0  # seconds between two samples of a machine
CHECK = 1.0  # seconds between two looks whether the page is still there
STEADY = 2.0  # seconds by which the beginning of a run may seem to move: clocks are measured again each time


class ListFollower:
    """The runs and machines of an inventory; `find_runs` asks for the runs, `render_away` names silent nodes."""

    def __init__(
        self,
        cluster: Cluster,
        inventory: Inventory,
        view: View,
        find_runs: Callable[[], FoundRuns],
        command: str,
    ) -> None:
        self._cluster, self._inventory, self._view = cluster, inventory, view
        self._find_runs, self._command = find_runs, command
        self._used: dict[str, Usage] | None = None  # not known yet
        self._shown: dict[RunId, RunSummary] = {}
        self._failure = NOTHING  # why no more samples come

    def follow(self, render_away: Callable[[FoundRuns], Html]) -> None:
        """Publish what is known until no page shows it any more."""
        if self._inventory.slurm is None:  # of a Slurm cluster only the login node is in the inventory
            threading.Thread(target=self._try_watching_machines, daemon=True).start()
        else:
            self._view.publish("machines-note", overview.render_slurm_note())
        me = current_owner()
        while True:
            found = self._find_runs()
            runs = summarize_runs(sort_own_first(found.runs, me), me, found.node_names, found.offsets)
            self._used = _find_users(found, runs)
            self._shown = {run.run_id: self._steady(run) for run in runs}
            self._view.publish_rows("runs", overview.render_run_rows(list(self._shown.values())))
            self._view.publish("runs-note", overview.render_runs_note(len(runs), self._command))
            self._view.publish("problem", join([self._failure, render_away(found)]))
            if not self._view.pause(POLL):
                return

    def _steady(self, run: RunSummary) -> RunSummary:
        """Keep what was seen before of this attempt: its beginning, which seems to move, and its progress.

        A busy node may have had no time to read its logs.
        """
        known = self._shown.get(run.run_id)
        if known is None or known.attempt != run.attempt:
            return run
        has_moved = known.began is None or run.began is None or abs(known.began - run.began) > STEADY
        began = run.began if has_moved else known.began
        return replace(run, began=began, progress=run.progress or known.progress)

    def _try_watching_machines(self) -> None:
        """Watch them; if that fails show why, and no more the samples, which would look like new ones."""
        try:
            self._watch_machines()
        except Exception as error:
            self._failure = render_problem(error)
            self._view.publish("problem", self._failure)
            self._view.publish_rows("machines", {})
            for name in ("machines-strip", "machines-note"):
                self._view.publish(name, NOTHING)

    def _watch_machines(self) -> None:
        """Read the samples of all nodes, over the connection that each has, until no page shows them any more."""
        nodes = self._inventory.nodes
        monitor = UtilizationMonitor(self._cluster, self._inventory, nodes, INTERVAL, as_json=False)
        down: dict[str, float] = {}
        with closing(monitor.open(reconnect=True)) as streams:
            while not self._view.is_over:
                monitor.receive(streams, CHECK)
                limit = monitor.silence_limit
                for usage in monitor.nodes:
                    if is_silent(usage, time.monotonic(), limit):
                        down.setdefault(usage.node.name, time.time())
                    else:
                        down.pop(usage.node.name, None)
                rows = overview.render_machine_rows(monitor.nodes, self._used, down, limit)
                strip = overview.render_strip(monitor.nodes, self._used, down, limit)
                self._view.publish_rows("machines", rows)
                self._view.publish("machines-strip", strip)
                if monitor.shares_machine:
                    self._view.publish("machines-note", overview.render_shared_note())


def _find_users(found: FoundRuns, runs: list[RunSummary]) -> dict[str, Usage]:
    """Return for each node whose live run is on it; the newest if there are several."""
    links, users = overview.find_links(runs), dict[str, Usage]()
    for run in runs:
        for name, part in found.runs[run.run_id].items():
            if part is not None and part.live and name not in users:
                users[name] = Usage(links[run.run_id], run.job, sanitize(run.launched_by))
    return users
