"""A launch on a Slurm cluster, and its run from the queue to the end; and `stop`, in the queue or later.

The code and the job go to the login node, and Slurm starts the job when it is its turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from clusterctl.cli.actions.attach import QueuedRun, open_logs, watch_run
from clusterctl.cli.actions.find_runs import FoundRuns, find_runs
from clusterctl.cli.actions.launch import LaunchBase, make_run_id
from clusterctl.cli.actions.notify import announce_detached, notify_end, remember_hooks
from clusterctl.cli.actions.stop import KnownParts, StopResult, stop_and_report, stop_run
from clusterctl.cli.context.checks import report_code
from clusterctl.cli.context.code import read_job_code
from clusterctl.cli.context.load import remember_runs
from clusterctl.cli.context.nodes import interpreter, report_failures
from clusterctl.cli.context.run_output import LaunchOptions, RunOutput
from clusterctl.client.launch.setup import describe_step
from clusterctl.client.preflight import read_local_facts
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.errors import start_error
from clusterctl.client.slurm import LoginNode, cancel_job, send_tree, submit_job, watch_queue
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.client.watch.monitor import MonitorOptions
from clusterctl.console.errors import show_error
from clusterctl.console.progress import Phases, render_upload
from clusterctl.console.run.verdict import show_verdict
from clusterctl.console.terminal import can_redraw, info, stderr
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.python import NOT_BUILT
from clusterctl.plans.checks.registry import AppliedWaiver, CheckSelection, resolve_waivers
from clusterctl.plans.checks.script import mark_suspected
from clusterctl.plans.launch.setup import setup_probe_request, setup_to_spec
from clusterctl.plans.runs.selection import is_live, submitted_at
from clusterctl.plans.runs.verdict import Verdict, conclude_over, verdict_to_json
from clusterctl.plans.slurm.judge import to_findings
from clusterctl.plans.slurm.submission import (
    choose_slurm_nodes,
    describe_request,
    plan_check,
    plan_options,
    plan_submission,
    refuse_unsupported,
    render_script,
)
from clusterctl.protocol.redact import redact
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED_SETUP, SUCCEEDED, UNKNOWN
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Inventory, Node, Slurm
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import ALL
from clusterctl.specs.text import render_seconds, render_size
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart, CheckReport, QueueFacts
    from clusterctl.protocol.messages.files import LaunchRecord

QUEUE, CHECK, SETUP = "queue", "check", "setup"
RETURN_LIMIT = 3600.0  # seconds without the login node while the job waits
MAX_PAUSE = 15.0  # seconds
END_TIMEOUT = 10.0  # seconds in which a job whose parts were stopped leaves the queue by itself
CHECKS_FAILED = 3


class SlurmLaunch(LaunchBase):
    """One launch on a Slurm cluster, step by step."""

    def __init__(
        self,
        inventory: Inventory,
        slurm: Slurm,
        job: Job,
        choice: tuple[str | None, str | None],
        options: LaunchOptions,
    ) -> None:
        refuse_unsupported(job, slurm)
        self._login = inventory.nodes[0]
        super().__init__(inventory, job, [self._login.name], options)
        self._slurm, self._nodes = slurm, choose_slurm_nodes(job, *choice)
        self._run_id = make_run_id(job.name)

    @property
    def _node_count(self) -> int:
        return self._nodes.count

    @property
    def _staged_nodes(self) -> Sequence[Node]:
        return (self._login,)  # the nodes share its directories

    def show_plan(self) -> str:
        """Write what would be asked of Slurm, and the batch script."""
        lines = [
            describe_request(plan_options(self._job, self._slurm, self._nodes, RunId("<run_id>"))),
            "",
            render_script(self._job, self._login).rstrip("\n"),
        ]
        return "\n".join(lines)

    def _start_run(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        login = LoginNode(cluster, self._login, interpreter(self._login))
        job = self._report_code(scan)
        self._phases.announce(
            trn(
                "run {run}: {n} node of the Slurm cluster {cluster}",
                "run {run}: {n} nodes of the Slurm cluster {cluster}",
                self._nodes.total,
                run=self._run_id,
                cluster=self._inventory.cluster,
            )
        )
        self._stage(cluster)
        self._send_code(login, scan)
        number = self._submit(login, secrets, job)
        remember_hooks(self._job, self._inventory, self._run_id)
        remember_runs([self._run_id])
        if self._options.detach:
            return self._detach(self._run_id)
        seconds = time.time() - self._began
        self._phases.conclude(
            tr("submit {span}", span=render_seconds(seconds)), tr("Slurm job {number}", number=number)
        )
        hidden = tuple(secrets.values())
        following = Following(login, self._run_id, self._nodes.total, self._output, hidden, self._began)
        return follow_from_queue(following)

    def _report_code(self, scan: ScanResult) -> Job:
        """Print what the code shows, and return the job as it is planned; the address of node 0 is not known yet."""
        code = read_job_code(self._job, self._node_count, scan)
        selection = CheckSelection(frozenset({"CC-CODE-003"}), self._resolve_waivers())
        return mark_suspected(self._job, report_code([self._login], self._job, code, selection))

    def _resolve_waivers(self) -> tuple[AppliedWaiver, ...]:
        """Resolve the waivers as if they were for all nodes: which ones there will be is not known."""
        waivers = (*self._inventory.waive, *self._job.waive)
        return resolve_waivers([replace(one, nodes=ALL) for one in waivers], [self._login.name])

    def _send_code(self, login: LoginNode, code: ScanResult) -> None:
        self._phases.start("code")
        upload = TreeUpload(code, on_expected=self._phases.add_expected)
        add_bytes = partial(self._phases.add_bytes, self._login.name)
        synced = send_tree(login, upload, self._run_id, add_bytes)
        self._phases.mark_done("code", self._login.name)
        files, size = code.manifest.files, code.manifest.size
        label = f"code {render_size(synced.sent)}" if synced.sent else ""
        self._phases.finish("code", render_upload(files, size, synced.sent), label)

    def _send_setup(self, login: LoginNode) -> LaunchRecord:
        """Send what the environment is made of, unless it is there; gives its place in the spec."""
        if self._setup_files is None:
            return {}
        self._phases.start("setup")
        scan = self._setup_files.scan
        sent = send_tree(login, TreeUpload(scan), None).sent
        self._phases.mark_done("setup", self._login.name)
        self._phases.finish("setup", render_upload(scan.manifest.files, scan.manifest.size, sent))
        activate = self._job.activate or self._login.activate
        return {"setup": setup_to_spec(self._setup_files.plan, scan.manifest, activate)}

    def _plan_check(self) -> CheckPart:
        """Plan the check that the nodes make before anything starts."""
        waivers = (*self._inventory.waive, *self._job.waive)
        setup = self._setup_files.plan if self._setup_files else None
        check = plan_check(
            self._job,
            self._login,
            waivers,
            read_local_facts((), self._job, None).script_siblings,
            self._options.command,
            setup_probe_request(setup, self._job.activate or self._login.activate),
        )
        return {**check, "enforce": not self._options.ignore_checks}

    def _announce_submission(self) -> None:
        """Report that the job may be in the queue: the answer was not awaited."""
        command = self._output.hint("stop", self._run_id)
        announce_interrupted(
            tr("interrupted while the job was submitted; to make sure: {command}", command=command)
        )
        self._output.write_end(UNKNOWN, INTERRUPTS.exit_code, run_id=self._run_id)

    def _submit(self, login: LoginNode, secrets: Mapping[str, str], job: Job) -> str:
        check = self._plan_check()
        record: LaunchRecord = {**self._record(), **self._send_setup(login)}
        self._phases.start("submit")
        submission = plan_submission(job, self._slurm, self._login, self._nodes, self._run_id, record, check)
        INTERRUPTS.set_leaving(self._announce_submission)
        number = submit_job(login, submission, secrets)
        INTERRUPTS.set_leaving(partial(self._announce_started, self._run_id))
        self._phases.mark_done("submit", self._login.name)
        self._phases.finish("submit", tr("Slurm job {number}", number=number))
        self._output.write_json({"schema": 1, "run": self._run_id, "slurm_job": number})
        return number


def refuse_options(options: LaunchOptions) -> None:
    """Raise UsageError for options that mean nothing where Slurm gives the nodes."""
    if options.wait:
        raise UsageError("CC-SLURM-001", "wait")
    if options.skip:
        raise UsageError("CC-SLURM-001", "skip")


@dataclass(frozen=True)
class Following:
    """A run that is followed: how its login node is reached, how many nodes it has, how it is shown, since when.

    `requeues`: Slurm may start it again after an end.
    """

    login: LoginNode
    run_id: RunId
    count: int
    output: RunOutput
    secrets: tuple[str, ...]
    began: float
    requeues: bool = True


def follow_from_queue(following: Following) -> int:
    """Show how the job waits, then follow the run; Ctrl-C detaches, in the queue too."""
    login, run_id, output = following.login, following.run_id, following.output
    INTERRUPTS.set_leaving(partial(announce_detached, output, run_id))
    try:
        state = wait_for_nodes(following)
        following = replace(following, requeues=state["requeue"])
        if state["begun"]:
            info(tr("Slurm job {number} runs on {nodes}", number=state["job"], nodes=state["nodes"] or "?"))
        found = find_runs(login.cluster, [login.node], run_id, only_one=True)
    except KeyboardInterrupt as error:
        INTERRUPTS.announce(error)
        return INTERRUPTS.exit_code
    report_failures(found.errors)
    if run_id not in found.runs:
        return 4
    if state["begun"] and (is_live(found.runs[run_id]) or not state["failure"]):
        return follow_found_run(following, found)
    INTERRUPTS.set_leaving(announce_interrupted)
    return show_failed_start(following, found, state)


def find_queued(cluster: Cluster, found: FoundRuns, run_id: RunId, output: RunOutput) -> QueuedRun:
    """Describe a run that is attached to, for when it waits in the queue or is put back there."""
    parts, login = found.runs[run_id], found.nodes[0]
    count = max((part.agent_count for part in parts.values() if part), default=1)
    reached = LoginNode(cluster, login, found.pythons[login.name])
    # Slurm starts a job again only if its job file lets the nodes do so, and then each has a slot
    requeues = any(part.slots or part.is_queued for part in parts.values() if part)
    following = Following(reached, run_id, count, output, (), submitted_at(parts), requeues)
    return QueuedRun(partial(follow_from_queue, following), partial(resume_requeued, following))


def follow_found_run(following: Following, found: FoundRuns) -> int:
    """Follow a run whose nodes have begun."""
    run_id, output = following.run_id, following.output
    parts = found.runs[run_id]
    nodes = found.nodes_of(run_id)
    options = MonitorOptions(
        run_id,
        nodes,
        found.pythons,
        found.offsets,
        following.secrets,
        # of an attempt that follows others, what came before was shown
        known_states=parts if any(part.attempt > 1 for part in parts.values() if part) else {},
        inventory_names=[node.name for node in nodes],
    )
    logs = open_logs(output, run_id, parts)
    return watch_run(
        following.login.cluster,
        options,
        output,
        logs,
        following.began,
        resume=partial(resume_requeued, following),
    )


def resume_requeued(following: Following, verdict: Verdict) -> int | None:
    """Follow the next attempt of a run that Slurm has stopped and put back into its queue; None if it has not."""
    if verdict.state == SUCCEEDED or not following.requeues:
        return None  # the login node is not asked: the end is shown at once
    waiting: QueueFacts | None = None
    with suppress(ClusterctlError):  # then this end is shown
        for state in watch_queue(following.login, following.run_id, following.count):
            if state["over"] or state["begun"] or not state["requeue"]:
                return None
            if state["waits"]:
                waiting = state
                break
    if waiting is None:
        return None
    info(
        tr(
            "attempt {attempt} ended: Slurm put job {number} back into the queue",
            attempt=verdict.attempt,
            number=waiting["job"],
        )
    )
    return follow_from_queue(following)


def show_failed_start(following: Following, found: FoundRuns, state: QueueFacts) -> int:
    """Show why no worker was started: the check failed, a node could not start, or the job left the queue."""
    code: int | None = None
    error = ""
    if state["check"] is not None and state["check"]["blocks"]:
        info(tr("nothing was started"))
        code, error = CHECKS_FAILED, "the checks failed"
    elif state["failure"] is not None and state["failure"]["event"]:
        failed = start_error(Untrusted(state["failure"]["event"]), state["failure"]["node"])
        failed.message = redact(failed.message, following.secrets)
        failed.evidence = redact(failed.evidence, following.secrets)
        show_error(failed)
        code, error = failed.exit_code, f"{failed.code} {failed.message}"
    return show_end(following, found, code, error)


def show_end(following: Following, found: FoundRuns, code: int | None, error: str) -> int:
    """Show how a run ended of which nothing could be followed; with a code the reason was shown before."""
    run_id, output = following.run_id, following.output
    parts = found.runs[run_id]
    verdict = conclude_over(run_id, parts, [*parts], found.offsets)
    seconds = time.time() - following.began
    if code is None:
        output.write_json({"schema": 1, "run": run_id, "verdict": verdict_to_json(verdict)})
        show_verdict(verdict, seconds, output.command, 0)
    else:
        output.write_end(FAILED_SETUP, code, error=error)
    taken = seconds if verdict.seconds is None else verdict.seconds
    notify_end(verdict, taken, output.command, following.secrets)
    return verdict.exit_code if code is None else code


class QueueView:
    """Shows how a job gets from the queue to its workers: the phases `queue`, `check` and `setup`."""

    def __init__(self, login: str) -> None:
        self._phases, self.phase, self._shown = Phases([login]), "", ""
        self.enter(QUEUE)

    def enter(self, phase: str) -> None:
        """Begin a phase, unless it goes on."""
        if phase != self.phase:
            self.phase = phase
            self._phases.start(phase)

    def show(self, state: QueueFacts, count: int) -> None:
        """Show a report on a launch that differs from the one before."""
        if state["check"] is not None and self.phase == QUEUE:
            self._phases.stop()
            self.phase = CHECK
            show_check(state["check"], count)
        elif self.phase == CHECK and state["doing"] and not state["begun"]:
            self.enter(SETUP)
        if self.phase in (QUEUE, SETUP) and not state["begun"]:
            text = describe_queue(state) if self.phase == QUEUE else describe_step(state["doing"], {})
            self.show_activity(text, self.phase)

    def show_activity(self, text: str, label: str) -> None:
        """Show it in the moving line, and where there is none as a line of its own when it changes."""
        self._phases.set_activity(text)
        if text and text != self._shown and not can_redraw(sys.stderr):
            info(f"  {label}   {text}")
        self._shown = text

    def stop(self) -> None:
        """Take the moving line off the screen."""
        self._phases.stop()


def show_check(report: CheckReport, count: int) -> None:
    """Show what the check inside the allocation found, as that over SSH."""
    from clusterctl.console.findings import render_findings

    findings = [finding for finding in to_findings(report) if finding.code != NOT_BUILT]
    detail = trn("{n} finding", "{n} findings", len(findings)) if findings else tr("all ok")
    if report["skipped"]:
        detail = translate_node_text(report["skipped"])
    nodes = trn("{count}/{n} node", "{count}/{n} nodes", count, count=0 if report["skipped"] else count)
    seconds = render_seconds(report["seconds"])
    info(f"  {CHECK:<7} {nodes}  {seconds}  {detail}")
    render_findings(stderr(), findings)


def wait_for_nodes(following: Following) -> QueueFacts:
    """Wait until all nodes have begun, or the job is over; a login node that is away is tried again."""
    login, since, tries = following.login, time.monotonic(), 0
    view = QueueView(login.node.name)
    try:
        while True:
            try:
                for state in watch_queue(login, following.run_id, following.count):
                    since, tries = time.monotonic(), 0
                    view.show(state, following.count)
                    if state["begun"] or state["over"]:
                        return state
            except (ConnectError, ConnectionLost) as error:
                tries = pause_for_login(login, error, since, tries)
    finally:
        view.stop()


def pause_for_login(login: LoginNode, error: ClusterctlError, since: float, tries: int) -> int:
    """Wait a while before the next try; raises the error when it has been too long."""
    if time.monotonic() - since > RETURN_LIMIT:
        raise error
    if tries == 0:
        info(
            tr(
                "{node}: {text}; the job stays in the queue; trying again",
                node=login.node.name,
                text=error.message,
            )
        )
    login.cluster.forget(login.node)
    INTERRUPTS.sleep(min(MAX_PAUSE, 2.0**tries / 2))
    return min(tries + 1, 10)


def describe_queue(state: QueueFacts) -> str:
    """Return why a job waits and when Slurm expects it to begin."""
    if not state["waits"]:
        return tr("Slurm job {number}: starting on {nodes}", number=state["job"], nodes=state["nodes"] or "?")
    if state["start"] is None:
        return state["reason"]
    start = datetime.fromtimestamp(state["start"]).strftime("%Y-%m-%d %H:%M")
    return tr("{reason}; expected start {time}", reason=state["reason"], time=start)


def stop_slurm_run(
    cluster: Cluster,
    found: FoundRuns,
    run_id: RunId,
    grace: float | None,
    command: str,
    *,
    as_json: bool = False,
) -> int:
    """Stop the nodes' parts by our own order, and take the job out of Slurm if it does not end by that."""
    parts = found.runs.get(run_id, {})
    begun, code = _begun_nodes(found, run_id), 0
    if begun:
        run = tasks.RunHandle(cluster, run_id, begun, found.pythons)
        ended_before = [name for name, part in parts.items() if part and not part.live]
        known = KnownParts(was_live=is_live(parts), ended=ended_before)
        code = stop_run(run, known, grace, command=command, as_json=as_json)
    cancelled = _cancel(cluster, found, run_id, END_TIMEOUT if begun else 0.0)
    if as_json and not begun:
        StopResult(run_id).write(as_json=True)
    elif cancelled:
        click.echo(cancelled, err=as_json)
    return code


def stop_and_describe(cluster: Cluster, found: FoundRuns, run_id: RunId) -> list[str]:
    """Stop a run as `stop` does and give what that would print."""
    begun = _begun_nodes(found, run_id)
    lines = stop_and_report(tasks.RunHandle(cluster, run_id, begun, found.pythons)) if begun else []
    cancelled = _cancel(cluster, found, run_id, END_TIMEOUT if begun else 0.0)
    return [*lines, cancelled] if cancelled else lines


def _begun_nodes(found: FoundRuns, run_id: RunId) -> list[Node]:
    """Return the nodes that have a part of a run; none while it waits in the queue."""
    parts = found.runs.get(run_id, {})
    return [node for node in found.nodes_of(run_id) if (part := parts.get(node.name)) and not part.is_queued]


def _cancel(cluster: Cluster, found: FoundRuns, run_id: RunId, timeout: float) -> str:
    """Take the job out of Slurm if it does not end by itself, and say so."""
    login = found.nodes[0]
    number = cancel_job(LoginNode(cluster, login, found.pythons[login.name]), run_id, timeout)
    return tr("{run}: Slurm job {number} cancelled", run=run_id, number=number) if number else ""
