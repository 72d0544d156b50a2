"""When a run has ended: send the job's notifications and run its `on_end`; the result stays as it is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.context.load import state_dir
from clusterctl.cli.context.nodes import as_bug, notice, report_failures
from clusterctl.client.local.hooks import claim_hooks, claim_stall, has_hooks, save_hooks
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.notify import (
    Hooks,
    RunEnd,
    describe_notification,
    is_for_end,
    render_webhook_request,
    run_end_to_json,
    stall_of,
)
from clusterctl.protocol.redact import redact_tree
from clusterctl.protocol.states import RUNNING
from clusterctl.specs.kinds import STALLED
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.cli.context.run_output import RunOutput
    from clusterctl.client.local.notify import Delivery
    from clusterctl.plans.diagnose.kept import KeptDiagnosis
    from clusterctl.plans.runs.verdict import Verdict
    from clusterctl.protocol.run_id import RunId
    from clusterctl.specs.inventory.model import Inventory
    from clusterctl.specs.job.model import Job, Notify


def check_hooks(job: Job) -> None:
    """Refuse a job whose notifications could not be sent from here; raises UsageError."""
    for entry in job.notify:
        fault = _find_problem(entry)
        if fault:
            raise UsageError("CC-END-003", fault=fault)


def remember_hooks(job: Job, inventory: Inventory, run_id: RunId) -> None:
    """Keep a job's hooks until the run has ended, for whichever command of ours sees that."""
    folder = str(Path(job.file).absolute().parent)
    _store_hooks(run_id, Hooks(job.name, inventory.cluster, folder, job.on_end, job.notify))


def _store_hooks(run_id: RunId, hooks: Hooks) -> None:
    if hooks.has_any:
        try:
            save_hooks(_folder(), run_id, hooks)
        except OSError as error:
            notice(
                tr(
                    "notifications and on_end will not run: {path}: {reason}",
                    path=error.filename or _folder(),
                    reason=describe_system_error(error),
                )
            )


def warn_not_notified(run_id: RunId, attach: str) -> None:
    """Warn that notifications are not sent after this command ends."""
    try:
        if has_hooks(_folder(), run_id):
            notice(
                tr(
                    "notifications and on_end run only while you are attached from this machine: {command}",
                    command=attach,
                )
            )
    except OSError as error:
        _warn_unreadable(error)


def announce_detached(output: RunOutput, run_id: RunId, *, stopping: bool = False) -> None:
    """Report a run that continues after a signal, and how to come back to it."""
    info(output.describe_leaving(run_id, stopping=stopping))
    output.write_end(RUNNING, INTERRUPTS.exit_code, run_id=run_id)
    warn_not_notified(run_id, output.hint("attach", run_id))


def notify_end(verdict: Verdict, seconds: float, command: str, secrets: Collection[str]) -> None:
    """Send what is to be sent, then run the command; what could not be sent is kept for the next `attach`."""
    try:
        hooks = claim_hooks(_folder(), verdict.run_id)
    except OSError as error:
        _warn_unreadable(error)
        return
    if hooks is None:
        return
    notifier = EndNotifier(hooks, RunEnd(hooks.job, hooks.cluster, seconds, command, verdict), secrets)
    try:
        with INTERRUPTS.leaving(
            partial(announce_interrupted, tr("interrupted before all notifications were sent"))
        ):
            notifier.notify()
    except KeyboardInterrupt:  # the run has its verdict, and its exit code
        pass
    except Exception as error:  # the run has its verdict, and a bug here must not take its exit code
        report_failures([as_bug(error)])
    finally:
        _store_hooks(verdict.run_id, notifier.unsent)


