"""Write the report of a run, or of two, into a file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from clusterctl.cli.actions.find_runs import (
    FoundRuns,
    choose_found_run,
    fetch_end_record,
    find_runs,
    refuse_queued,
)
from clusterctl.cli.context.nodes import PARTLY, open_cluster, reading_exit_code, report_failures
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.run_evidence import HistoryChoice, Records, fetch_records, load_hang
from clusterctl.console.documents.output import write_document
from clusterctl.console.run.verdict import render_remarks
from clusterctl.console.terminal import print_line
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.cause import Explanation, explain_end
from clusterctl.plans.runs.judge_speed import judge_speed, judge_waiting
from clusterctl.plans.runs.selection import choose_run
from clusterctl.plans.runs.state import Parts, find_stalls
from clusterctl.plans.runs.verdict import Verdict, conclude, judged_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.run_paths import short_id
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.text import command_line, render_size
from clusterctl.translation import tr, trn

POINTS, FEWER_POINTS, MANY_NODES = 300, 120, 16
LINES = 20  # of each rank's output
MAX_STALLS = 8  # ranks that are named as silent
SECRETS = "secrets"  # key of what a launch has recorded: names of variables


def write_report(
    inventory: Inventory, runs: Sequence[str], output: str | None, command: str, *, as_json: bool = False
) -> int:
    """Write it; 0 when all nodes of the runs answered, 5 some, 4 none."""
    with open_cluster() as cluster:
        found = find_runs(cluster, inventory.nodes, None, pulse=True)
        report_failures(found.errors)
        if not found.answered:
            return 4
        prefixes: Sequence[str | None] = runs or (None,)
        choice = HistoryChoice(None, POINTS, details=True, lines=LINES, code=len(prefixes) > 1)
        reported = [_read(cluster, inventory, found, prefix, command, choice) for prefix in prefixes]
    page = render_report(reported[0], reported[1] if len(reported) > 1 else None, command, _secrets(reported))
    path = Path(output or f"{'-'.join(short_id(run.run_id) for run in reported)}.html")
    size = path.write_bytes(page.encode("utf-8"))
    if as_json:
        names: list[str] = [run.run_id for run in reported]
        write_document({"schema": 1, "file": str(path), "bytes": size, "runs": names})
    else:
        print_line(tr("{path}: {size}", path=path, size=render_size(size)))
    missing = sum(len(run.silent) for run in reported)
    if inventory.slurm is not None:
        asked = sum(len(run.parts) for run in reported)
        code = reading_exit_code(asked - missing, asked)
    else:
        answered = found.asked - len(found.errors) - min(missing, found.answered - 1)
        code = reading_exit_code(answered, found.asked)
    replaced = any(record.replaced_logs for run in reported for record in run.records.values())
    return code or (PARTLY if replaced else 0)


def _read(
    cluster: Cluster,
    inventory: Inventory,
    found: FoundRuns,
    prefix: str | None,
    command: str,
    choice: HistoryChoice,
) -> ReportedRun:
    run_id = choose_found_run(choose_run, found.runs, prefix)
    parts = fetch_end_record(cluster, inventory.nodes, found, run_id, named=False)
    refuse_queued(run_id, parts, "report", command)
    names = {node.name for node in inventory.nodes} if inventory.slurm is None else set(parts)
    verdict = conclude(run_id, parts, names, found.offsets)
    nodes = found.holders(run_id)
    points = POINTS if len(nodes) <= MANY_NODES else FEWER_POINTS
    handle = RunHandle(cluster, run_id, nodes, found.pythons)
    records = fetch_records(handle, replace(choice, points=points))
    report_failures(records.errors.values())
    report_failures(log.error for record in records.nodes.values() for log in record.replaced_logs)
    run = report_run(run_id, parts, verdict, found.offsets, records, command)
    return replace(run, hang=load_hang(handle, parts))


def report_run(
    run_id: RunId,
    parts: Parts,
    verdict: Verdict | None,
    offsets: Mapping[str, float],
    records: Records,
    command: str,
) -> ReportedRun:
    """Put together what is known of a run; `command` is how commands in its texts begin."""
    silent = {name: tr("no answer") for name, part in parts.items() if part is None}
    slow, now = judge_waiting(records.nodes), time.time()
    return ReportedRun(
        run_id=run_id,
        parts=parts,
        verdict=verdict,
        explanation=Explanation() if verdict is None else explain_end(verdict, command),
        records=records.nodes,
        now=now,
        date=render_date,
        offsets=offsets,
        remarks=_remarks(run_id, parts, verdict, offsets, command),
        silent={
            **silent,
            **{name: f"{error.code} {error.message}" for name, error in records.errors.items()},
        },
        slow=slow,
        speed=judge_speed(judged_state(verdict, parts), parts, records.nodes, slow, offsets, now),
        command=command,
    )


def _remarks(
    run_id: RunId, parts: Parts, verdict: Verdict | None, offsets: Mapping[str, float], command: str
) -> tuple[str, ...]:
    """Return what else is known: of a run that has ended as `launch` shows it, of a live one which ranks may hang."""
    if verdict is not None:
        return tuple(render_remarks(verdict, command))
    lines = [
        tr("rank {rank} on {node}: {why}", rank=rank, node=name, why=why)
        for name, ranks in find_stalls(parts, offsets, time.time()).items()
        for rank, why in ranks.items()
    ]
    more = len(lines) - MAX_STALLS
    if more > 0:
        lines[MAX_STALLS:] = [trn("and {n} more rank", "and {n} more ranks", more)]
    diagnose = command_line("diagnose", short_id(run_id), command=command)
    return (*lines, diagnose) if lines else ()


def render_date(moment: float) -> str:
    """Write a moment with its time zone: a report is read elsewhere."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(moment))


def _secrets(reported: Sequence[ReportedRun]) -> list[str]:
    """Return the values of the jobs' secrets, as far as they are in our own environment."""
    names = {
        name
        for run in reported
        for record in run.records.values()
        for name in record.launched.about.get(SECRETS, "").split()
    }
    return [value for name in names if (value := os.environ.get(name))]
