"""Hear the nodes' gauges and show them: once, or until the user has seen enough."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing

import click

from clusterctl.cli.context.nodes import interpreter, reading_exit_code, tell_failures
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.utilization import GaugeStreams
from clusterctl.console.terminal import wants_color
from clusterctl.console.text import json_text
from clusterctl.console.top import Dashboard, show_top, top_to_json
from clusterctl.errors import ClusterctlError
from clusterctl.plans.facts.utilization import Gauged
from clusterctl.specs.inventory.model import Node

ONCE_INTERVAL = 0.5  # seconds between looks while GPUs are still being asked
ONCE_LIMIT = 45.0
REDRAW = 0.5  # seconds; ages go on by themselves
SILENT_AFTER = 3.0  # intervals without a sample, and at least
LEAST_SILENCE = 5.0  # seconds


class Gauging:
    """What is known of each node, kept up to date."""

    def __init__(self, cluster: Cluster, nodes: Sequence[Node], interval: float, *, as_json: bool) -> None:
        self._cluster, self._interval, self._as_json = cluster, interval, as_json
        self._pythons = {node.name: interpreter(node) for node in nodes}
        self._known = {node.name: Gauged(node) for node in nodes}
        self._errors: dict[str, ClusterctlError] = {}
        self._silence = max(LEAST_SILENCE, interval * SILENT_AFTER)

    def once(self) -> int:
        """Show one look; 0 when all nodes answered, 5 some, 4 none."""
        until = time.monotonic() + ONCE_LIMIT
        with closing(self._open(ONCE_INTERVAL, returning=False)) as streams:
            while self._awaited() and time.monotonic() < until:
                self._hear(streams, 0.2)
        self._show()
        tell_failures(self._errors.values())
        answered = sum(one.sample is not None for one in self._known.values())
        return reading_exit_code(answered, len(self._known))

    def go_on(self) -> int:
        """Show one look after the other until Ctrl-C."""
        with closing(self._open(self._interval, returning=True)) as streams:
            if not self._as_json and sys.stdout.isatty() and wants_color(sys.stdout):
                with Dashboard(self._silence) as board:
                    while True:
                        self._hear(streams, REDRAW)
                        board.show(self._nodes, time.monotonic())
            while True:
                until = time.monotonic() + self._interval
                while (left := until - time.monotonic()) > 0:
                    self._hear(streams, min(left, REDRAW))
                self._show()

    @property
    def _nodes(self) -> list[Gauged]:
        return list(self._known.values())

    def _open(self, interval: float, *, returning: bool) -> GaugeStreams:
        nodes = [one.node for one in self._nodes]
        streams = GaugeStreams(self._cluster, nodes, self._pythons, interval, returning=returning)
        streams.open_all()
        return streams

    def _hear(self, streams: GaugeStreams, wait: float) -> None:
        for update in streams.updates(wait):
            name, now = update.node.name, time.monotonic()
            if update.value is not None:
                self._known[name] = self._known[name].hear(update.value, now)
                self._errors.pop(name, None)
            elif update.error is not None:
                self._known[name] = self._known[name].lose(f"{update.error.code} {update.error.message}")
                self._errors[name] = update.error

    def _awaited(self) -> list[str]:
        """Name the nodes that have neither failed nor told all they have."""
        return [
            name
            for name, one in self._known.items()
            if name not in self._errors and (one.sample is None or one.sample.gpu_pending)
        ]

    def _show(self) -> None:
        now = time.monotonic()
        if self._as_json:
            click.echo(json_text(top_to_json(self._nodes, now)))
        else:
            show_top(self._nodes, now, self._silence)
