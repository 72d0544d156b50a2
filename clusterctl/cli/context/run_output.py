"""What a launch was asked for, and how `launch` and `attach` report a run: NDJSON or text, and the next commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.console.documents.output import error_to_json, write_line
from clusterctl.console.terminal import is_verbose
from clusterctl.protocol.run_paths import short_id
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import (
        DetachedLine,
        EarlyEnd,
        EarlyEndLine,
        SubmittedLine,
        VerdictLine,
    )
    from clusterctl.console.lines import LogSink
    from clusterctl.errors import ClusterctlError
    from clusterctl.protocol.ranks import NodeRank
    from clusterctl.protocol.states import RunState


@dataclass(frozen=True)
class LaunchOptions:
    """The options of one launch."""

    detach: bool
    ignore_checks: bool
    as_json: bool
    wait: bool = False
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given
    allow_big: bool = False
    recheck: bool = False
    skip: tuple[str, ...] = ()  # codes of checks


@dataclass(frozen=True)
class RunOutput:
    """How a command reports a run: as NDJSON or as text; `command` is how its hints begin."""

    as_json: bool
    command: str

    @property
    def holds_tracebacks(self) -> bool:
        """Return whether a user reads along: a file and -v get every line at once."""
        return sys.stdout.isatty() and not self.as_json and not is_verbose()

    def logs(self, run_id: str, node_ranks: Mapping[str, NodeRank], world_size: int | None) -> LogSink:
        """Return what shows log lines."""
        from clusterctl.console.lines import JsonLogPrinter, LogPrinter, TorchrunFilter

        if self.as_json:
            return JsonLogPrinter(run_id, node_ranks)
        printer = LogPrinter(node_ranks, world_size or 1)
        return printer if is_verbose() else TorchrunFilter(printer)

    def write_end(self, state: RunState, exit_code: int, error: str | None = None, run_id: str = "") -> None:
        """Close the NDJSON of a run that was not followed to its end; with its name if it continues."""
        verdict: EarlyEnd = {"state": state, "exit_code": exit_code, "error": error}
        line: EarlyEndLine = {"schema": 1, "verdict": verdict}
        self.write_json({"schema": 1, "run": run_id, "verdict": verdict} if run_id else line)

    def write_failure(self, state: RunState, error: ClusterctlError) -> None:
        """Close the NDJSON of a run that an error has ended."""
        verdict: EarlyEnd = {
            "state": state,
            "exit_code": error.exit_code,
            "error": f"{error.code} {error.message}",
        }
        self.write_json({"schema": 1, "verdict": verdict, "error": error_to_json(error)[0]})
        error.in_document = True

    def write_json(self, line: DetachedLine | SubmittedLine | VerdictLine | EarlyEndLine) -> None:
        """Write one line of NDJSON, if that is wanted."""
        if self.as_json:
            with suppress(BrokenPipeError):
                write_line(line)

    def hint(self, verb: str, run_id: str) -> str:
        """Return a command to paste."""
        return command_line(verb, short_id(run_id), command=self.command)

    def describe_commands(self, run_id: str) -> str:
        """List the commands for a run that continues."""
        meanings = {
            "attach": tr("follow it again"),
            "status": tr("show its state"),
            "stop": tr("stop it"),
        }
        commands = {self.hint(verb, run_id): meaning for verb, meaning in meanings.items()}
        width = max(map(len, commands))
        return "\n".join(f"  {command:{width}}  {meaning}" for command, meaning in commands.items())

    def describe_leaving(self, run_id: str, *, stopping: bool) -> str:
        """Describe what happens to the run after this command ends."""
        if stopping:
            command = self.hint("stop", run_id)
            return "\n" + tr(
                "detached while the run was being stopped; to make sure: {command}", command=command
            )
        return f"\n{tr('detached; the run continues')}\n{self.describe_commands(run_id)}"
