"""One run: the steps of `status`, and of `diagnose`, which asks its ranks where they are; `ui` asks them too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.actions.find_runs import FoundRuns, fetch_end_record, find_one_run, refuse_without_nodes
from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.nodes import open_cluster, reading_exit_code, report_failures
from clusterctl.cli.context.settings import Settings
from clusterctl.client.rpc.cluster import Answers, Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.run_evidence import (
    count_entries,
    diagnose_ranks,
    keep_answers,
    load_hang,
    load_speed,
    ranks_of,
    read_gpus,
    save_diagnosis,
    watchers_of,
)
from clusterctl.console.documents.output import write_document
from clusterctl.console.run import hang as screen
from clusterctl.console.run.status import show_status, status_to_json
from clusterctl.console.text import json_text, sanitize
from clusterctl.plans.diagnose.evidence import NodeEvidence, RankEvidence, compare_stacks
from clusterctl.plans.diagnose.hang import SECOND_LOOK, Judgement, confirm, judge
from clusterctl.plans.diagnose.kept import choose_least_wait
from clusterctl.plans.diagnose.slow import judge_slowness
from clusterctl.plans.runs.state import Parts, latest_part
from clusterctl.plans.runs.verdict import name_state
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.run_id import RunId

if TYPE_CHECKING:
    from clusterctl.plans.runs.speed import SpeedVerdict


def show_run(settings: Settings, run: str | None, *, watch: bool, as_json: bool) -> int:
    """Show one run, with `watch` until it ends; 0 when all nodes answered, 5 some, 4 none."""
    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found, run_id = find_one_run(cluster, inventory.nodes, run, pulse=True)
        if run_id is None:
            return 4
        if watch:
            from clusterctl.cli.actions.attach import watch_status

            return watch_status(cluster, found, run_id, as_json=as_json)
        parts = fetch_end_record(cluster, inventory.nodes, found, run_id, named=run is not None)
        nodes = found.nodes_of(run_id)
        handle = RunHandle(cluster, run_id, nodes, found.pythons)
        hang, speed = load_hang(handle, parts), _load_speed(handle, found, parts)
    names = {node.name for node in (*inventory.nodes, *nodes)}
    if as_json:
        write_document(status_to_json(run_id, parts, found.offsets, names, hang, speed))
    else:
        show_status(run_id, parts, found.offsets, settings.command, names, hang, speed)
    return reading_exit_code(found.answered, found.asked)


def _load_speed(handle: RunHandle, found: FoundRuns, parts: Parts) -> SpeedVerdict | None:
    """Read how fast a run is, from the nodes that have a part of it."""
    state = name_state(RunId(handle.run_id), parts)
    held = {node.name for node in found.holders(RunId(handle.run_id))}
    nodes = [node for node in handle.nodes if node.name in held]
    return load_speed(handle.on(nodes), state, parts, found.offsets)[1]


@dataclass(frozen=True)
class Diagnosis:
    """What the ranks' nodes have answered, and what follows; `asked` counts all nodes of the run.

    A node with an answer and an error did not answer the second question. `gpus` are read only of a run that hangs.
    """

    answers: Answers[NodeEvidence]
    judgement: Judgement
    gpus: Mapping[str, Sequence[GpuUsage]]
    asked: int

    @property
    def exit_code(self) -> int:
        """Return 0 when all nodes answered each question, 5 some, 4 none."""
        unanswered = len(self.answers.nodes.keys() & self.answers.errors.keys())
        return reading_exit_code(len(self.answers.nodes), self.asked + unanswered)


def diagnose_run(cluster: Cluster, found: FoundRuns, run_id: RunId, command: str, *, slow: bool) -> Diagnosis:
    """Ask all nodes of a run that answer; raises UsageError for a run that no node has begun."""
    parts = found.runs[run_id]
    refuse_without_nodes(found, run_id, "diagnose", command)
    nodes = found.holders(run_id)
    handle = RunHandle(cluster, run_id, nodes, found.pythons)
    answers = diagnose_ranks(handle, count_entries(parts, slow=slow))
    world = latest_part(parts).world_size or None
    least_wait = choose_least_wait(part.diagnosed for part in parts.values() if part and part.live)

    def judge_answers(ranks: Sequence[RankEvidence]) -> Judgement:
        failed = answers.errors.keys() - answers.nodes.keys()
        silent = [name for name, part in parts.items() if part is None or name in failed]
        return judge(ranks, silent, world, least_wait, watchers_of(answers))

    judgement = judge_answers(ranks_of(answers))
    if judgement.is_thin and not slow:
        before = ranks_of(answers)
        time.sleep(SECOND_LOOK)
        second = diagnose_ranks(handle, count_entries(parts, slow=slow))
        answers = keep_answers(answers, second)
        seen_once = [rank for rank in before if rank.node not in second.nodes]
        judgement = judge_answers([*compare_stacks(ranks_of(second), before), *seen_once])
        judgement = confirm(judgement, seen_once)
    answered = [node for node in nodes if node.name in answers.nodes and node.name not in answers.errors]
    gpus = read_gpus(handle.on(answered)) if judgement.hangs and not slow else {}
    return Diagnosis(answers, judgement, gpus, len(nodes) + len(found.errors))


@dataclass(frozen=True)
class DiagnoseOptions:
    """The options of `diagnose`: the ranks to show, all if none is named, and the directory for files."""

    ranks: tuple[int, ...]
    stacks: bool
    slow: bool
    save: str | None
    as_json: bool


def diagnose(settings: Settings, run: str | None, options: DiagnoseOptions) -> int:
    """Ask the ranks of a run where they are, and show it; 0 when all its nodes answered, 5 some, 4 none."""
    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found, run_id = find_one_run(cluster, inventory.nodes, run)
        if run_id is None:
            return 4
        diagnosis = diagnose_run(cluster, found, run_id, settings.command, slow=options.slow)
    report_failures(diagnosis.answers.errors.values())
    report = _report_slowness if options.slow else _report_diagnosis
    report(run_id, diagnosis, settings.command, options)
    return diagnosis.exit_code


def _report_diagnosis(run_id: RunId, diagnosis: Diagnosis, command: str, options: DiagnoseOptions) -> None:
    answers, judgement = diagnosis.answers, diagnosis.judgement
    shown = [one for one in ranks_of(answers) if not options.ranks or one.rank in options.ranks]
    document = screen.diagnosis_to_json(
        run_id, judgement, shown, answers.nodes, answers.errors, diagnosis.gpus
    )
    if options.save is not None:
        save_diagnosis(Path(options.save), json_text(document, indent=2), shown, sanitize)
    if options.as_json:
        write_document(document)
    else:
        screen.show_diagnosis(judgement, shown, answers, command, with_stacks=options.stacks)
        screen.show_gpus(diagnosis.gpus)


def _report_slowness(run_id: RunId, diagnosis: Diagnosis, command: str, options: DiagnoseOptions) -> None:
    slowness = judge_slowness(diagnosis.answers.nodes.values())
    if options.as_json:
        write_document(screen.slowness_to_json(run_id, slowness))
    else:
        screen.show_slowness(slowness, command)
