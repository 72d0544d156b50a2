"""Stop a run on its nodes and list what was stopped."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from clusterctl.cli.actions.find_runs import choose_found_run
from clusterctl.cli.context.nodes import current_owner, report_failures, with_any_python
from clusterctl.cli.options import confirm, is_confirmed
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Outcome
from clusterctl.client.rpc.session import Interpreter
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.run.status import describe_launch, describe_run
from clusterctl.console.terminal import info
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, NodeError, UsageError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.runs.selection import Runs, choose_live_run, is_live, owner_of
from clusterctl.plans.runs.state import Parts
from clusterctl.protocol.reasons import STOPPED_BY
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import StopDocument, StoppedNode

MAX_SHOWN = 20  # lines
PHASE, STEP = "stop", to_translate("stopping its processes")


def choose_to_stop(runs: Runs, run_prefix: str | None, label: str) -> RunId:
    """Return the run that is to be stopped; an error shows those that live."""
    try:
        return choose_found_run(choose_live_run, runs, run_prefix)
    except UsageError as error:
        if run_prefix is not None:
            raise
        live = {run_id: parts for run_id, parts in runs.items() if is_live(parts)}
        lines = [line for run_id, parts in live.items() for line in describe_run(run_id, parts, label)]
        error.evidence = "\n".join(lines[:MAX_SHOWN])
        raise


def confirm_stop(run_id: str, parts: Parts, *, named: bool, label: str, command: str) -> None:
    """Ask before stopping a run that was not named, that another user started, or of which there is no record."""
    me = current_owner()
    if not parts:
        reason = tr("no node has a record of {run}, so its owner is unknown", run=run_id)
        _confirm(reason, f"{command} stop {run_id} -y")
    elif is_live(parts) and not owner_of(parts).is_same(me):
        facts = {"run": run_id, "launch": describe_launch(parts)}
        if owner_of(parts).name == me.name:
            reason = tr("{run} was {launch}, but from another machine or state directory", **facts)
        else:
            reason = tr("{run} was {launch}", **facts)
        _confirm(reason, f"{command} stop {run_id} -y")
    elif not named:
        confirm(describe_run(run_id, parts, label), tr("Stop it?"), "run", f"{command} stop {run_id}")


def _confirm(reason: str, command: str) -> None:
    if sys.stdin.isatty() and is_confirmed(sanitize(tr("{reason}. Stop it?", reason=reason))):
        return
    raise UsageError("CC-USE-025", reason=reason, command=command)


@dataclass(frozen=True)
class KnownParts:
    """What was known of a run before the stop: nodes without an answer, whether a part lived, where it had ended."""

    unanswered: Sequence[str] = ()
    was_live: bool = False
    ended: Collection[str] = ()


@dataclass
class StopResult:
    """What a stop has done: lines for a user, and by node what the nodes reported; `missed` were not stopped."""

    run: str
    lines: list[str] = field(default_factory=list)
    stopped: dict[str, tasks.StopReport] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome[tasks.StopReport]) -> ClusterctlError | None:
        """Take what became of a node; return why the run was not stopped there."""
        name, report, error = outcome.node.name, outcome.value, outcome.error
        if report is not None and report.other_account:
            error = NodeError("CC-RUN-018", node=name, account=report.other_account)
        elif report is not None and report.run_known:
            self.stopped[name] = report
        if error is not None:
            self.missed.append(name)
        return error

    def write(self, *, as_json: bool) -> None:
        """Write it to stdout, once no progress moves on the screen any more."""
        if as_json:
            write_document(self.to_json())
            return
        for line in self.lines:
            click.echo(line)

    def to_json(self) -> StopDocument:
        """Return the document of `stop --json`."""
        nodes: dict[str, StoppedNode] = {
            name: {
                "ended": list(report.ended),
                "left": list(report.remaining),
                "state": report.state.state if report.state else None,
            }
            for name, report in self.stopped.items()
        }
        return {"schema": 1, "run": self.run, "nodes": nodes, "missed": self.missed}


def stop_run(
    run: tasks.RunHandle,
    known: KnownParts,
    grace: float | None,
    *,
    dump: bool = False,
    command: str = "clusterctl",
    as_json: bool = False,
) -> int:
    """Stop on all nodes at once; 0 when nothing is left, 4 when a node was not reached, 5 when something is left.

    `dump`: the nodes keep first where the ranks are; `command` is how hints begin.
    """
    phases = Phases([node.name for node in run.nodes])
    options = tasks.StopOptions(grace, f"{STOPPED_BY}{current_owner().name}", dump)
    info(_describe_start(run, grace))
    result = StopResult(run.run_id)
    try:
        with (
            INTERRUPTS.leaving(lambda: info(_describe_interrupt(run, command))),
            phases.display_phase(PHASE, run.cluster.steps),
        ):
            return _stop_nodes(run, known, options, phases, result)
    except KeyboardInterrupt:
        known_ends = {*result.stopped, *result.missed}
        result.missed += [node.name for node in run.nodes if node.name not in known_ends]
        return INTERRUPTS.exit_code
    finally:
        result.write(as_json=as_json)


def _describe_interrupt(run: tasks.RunHandle, command: str) -> str:
    steps = {node.name: run.cluster.steps.find(node.name) for node in run.nodes}
    missed = [name for name, step in steps.items() if step is None or step.description != tr(STEP)]
    asked = [name for name in steps if name not in missed]
    lines = [tr("interrupted")]
    if asked:
        lines.append("  " + tr("{nodes}: the nodes continue to stop the run", nodes=fold_names(asked)))
    if missed:
        lines.append("  " + tr("{nodes}: no stop request sent yet", nodes=fold_names(missed)))
    hints = {"status": tr("show its state"), **({"stop": tr("try again")} if missed else {})}
    lines += [f"  {command_line(verb, run.run_id, command=command)}  {text}" for verb, text in hints.items()]
    return "\n".join(lines)


def _describe_start(run: tasks.RunHandle, grace: float | None) -> str:
    nodes = fold_names([node.name for node in run.nodes])
    if grace is None:
        return tr("stopping {run} on {nodes}, grace period of the job", run=run.run_id, nodes=nodes)
    return tr(
        "stopping {run} on {nodes}, grace period {seconds:g} s", run=run.run_id, nodes=nodes, seconds=grace
    )


def _stop_nodes(
    run: tasks.RunHandle,
    known: KnownParts,
    options: tasks.StopOptions,
    phases: Phases,
    result: StopResult,
) -> int:
    codes = {4} if known.unanswered else set()
    result.missed += known.unanswered
    wrong_account: list[ClusterctlError] = []
    reason = options.reason

    try:
        for outcome in phases.follow(PHASE, _stop_each(run, options, known.ended)):
            error = result.add(outcome)
            if outcome.error is not None:
                report_failures([outcome.error])
            elif error is not None:
                wrong_account.append(error)
            if error is not None:
                codes.add(4 if error.exit_code == 4 else 5)
    finally:  # what is known at Ctrl-C is reported too
        result.lines += render_all_stopped(result.stopped, reason, known.ended)
    report_failures(wrong_account)
    reports = result.stopped.values()
    codes |= {5 for report in reports if report.remaining}
    any_stopped = any(report.ended or report.remaining for report in reports)
    # between two attempts there is no process to end
    stopped_by_this = any(report.state is not None and report.state.reason == reason for report in reports)
    is_stopped = any_stopped or (known.was_live and stopped_by_this)
    result.lines.append(_render_end(run.run_id, result.missed, is_stopped=is_stopped))
    return min(codes, default=0)


def _render_end(run_id: str, missed: Collection[str], *, is_stopped: bool = True) -> str:
    name = sanitize(run_id)
    if missed:
        return tr("{run}: not stopped on {nodes}", run=name, nodes=fold_names(missed))
    return tr("{run}: stopped", run=name) if is_stopped else tr("{run}: already ended", run=name)


def _stop_each(
    run: tasks.RunHandle, options: tasks.StopOptions, ended_before: Collection[str] = ()
) -> Iterator[Outcome[tasks.StopReport]]:
    """Stop on all nodes at once."""
    pythons, run_id = run.interpreters, run.run_id

    def stop_node(c: Any, node: Node) -> tasks.StopReport:
        def stop_with(python: Interpreter) -> tasks.StopReport:
            lived = node.name not in ended_before
            report: tasks.StopReport = tasks.stop(c, node, python, run_id, options, lived=lived)
            return report

        python = pythons.get(node.name)
        return stop_with(python) if python is not None else with_any_python(node, stop_with)[0]

    return run.cluster.each(run.nodes, stop_node, step=tr(STEP))


def stop_and_report(run: tasks.RunHandle) -> list[str]:
    """Stop on all nodes at once and give what `stop` would print: what ended, and where that failed."""
    options = tasks.StopOptions(None, f"{STOPPED_BY}{current_owner().name}")
    result, errors = StopResult(run.run_id), list[str]()
    for outcome in _stop_each(run, options):
        if (error := result.add(outcome)) is not None:
            errors.append(sanitize(f"{outcome.node.name}: {error.code} {error.message}"))
    stopped = render_all_stopped(result.stopped, options.reason)
    return [*stopped, *errors, _render_end(run.run_id, result.missed)]


def render_all_stopped(
    reports: Mapping[str, tasks.StopReport], reason: str, ended_before: Collection[str] = ()
) -> list[str]:
    """List what a stop with this reason has ended on each node; the nodes that have the order first end the others."""
    any_ended = any(report.ended for report in reports.values())
    return [
        render_stopped(
            name,
            report,
            with_others=any_ended
            and name not in ended_before
            and report.state is not None
            and report.state.reason == reason,
        )
        for name, report in reports.items()
    ]


def render_stopped(name: str, stopped: tasks.StopReport, *, with_others: bool = False) -> str:
    """List what was stopped on a node: `gpu01: stopped torchrun (pid 12), python3 (pid 14)`.

    `with_others` if the other nodes, which had the order first, have ended its part.
    """
    ended = ", ".join(stopped.ended)
    if not ended and not stopped.remaining and with_others:
        lines = [tr("{node}: stopped by the other nodes", node=name)]
    elif not ended:
        lines = [tr("{node}: nothing was running", node=name)]
    elif stopped.state:
        lines = [tr("{node}: stopped {processes}", node=name, processes=ended)]
    else:
        lines = [
            tr("{node}: stopped {processes} (its run directory was removed)", node=name, processes=ended)
        ]
    if stopped.remaining:
        lines.append(
            tr("{node}: STILL RUNNING: {processes}", node=name, processes=", ".join(stopped.remaining))
        )
    gpu_memory = stopped.state.gpu_memory if stopped.state else ()
    lines += [tr("{node}: still in use: {memory}", node=name, memory=entry) for entry in gpu_memory]
    return "\n".join(map(sanitize, lines))
