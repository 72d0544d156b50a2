"""When a run has ended: tell whom the job names. Nothing here changes how the run is judged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.context.crash import as_bug
from clusterctl.cli.context.load import state_dir
from clusterctl.cli.context.nodes import notice, tell_failures
from clusterctl.console.terminal import say
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.specs.text import command_line

if TYPE_CHECKING:
    from clusterctl.client.local.notify import Letter
    from clusterctl.plans.notify import Ended, Hooks
    from clusterctl.plans.runs.verdict import Verdict
    from clusterctl.protocol.run_id import RunId
    from clusterctl.specs.inventory.model import Inventory
    from clusterctl.specs.job.model import Job, Notify


def check_hooks(job: Job) -> None:
    """Refuse a job whose notifications could not be sent from here; raises UsageError."""
    for entry in job.notify:
        fault = _find_fault(entry)
        if fault:
            raise UsageError(
                f"notify: {fault}",
                code="CC-END-003",
                fix="export it before `launch`, or drop the entry",
            )


def remember_hooks(job: Job, inventory: Inventory, run: RunId) -> None:
    """Keep a job's hooks until the run has ended, for whichever command of ours sees that."""
    from clusterctl.plans.notify import Hooks

    folder = str(Path(job.file).absolute().parent)
    _keep(run, Hooks(job.name, inventory.cluster, folder, job.on_end, job.notify))


def _keep(run: RunId, hooks: Hooks) -> None:
    from clusterctl.client.local.notify import keep_hooks

    if hooks.any:
        try:
            keep_hooks(_folder(), run, hooks)
        except OSError as error:
            notice(f"nobody will be told of the end: {error.filename or _folder()}: {error.strerror}")


def remind(run: RunId, attach: str) -> None:
    """Say who tells of the end of a run that one leaves."""
    from clusterctl.client.local.notify import has_hooks

    try:
        if has_hooks(_folder(), run):
            notice(f"no hook reports its end until you attach again from this machine: {attach}")
    except OSError as error:
        _say_unread(error)


def tell_end(verdict: Verdict, seconds: float, command: str, secrets: Collection[str]) -> None:
    """Send what is to be sent, then run the command; what could not be sent is kept for the next `attach`."""
    from clusterctl.client.local.notify import take_hooks
    from clusterctl.plans.notify import Ended

    try:
        hooks = take_hooks(_folder(), verdict.run)
    except OSError as error:
        _say_unread(error)
        return
    if hooks is None:
        return
    teller = Teller(hooks, Ended(hooks.job, hooks.cluster, seconds, command, verdict), secrets)
    try:
        teller.tell()
    except KeyboardInterrupt:
        say("\nleft before all had been told")
    except Exception as error:  # the run has its verdict, and a bug here must not take its exit code
        tell_failures([as_bug(error)])
    finally:
        _keep(verdict.run, teller.left)


def _say_unread(error: OSError) -> None:
    """The run has its verdict, and what cannot be believed must not take its exit code."""
    notice(f"what the job wants done at its end is not read: {error.filename} {error.strerror}")


class Teller:
    """The hooks of one run that has ended; `left` is what the next `attach` shall try again."""

    def __init__(self, hooks: Hooks, ended: Ended, secrets: Collection[str]) -> None:
        self._ended, self._secrets = ended, secrets
        self.left = hooks

    def tell(self) -> None:
        """Notifications first: they have short limits."""
        from clusterctl.plans.notify import is_wanted

        wanted = [entry for entry in self.left.notify if is_wanted(entry.when, self._ended.verdict.state)]
        self._send(wanted)
        command = self.left.on_end
        self.left = replace(self.left, on_end=None)  # it is never run twice, however it ends
        if command is not None and is_wanted(command.when, self._ended.verdict.state):
            self._run(command.command, command.time_limit)

    def _send(self, entries: Sequence[Notify]) -> None:
        from clusterctl.client.local.notify import send_all

        faults = {entry: fault for entry in entries if (fault := _find_fault(entry))}
        ready = [entry for entry in entries if entry not in faults]
        said = dict(zip(ready, send_all([*self._letters(ready)]), strict=True))
        unsent = [entry for entry in entries if entry in faults or said[entry]]
        self.left = replace(self.left, notify=tuple(unsent))
        for entry in entries:
            self._account(entry, faults.get(entry, ""), said.get(entry, ""))

    def _letters(self, entries: Sequence[Notify]) -> Iterator[Letter]:
        from clusterctl.client.local.notify import Letter
        from clusterctl.plans.notify import render_post
        from clusterctl.specs.text import redact_tree

        for entry in entries:
            secret = os.environ[entry.secret_from] if entry.secret_from else None
            post = render_post(self._ended, entry, secret, time.time())
            body = redact_tree(post.body, self._secrets)
            yield Letter(entry.to, os.environ[entry.url_from], replace(post, body=body))

    def _account(self, entry: Notify, fault: str, said: str) -> None:
        from clusterctl.plans.notify import describe

        if not fault and not said:
            say(f"sent: {describe(entry)}")
            return
        code = "CC-END-003" if fault else "CC-END-002"
        message = f"not sent: {describe(entry)}: {fault or said}"
        again = command_line("attach", self._ended.verdict.run, command=self._ended.command)
        fix = f"{again} tries again; the verdict stays"
        tell_failures([ClusterctlError(message, code=code, fix=fix)])

    def _run(self, command: Sequence[str], limit: float) -> None:
        from clusterctl.client.local.notify import run_command
        from clusterctl.plans.notify import ended_to_json
        from clusterctl.specs.text import redact_tree

        text = json.dumps(redact_tree(ended_to_json(self._ended), self._secrets), ensure_ascii=False)
        said = run_command(command, f"{text}\n", self.left.folder, limit)
        if said:
            message = f"on_end: {command[0]} {said}"
            tell_failures(
                [ClusterctlError(message, code="CC-END-001", fix="run it by hand; the verdict stays")]
            )


def _find_fault(entry: Notify) -> str:
    """Say why a notification cannot be sent from here, naming variables only."""
    from clusterctl.client.local.notify import find_fault

    for name in filter(None, (entry.url_from, entry.secret_from)):
        if not os.environ.get(name):
            return f"{name} is not set here"
    fault = find_fault(entry.to, os.environ[entry.url_from])
    return f"{entry.url_from}: {fault}" if fault else ""


def _folder() -> Path:
    return state_dir() / "ends"
