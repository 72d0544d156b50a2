"""`status`, `attach`, `ps` and `diagnose`: the runs on the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl.cli.completion import complete_run
from clusterctl.cli.context.load import Settings, load_inventory, refuse_on_slurm
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import WholeNumber, json_option, shared_options
from clusterctl.console.documents.output import write_document
from clusterctl.console.text import json_text
from clusterctl.errors import UsageError
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate

if TYPE_CHECKING:
    from clusterctl.cli.actions.find_runs import FoundRuns
    from clusterctl.client.rpc.cluster import Cluster
    from clusterctl.console.documents.check import DiagnoseDocument
    from clusterctl.plans.cleanup import WarmServer
    from clusterctl.plans.diagnose.evidence import NodeEvidence
    from clusterctl.specs.inventory.model import Node


@click.command(
    cls=VerbCommand,
    context_settings={"allow_extra_args": True},
    examples=[
        ("clusterctl ps", ""),
        ("clusterctl ps --json", "as JSON"),
    ],
)
@click.option("--orphans", is_flag=True, hidden=True)  # `clean --orphans --dry-run` of today
@json_option("Write the runs as JSON.")
@shared_options
def ps(settings: Settings, orphans: bool, as_json: bool) -> int:
    """List the runs on the nodes, the newest first; with -v full ids, nodes and directories."""
    if words := click.get_current_context().args:
        command = command_line("status", words[0], command=settings.command)
        raise UsageError("CC-USE-092", "option", words=" ".join(words), command=command)
    from clusterctl.cli.actions.find_runs import find_runs
    from clusterctl.cli.context.nodes import current_owner, open_cluster, reading_exit_code, report_failures
    from clusterctl.console.run.listing import runs_to_json, show_runs
    from clusterctl.plans.runs.selection import sort_own_first

    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        if orphans:
            refuse_on_slurm(inventory, "ps --orphans")
            from clusterctl.cli.actions.clean import list_orphans

            return list_orphans(cluster, inventory.nodes, as_json=as_json)
        found_runs = find_runs(cluster, inventory.nodes, None)
        warm = _query_warm(cluster, inventory.nodes, found_runs)
    report_failures(found_runs.errors)
    me = current_owner()
    names = found_runs.node_names
    if as_json:
        from clusterctl.console.cleanup import warm_to_json

        runs = sort_own_first(found_runs.runs, me)
        write_document(runs_to_json(runs, me, names, warm_to_json(warm), found_runs.offsets))
    elif found_runs.answered:
        show_runs(found_runs.runs, me, names, found_runs.offsets)
        if warm:
            from clusterctl.console.cleanup import show_warm

            show_warm(warm)
    return reading_exit_code(found_runs.answered, found_runs.asked)


def _query_warm(
    cluster: Cluster, nodes: Sequence[Node], found_runs: FoundRuns
) -> Mapping[str, Sequence[WarmServer]]:
    """Ask only where a run has left something warm."""
    from clusterctl.plans.cleanup import may_be_warm

    states = [part for parts in found_runs.runs.values() for part in parts.values() if part is not None]
    names = may_be_warm(states, found_runs.offsets, time.time())
    if not names:
        return {}
    from clusterctl.cli.actions.clean import query_warm_servers

    warm, _ = query_warm_servers(cluster, [node for node in nodes if node.name in names])
    return {name: servers for name, servers in warm.items() if servers}


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl status", "your newest run"),
        ("clusterctl status train-2026", "the run with this prefix"),
        ("clusterctl status -w", "every change of state until the run ends"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.option("-w", "--watch", is_flag=True, help="Print every change until the run ends.")
@json_option("Write JSON; with -w one line per change.")
@shared_options
def status(settings: Settings, run: str | None, watch: bool, as_json: bool) -> int:
    """Show one run: its nodes, its ranks and why it ended.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    from clusterctl.cli.actions.attach import watch_status
    from clusterctl.cli.actions.find_runs import choose_found_run, fetch_end_record, find_runs
    from clusterctl.cli.context.nodes import open_cluster, reading_exit_code, report_failures
    from clusterctl.client.diagnose import load_hang
    from clusterctl.client.rpc.tasks import RunHandle
    from clusterctl.console.run.status import show_status, status_to_json
    from clusterctl.plans.runs.selection import choose_run

    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found_runs = find_runs(cluster, inventory.nodes, run, pulse=True, only_one=True)
        report_failures(found_runs.errors)
        if not found_runs.answered:
            return 4
        run_id = choose_found_run(choose_run, found_runs.runs, run)
        if watch:
            return watch_status(cluster, found_runs, run_id, as_json=as_json)
        parts = fetch_end_record(cluster, inventory.nodes, found_runs, run_id, named=run is not None)
        nodes = found_runs.nodes_of(run_id)
        hang = load_hang(RunHandle(cluster, run_id, nodes, found_runs.pythons), parts)
        names = {node.name for node in (*inventory.nodes, *nodes)}
    if as_json:
        document = status_to_json(run_id, parts, found_runs.offsets, names, hang)
        write_document(document)
    else:
        show_status(run_id, parts, found_runs.offsets, settings.command, names, hang)
    return reading_exit_code(found_runs.answered, found_runs.asked)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl diagnose", "which rank the others wait for, and where it is"),
        ("clusterctl diagnose --stacks", "the stacks of all threads"),
        ("clusterctl diagnose --slow", "which rank the others wait for in each step"),
        ("clusterctl diagnose --save hang/", "everything in files, for a bug report"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.option(
    "--rank",
    type=WholeNumber(to_translate("{value!r} is not a rank")),
    metavar="N",
    multiple=True,
    help="Show only this global rank; may be repeated.",
)
@click.option("--stacks", is_flag=True, help="Print the stacks of all threads; equal ones once.")
@click.option(
    "--slow",
    is_flag=True,
    help="Find the rank that arrives last in the collectives of a run that makes progress.",
)
@click.option(
    "--save", metavar="DIR", type=click.Path(file_okay=False), help="Write stacks and evidence to files."
)
@json_option("Write the answer and the evidence of every rank as JSON.")
@shared_options
def diagnose(
    settings: Settings,
    run: str | None,
    rank: tuple[int, ...],
    stacks: bool,
    slow: bool,
    save: str | None,
    as_json: bool,
) -> int:
    """Find out why a run makes no progress: which rank, which collective, which line.

    Reads every rank's stacks and torch's record of its collectives. Nothing is stopped, and no rank is
    slowed down. RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    from clusterctl.cli.actions.find_runs import choose_found_run, find_runs
    from clusterctl.cli.actions.monitor.diagnosis import diagnose_run
    from clusterctl.cli.context.nodes import open_cluster, reading_exit_code, report_failures
    from clusterctl.client.diagnose import save_diagnosis
    from clusterctl.console.run.hang import diagnosis_to_json, gpus_to_json, show_diagnosis, show_gpus
    from clusterctl.console.text import sanitize
    from clusterctl.plans.runs.selection import choose_run

    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found = find_runs(cluster, inventory.nodes, run, only_one=True)
        report_failures(found.errors)
        if not found.answered:
            return 4
        run_id = choose_found_run(choose_run, found.runs, run)
        diagnosis = diagnose_run(cluster, found, run_id, settings.command, slow=slow)
    answers, judgement = diagnosis.answers, diagnosis.judgement
    report_failures(answers.errors.values())
    if slow:
        _report_slowness(run_id, answers.nodes.values(), settings.command, as_json=as_json)
        return reading_exit_code(len(answers.nodes), diagnosis.asked)
    shown = [one for one in answers.ranks if not rank or one.rank in rank]
    document: DiagnoseDocument = {
        **diagnosis_to_json(run_id, judgement, shown, answers.nodes, answers.errors),
        "gpus": gpus_to_json(diagnosis.gpus),
    }
    if save is not None:
        save_diagnosis(Path(save), json_text(document, indent=2), shown, sanitize)
    if as_json:
        write_document(document)
    else:
        show_diagnosis(judgement, shown, list(answers.nodes.values()), settings.command, with_stacks=stacks)
        show_gpus(diagnosis.gpus)
    return reading_exit_code(len(answers.nodes), diagnosis.asked)


def _report_slowness(run_id: str, nodes: Iterable[NodeEvidence], command: str, *, as_json: bool) -> None:
    from clusterctl.console.run.hang import show_slowness, slowness_to_json
    from clusterctl.plans.diagnose.slow import judge_slowness

    slowness = judge_slowness(nodes)
    if as_json:
        write_document(slowness_to_json(run_id, slowness))
    else:
        show_slowness(slowness, command)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl attach", "your newest live run"),
        ("clusterctl attach train-2026", "the run with this prefix"),
        ("clusterctl attach --json", "NDJSON, the result last"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@json_option("Write NDJSON: log lines, then the result.")
@shared_options
def attach(settings: Settings, run: str | None, as_json: bool) -> int:
    """Follow a run until it ends, as `launch` does; from any machine that has the inventory.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest live run, else your newest run.
    While you are attached to your own run, the failure of one node stops all nodes. A run of another user must be
    named and is only shown. Ctrl-C does not stop the run.
    """
    from clusterctl.cli.actions.attach import attach_run
    from clusterctl.cli.context.run_output import RunOutput

    inventory = load_inventory(settings, on_slurm=True)
    output = RunOutput(as_json, settings.command)
    if inventory.slurm is None:
        return attach_run(inventory, run, output)
    from clusterctl.cli.slurm.follow import find_queued

    return attach_run(inventory, run, output, find_queued)
