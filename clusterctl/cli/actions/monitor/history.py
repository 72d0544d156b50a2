"""`top` of a run: how busy its nodes were."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import click

from clusterctl.cli.actions.find_runs import choose_found_run, find_runs
from clusterctl.cli.actions.logs import parse_since
from clusterctl.cli.context.nodes import open_cluster, reading_exit_code, report_failures
from clusterctl.client.history import HistoryChoice, fetch_records
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.console.terminal import info
from clusterctl.console.text import json_text
from clusterctl.console.top import history_to_json, show_history
from clusterctl.plans.runs.selection import choose_run
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

POINTS, JSON_POINTS = 120, 600


def show_run_history(nodes: Sequence[Node], run: str | None, since: str | None, *, as_json: bool) -> int:
    """Print what was sampled of a run; 0 when all its nodes answered, 5 some, 4 none."""
    seconds = (
        None if since is None else max(1.0, time.time() - parse_since(since, datetime.now().astimezone()))
    )
    with open_cluster() as cluster:
        found = find_runs(cluster, nodes, run, only_one=True)
        report_failures(found.errors)
        if not found.answered:
            return 4
        run_id = choose_found_run(choose_run, found.runs, run)
        parts = found.runs[run_id]
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
    return reading_exit_code(found.asked - len(found.errors) - len(records.errors), found.asked)
