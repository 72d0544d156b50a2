"""Read the nodes' samples and show them: once, or until the user ends it; or those that a run has left."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from clusterctl.cli.actions.find_runs import find_one_run, find_runs, refuse_queued
from clusterctl.cli.actions.logs import parse_since
from clusterctl.cli.context.nodes import interpreter, open_cluster, reading_exit_code, report_failures
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.run_evidence import HistoryChoice, fetch_records
from clusterctl.client.watch.streams import UtilizationStreams
from clusterctl.console.documents.output import write_line
from clusterctl.console.run.listing import describe_live_runs
from clusterctl.console.terminal import info, uses_color
from clusterctl.console.top import (
    TopLayout,
    UtilizationView,
    history_to_json,
    reading_keys,
    show_history,
    show_top,
    top_to_json,
)
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.facts.utilization import NodeUsage, render_openmetrics
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.ssh import name_lab
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.translation import tr

ONCE_INTERVAL = 0.5  # seconds between samples while GPUs are still being read
ONCE_LIMIT = 45.0
RUNS_EVERY = 15.0  # seconds between two questions for the runs
RUNS_LIMIT = 10.0  # seconds that one look waits for them
REDRAW = 0.5  # seconds; ages go on by themselves
SILENT_AFTER = 3.0  # intervals without a sample, and at least
MIN_SILENCE = 5.0  # seconds


class UtilizationMonitor:
    """What is known of each node, kept up to date."""

    def __init__(
        self,
        cluster: Cluster,
        inventory: Inventory,
        nodes: Sequence[Node],
        interval: float,
        *,
        as_json: bool,
        openmetrics: str | None = None,
    ) -> None:
        self._cluster, self._interval, self._as_json = cluster, interval, as_json
        self._openmetrics = openmetrics
        self._name, self._all_nodes = inventory.cluster, inventory.nodes
        self.shares_machine = len(nodes) > 1 and all(
            name_lab(node.host, node.ssh.key, node.ssh.proxy_command) for node in nodes
        )
        self._runs: dict[str, str] = {}
        self._runs_found_at: float | None = None
        self._pythons = {node.name: interpreter(node) for node in nodes}
        self._gauged = {node.name: NodeUsage(node) for node in nodes}
        self._errors: dict[str, ClusterctlError] = {}
        self.silence_limit = max(MIN_SILENCE, interval * SILENT_AFTER)

    def show_once(self) -> int:
        """Show one look; 0 when all nodes answered, 5 some, 4 none."""
        deadline = time.monotonic() + ONCE_LIMIT
        finding = None if self._as_json else self._start_finding_runs()
        with closing(self.open(reconnect=False, interval=ONCE_INTERVAL)) as streams:
            while self._pending_nodes() and time.monotonic() < deadline:
                self.receive(streams, 0.2)
        if finding is not None:
            INTERRUPTS.call(lambda: finding.join(RUNS_LIMIT))
        self._show()
        report_failures(self._errors.values())
        answered = sum(gauged.sample is not None for gauged in self._gauged.values())
        return reading_exit_code(answered, len(self._gauged))

    def show_live(self) -> int:
        """Show one look after the other until Ctrl-C."""
        with closing(self.open(reconnect=True)) as streams:
            if not self._as_json and sys.stdout.isatty() and uses_color(sys.stdout):
                with (
                    reading_keys() as read_keys,
                    UtilizationView(self.silence_limit, self._name, self._interval) as dashboard,
                ):
                    while dashboard.press(read_keys()):
                        self.receive(streams, REDRAW)
                        self._find_runs_again()
                        self._export()
                        dashboard.show(self.nodes, time.monotonic(), self._layout)
                    return 0
            while True:
                next_show = time.monotonic() + self._interval
                while (remaining := next_show - time.monotonic()) > 0:
                    self.receive(streams, min(remaining, REDRAW))
                self._show()

    def _find_runs_again(self) -> None:
        """Ask now and then which runs the nodes have; the screen does not wait for the answer."""
        if self._runs_found_at is None or time.monotonic() - self._runs_found_at > RUNS_EVERY:
            self._start_finding_runs()

    def _start_finding_runs(self) -> threading.Thread:
        self._runs_found_at = time.monotonic()
        thread = threading.Thread(target=self._find_live_runs, daemon=True)
        thread.start()
        return thread

    def _find_live_runs(self) -> None:
        with suppress(ClusterctlError):
            self._runs = describe_live_runs(find_runs(self._cluster, self._all_nodes, None).runs)

    @property
    def _layout(self) -> TopLayout:
        return TopLayout(runs=self._runs, shares_machine=self.shares_machine)

    @property
    def nodes(self) -> list[NodeUsage]:
        """Return what is known of each node."""
        return list(self._gauged.values())

    def open(self, *, reconnect: bool, interval: float | None = None) -> UtilizationStreams:
        """Open the stream of each node, by default with the monitor's interval."""
        nodes = [gauged.node for gauged in self.nodes]
        every = self._interval if interval is None else interval
        streams = UtilizationStreams(self._cluster, nodes, self._pythons, every, reconnect=reconnect)
        streams.open_all()
        return streams

    def receive(self, streams: UtilizationStreams, wait: float) -> None:
        """Take in what the nodes send within `wait` seconds."""
        for update in streams.updates(wait):
            name, now = update.node.name, time.monotonic()
            if update.value is not None:
                self._gauged[name] = self._gauged[name].with_sample(update.value, now)
                self._errors.pop(name, None)
            elif update.error is not None:
                self._gauged[name] = self._gauged[name].with_error(
                    f"{update.error.code} {update.error.message}"
                )
                self._errors[name] = update.error

    def _pending_nodes(self) -> list[str]:
        """Name the nodes that have neither failed nor sent all their values."""
        return [
            name
            for name, gauged in self._gauged.items()
            if name not in self._errors and (gauged.sample is None or gauged.sample.gpu_pending)
        ]

    def _export(self) -> None:
        """Write the newest samples for Prometheus: whole, or not at all."""
        if self._openmetrics is not None:
            path = Path(self._openmetrics)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_text(render_openmetrics(self.nodes), encoding="utf-8")
            unfinished.replace(path)

    def _show(self) -> None:
        now = time.monotonic()
        self._export()
        if self._as_json:
            write_line(top_to_json(self.nodes, now))
        else:
            show_top(self.nodes, now, self.silence_limit, self._layout)