def notify_stall(
    run_id: RunId, kept: KeptDiagnosis, nodes: Sequence[str], command: str, secrets: Collection[str]
) -> None:
    """Send what is to be sent when a run stalls; what could not be sent is not tried again."""
    try:
        hooks = claim_stall(_folder(), run_id, int((time.time() - (kept.seconds or 0.0)) / 60))
    except OSError as error:
        _warn_unreadable(error)
        return
    due = [entry for entry in hooks.notify if STALLED in entry.when] if hooks is not None else []
    if hooks is not None and due:
        EndNotifier(hooks, stall_of(hooks, run_id, kept, nodes, command), secrets).send(due)


def _warn_unreadable(error: OSError) -> None:
    """Report an unsafe file of hooks; the exit code stays that of the run."""
    notice(
        tr(
            "notifications and on_end are skipped: {path} {reason}",
            path=error.filename,
            reason=describe_system_error(error),
        )
    )


class EndNotifier:
    """The hooks of one run that has ended; `unsent` is what the next `attach` tries again."""

    def __init__(self, hooks: Hooks, ended: RunEnd, secrets: Collection[str]) -> None:
        self._ended, self._secrets = ended, secrets
        self.unsent = hooks

    def notify(self) -> None:
        """Notifications first: they have short limits."""
        due = [entry for entry in self.unsent.notify if is_for_end(entry.when, self._ended.verdict.state)]
        self.send(due)
        command = self.unsent.on_end
        self.unsent = replace(self.unsent, on_end=None)  # it is never run twice, however it ends
        if command is not None and is_for_end(command.when, self._ended.verdict.state):
            self._run(command.command, command.time_limit)

    def send(self, entries: Sequence[Notify]) -> None:
        """Send these; those that could not be sent remain."""
        from clusterctl.client.local.notify import send_all

        faults = {entry: fault for entry in entries if (fault := _find_problem(entry))}
        ready = [entry for entry in entries if entry not in faults]
        problems = dict(
            zip(ready, INTERRUPTS.call(lambda: send_all([*self._deliveries(ready)])), strict=True)
        )
        failed = [entry for entry in entries if entry in faults or problems[entry]]
        self.unsent = replace(self.unsent, notify=tuple(failed))
        for entry in entries:
            self._report_delivery(entry, faults.get(entry, ""), problems.get(entry, ""))

    def _deliveries(self, entries: Sequence[Notify]) -> Iterator[Delivery]:
        from clusterctl.client.local.notify import Delivery

        for entry in entries:
            secret = os.environ[entry.secret_from] if entry.secret_from else None
            message = render_webhook_request(self._ended, entry, secret, time.time())
            body = redact_tree(message.body, self._secrets)
            yield Delivery(entry.to, os.environ[entry.url_from], replace(message, body=body))

    def _report_delivery(self, entry: Notify, fault: str, problem: str) -> None:
        if not fault and not problem:
            info(tr("sent: {notification}", notification=describe_notification(entry)))
            return
        retry_command = command_line("attach", self._ended.verdict.run_id, command=self._ended.command)
        code = "CC-END-003" if fault else "CC-END-002"
        notification = describe_notification(entry)
        error = ClusterctlError(
            code, "not-sent", notification=notification, problem=fault or problem, command=retry_command
        )
        report_failures([error])

    def _run(self, command: Sequence[str], limit: float) -> None:
        from clusterctl.client.local.notify import run_command

        text = json.dumps(redact_tree(run_end_to_json(self._ended), self._secrets), ensure_ascii=False)
        problem = run_command(command, f"{text}\n", self.unsent.folder, limit)
        if problem:
            report_failures([ClusterctlError("CC-END-001", program=command[0], problem=problem)])


def _find_problem(entry: Notify) -> str:
    """Return why a notification cannot be sent from here, naming variables only."""
    from clusterctl.client.local.notify import find_url_problem

    for name in filter(None, (entry.url_from, entry.secret_from)):
        if not os.environ.get(name):
            return tr("{variable} is not set here", variable=name)
    fault = find_url_problem(entry.to, os.environ[entry.url_from])
    return f"{entry.url_from}: {fault}" if fault else ""


def _folder() -> Path:
    return state_dir() / "ends"
