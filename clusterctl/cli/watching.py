"""Watch a run to its end on the screen, and tell how it ended; `launch` and `attach` do it alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from clusterctl.cli.reaching import notice
from clusterctl.cli.telling import remind, tell_end
from clusterctl.console.choice import say
from clusterctl.console.jsontext import json_text
from clusterctl.console.logs import JsonLogs, LogPrinter, Logs
from clusterctl.console.verdict import show_verdict
from clusterctl.plans.verdict import to_json
from clusterctl.runs.attached import Attached, Watch
from clusterctl.runs.cluster import Cluster
from clusterctl.specs.commandline import command_line


@dataclass(frozen=True)
class Report:
    """How a command speaks of a run: as NDJSON or in words; `command` is how its hints begin."""

    as_json: bool
    command: str

    def logs(self, run: str, ranks: Mapping[str, int], world_size: int | None) -> Logs:
        """Give what shows log lines; `ranks` are the node ranks by name."""
        return JsonLogs(run, ranks) if self.as_json else LogPrinter(ranks, world_size or 1)

    def write_end(self, state: str, exit_code: int, error: str | None = None) -> None:
        """Close the NDJSON of a run that was not followed to its end."""
        self.write_json({"verdict": {"state": state, "exit_code": exit_code, "error": error}})

    def write_json(self, entry: Mapping[str, object]) -> None:
        """Write one line of NDJSON, if that is wanted."""
        if self.as_json:
            with suppress(BrokenPipeError):
                print(json_text({"schema": 1, **entry}), flush=True)

    def hint(self, verb: str, run: str) -> str:
        """Give a command to paste."""
        return command_line(verb, run, command=self.command)

    def come_back(self, run: str) -> str:
        """Say how to come back to a run that goes on."""
        ways = {"attach": "follow it again", "status": "how it stands", "stop": "end it"}
        commands = {self.hint(verb, run): meaning for verb, meaning in ways.items()}
        width = max(map(len, commands))
        return "\n".join(f"  {command:{width}}  {meaning}" for command, meaning in commands.items())

    def leaving(self, run: str, *, stopping: bool) -> str:
        """Say what becomes of a run that nobody watches any more."""
        if stopping:
            return f"\nleft while the run was being stopped; make sure that it is: {self.hint('stop', run)}"
        return f"\ndetached; the run goes on\n{self.come_back(run)}"


def watch_run(cluster: Cluster, watch: Watch, report: Report, logs: Logs, began: float) -> int:
    """Follow a run that began at `began` (time.time()) to its verdict, whose exit code this gives; Ctrl-C leaves."""
    attached = Attached(cluster, watch, show=logs.show, notice=notice)
    try:
        verdict = attached.watch()
    except BaseException as leaving:
        say(report.leaving(watch.run, stopping=attached.stopping))
        if not isinstance(leaving, (KeyboardInterrupt, BrokenPipeError)):
            raise
        report.write_end("RUNNING", 130)
        remind(watch.run, report.hint("attach", watch.run))
        return 130
    report.write_json({"run": verdict.run, "verdict": to_json(verdict)})
    seconds = time.time() - began
    show_verdict(verdict, seconds, report.command)
    tell_end(verdict, seconds, report.command, watch.secrets)
    return verdict.exit_code