POINTS, JSON_POINTS = 120, 600


@dataclass(frozen=True)
class HistoryQuery:
    """Which run, since when, and on which nodes; `command` is how fixes begin."""

    run: str | None
    since: str | None
    pattern: str | None
    exclude: str | None
    command: str


def show_run_history(inventory: Inventory, query: HistoryQuery, *, as_json: bool) -> int:
    """Print what was sampled of a run; 0 when all its nodes answered, 5 some, 4 none."""
    now = datetime.now().astimezone()
    seconds = None if query.since is None else max(1.0, time.time() - parse_since(query.since, now))
    on_slurm = inventory.slurm is not None
    nodes = inventory.nodes if on_slurm else choose_nodes(inventory, query.pattern, query.exclude)
    with open_cluster() as cluster:
        found, run_id = find_one_run(cluster, nodes, query.run)
        if run_id is None:
            return 4
        holders = found.holders(run_id)
        if on_slurm:
            refuse_queued(run_id, found.runs[run_id], "top", query.command)
            nodes = tuple(found.nodes_of(run_id))
            chosen = choose_nodes(replace(inventory, nodes=nodes), query.pattern, query.exclude)
            holders = [node for node in holders if node in chosen]
        choice = HistoryChoice(seconds, JSON_POINTS if as_json else POINTS)
        records = fetch_records(RunHandle(cluster, run_id, holders, found.pythons), choice)
    report_failures(records.errors.values())
    histories = {name: record.history for name, record in records.nodes.items()}
    if as_json:
        write_line(history_to_json(run_id, histories))
    else:
        info(tr("run {run}", run=run_id))
        show_history(histories)
    if on_slurm:
        return reading_exit_code(len(records.nodes), len(holders))
    return reading_exit_code(found.asked - len(found.errors) - len(records.errors), found.asked)
