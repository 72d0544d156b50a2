"""Call a function on all ranks of a run: its script is launched, and what each rank returns is read from the log."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from clusterctl.api.command import Command, Target
from clusterctl.api.results import Results
from clusterctl.api.run import (
    Cause,
    Run,
    RunFailed,
    failure_of,
    follow,
    line_printer,
    read_verdict,
    setting_words,
)
from clusterctl.api.source import CallScript, plan_script
from clusterctl.protocol.states import SUCCEEDED

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import LogLine
    from clusterctl.plans.runs.documents import VerdictEntry

MAX_NAME = 40  # characters of the job's name


def run(
    function: Callable[..., Any],
    *args: Any,
    inventory: str | os.PathLike[str] | None = None,
    lab: str | None = None,
    hosts: str | Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    output: TextIO | None = None,
    **keys: object,
) -> list[Any]:
    """Call a function with JSON arguments on every rank and return what each returns, in the order of the ranks.

    The function is imported on the nodes from its module, whose folder is sent, or it is sent as source if a notebook
    or the program itself defines it; then it may use modules, functions, classes and plain values from there.
    `folder` is sent instead. `keys` are keys of the job, such as nproc_per_node=2 or env={...}; the run's record has
    them, so tokens go by secrets=[...]. What the ranks write goes to `output`.

    Raises RunFailed with node, rank and line if a rank fails, Detached at Ctrl-C: the run continues.
    """
    script = plan_script(function, args, None if folder is None else str(Path(folder).absolute()))
    target = Target.of(inventory, lab, hosts)
    name = re.sub(r"[^a-z0-9]+", "-", function.__name__.lower()).strip("-")[:MAX_NAME] or "call"
    settings: dict[str, object] = {"name": name, "launcher": "torchrun", "args": [], "alone": "ok", **keys}
    results, show = Results(), line_printer(output)

    def keep(entry: LogLine) -> None:
        results.feed(entry)
        show(entry)

    with tempfile.TemporaryDirectory(prefix="clusterctl-") as place:
        path = Path(place) / script.name
        path.write_text(script.text, encoding="utf-8")
        words = ["launch", str(path), "--code", script.folder or place, *setting_words(settings)]
        with Command(target, words, output) as command:
            ending = follow(command, keep, target)
            verdict = read_verdict(command, ending)
    started = Run(ending["run"], target, verdict)
    if verdict["state"] != SUCCEEDED:
        raise _failure(started, verdict, script)
    return results.values(started.id, verdict["attempt"])


def _failure(started: Run, verdict: VerdictEntry, script: CallScript) -> RunFailed:
    """Return the exception with the line of the user's own file, where the script has only its text."""
    cause = Cause.of(verdict["cause"]) if verdict["cause"] else None
    if cause is not None and cause.line is not None:
        file, line = script.locate(cause.file, cause.line)
        cause = replace(cause, file=file, line=line)
    return failure_of(started, verdict, cause)
