"""`top` of a run: how busy its nodes were."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime

import click

from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_queued
from clusterctl.cli.actions.logs import parse_since
from clusterctl.cli.context.nodes import open_cluster, reading_exit_code, report_failures
from clusterctl.client.history import HistoryChoice, fetch_records
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.console.terminal import info
from clusterctl.console.text import json_text
from clusterctl.console.top import history_to_json, show_history
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.selection import choose_run
from clusterctl.specs.inventory.model import Inventory
from clusterctl.translation import tr

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
        found = find_runs(cluster, nodes, query.run, only_one=True)
        report_failures(found.errors)
        if not found.answered:
            return 4
        run_id = choose_found_run(choose_run, found.runs, query.run)
        parts = found.runs[run_id]
        if on_slurm:
            refuse_queued(run_id, parts, "top", query.command)
            nodes = tuple(found.nodes_of(run_id))
            nodes = choose_nodes(replace(inventory, nodes=nodes), query.pattern, query.exclude)
        holders = [node for node in nodes if parts.get(node.name) and node.name in found.pythons]
        choice = HistoryChoice(seconds, JSON_POINTS if as_json else POINTS)
        records = fetch_records(RunHandle(cluster, run_id, holders, found.pythons), choice)
    report_failures(records.errors.values())
    histories = {name: record.history for name, record in records.nodes.items()}
    if as_json:
        click.echo(json_text(history_to_json(run_id, histories)))
    else:
        info(tr("run {run}", run=run_id))
        show_history(histories)
    if on_slurm:
        return reading_exit_code(len(records.nodes), len(holders))
    return reading_exit_code(found.asked - len(found.errors) - len(records.errors), found.asked)
