"""Start a run of a job, follow it, and read what its nodes have on record of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, TypedDict, cast

from clusterctl.api.command import (
    KINDS,
    Command,
    Target,
    raise_reported,
    raise_unread,
    read_document,
    read_line,
    with_notes,
)
from clusterctl.api.results import MARK, Results
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.protocol.states import SUCCEEDED
from clusterctl.protocol.untrusted import MalformedError
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import PullDocument
    from clusterctl.console.documents.runs import (
        CheckDocument,
        EarlyEnd,
        ErrorEntry,
        LogLine,
        StatusDocument,
        StopDocument,
    )
    from clusterctl.plans.runs.documents import CauseEntry, VerdictEntry


class Ending(TypedDict, total=False):
    """What `launch` and `attach` write besides log lines."""

    run: str
    verdict: VerdictEntry | EarlyEnd
    error: ErrorEntry


Show = Callable[["LogLine"], None]
Words = str | os.PathLike[str]


@dataclass(frozen=True)
class Cause:
    """What failed first: a rank, or without one a node or its torchrun; what is not known is empty.

    `text` is the exception or how the process ended, `file` and `line` are of the user's own code, `code` is that of a
    known error with its `advice`.
    """

    node: str
    rank: int | None
    text: str
    file: str = ""
    line: int | None = None
    code: str = ""
    advice: str = ""
    stderr: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry: CauseEntry) -> Cause:
        """Read the cause of a document."""
        return cls(
            node=entry["node"],
            rank=entry["rank"],
            text=entry["exception"] or entry["ending"],
            file=entry["file"] or "",
            line=entry["line"],
            code=entry["code"] or "",
            advice=entry["advice"],
            stderr=tuple(entry["stderr"]),
        )

    @property
    def origin(self) -> str:
        """Return `rank 3 on gpu02, train.py:47`, as far as it is known."""
        process = self.node if self.rank is None else f"rank {self.rank} on {self.node}"
        return f"{process}, {self.file}:{self.line}" if self.file else process


class RunFailed(ClusterctlError):
    """A run has ended without success; `cause` is what failed first, None where nothing is known."""

    def __init__(self, run: Run, verdict: VerdictEntry, cause: Cause | None) -> None:
        facts = {"run": run.id, "state": verdict["state"]}
        if cause is None:
            super().__init__(
                "CC-RUN-060", "ended", reasons=", ".join(dict.fromkeys(verdict["reasons"].values())), **facts
            )
        else:
            text = " ".join(map(sanitize, cause.text.splitlines()))
            super().__init__("CC-RUN-060", "", place=sanitize(cause.origin), text=text, **facts)
            self.evidence = "\n".join(map(sanitize, cause.stderr))
            self.code = cause.code or self.code
            self.fix = cause.advice or self.fix
        self.run, self.verdict, self.cause = run, verdict, cause

    def __reduce__(self) -> tuple[type[RunFailed], tuple[Run, VerdictEntry, Cause | None]]:
        return RunFailed, (self.run, self.verdict, self.cause)


def failure_of(run: Run, verdict: VerdictEntry, cause: Cause | None) -> RunFailed:
    """Return the exception for an end without success, with the rank's stderr in its notes."""
    error = RunFailed(run, verdict, cause)
    with_notes(error)
    return error


class Detached(KeyboardInterrupt):
    """Ctrl-C while a run was followed; the run continues."""

    def __init__(self, run: Run) -> None:
        command = f"clusterctl.attach({run.id!r}{run.target})"
        super().__init__(tr("the run continues; to come back: {command}", command=command))
        self.run = run

    def __reduce__(self) -> tuple[type[Detached], tuple[Run]]:
        return Detached, (self.run,)


@dataclass
class Run:
    """A run on its nodes. What it shows is read from them each time; `id` is enough to come back to it."""

    id: str
    target: Target = field(default=Target(), repr=False)
    _verdict: VerdictEntry | None = field(default=None, repr=False, compare=False)

    def wait(
        self, timeout: float | None = None, *, check: bool = False, output: TextIO | None = None
    ) -> VerdictEntry:
        """Wait until the run has ended and return its verdict; new log lines are written to `output`.

        Raises TimeoutError after `timeout` seconds and Detached at Ctrl-C: the run continues. With `check` RunFailed
        if it did not succeed.
        """
        if self._verdict is None:
            with Command(self.target, ["attach", self.id], output) as command:
                ending = follow(command, line_printer(output), self.target, run=self.id, timeout=timeout)
                self._verdict = read_verdict(command, ending)
        if check and self._verdict["state"] != SUCCEEDED:
            raise failure_of(self, self._verdict, self.cause)
        return self._verdict

    def results(self) -> list[Any]:
        """Return what `clusterctl.run` would have returned: its function's results, when the run has ended."""
        self.wait(check=True)
        results = Results()
        for entry in self.logs(grep=MARK, stream="stdout"):
            results.feed(entry)
        return results.values(self.id, self.wait()["attempt"])

    def status(self) -> StatusDocument:
        """Return what `clusterctl status --json` writes: the state of each node and rank."""
        return cast("StatusDocument", read_document(self.target, "status", self.id))

    @property
    def cause(self) -> Cause | None:
        """What failed first; None while the run works or when it has succeeded."""
        entry = self._verdict["cause"] if self._verdict is not None else self.status()["cause"]
        return Cause.of(entry) if entry else None

    def logs(
        self,
        rank: int | Sequence[int] | None = None,
        *,
        tail: int | None = None,
        grep: str | None = None,
        stream: str | None = None,
        attempt: int | None = None,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """Yield log lines, of all ranks or some; with `follow` until the run ends."""
        given = {"--tail": tail, "--grep": grep, "--stream": stream, "--attempt": attempt}
        ranks = [rank] if isinstance(rank, int) else rank or ()
        words = [word for number in ranks for word in ("--rank", str(number))]
        words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
        words += ["-f"] if follow else []
        with Command(self.target, ["logs", self.id, *words]) as command:
            for entry in read_lines(command, None):
                if "error" in entry:
                    raise_reported(entry, command.wait())
                yield cast("LogLine", entry)
            if code := command.wait():
                raise_unread(command, MalformedError(f"exit code {code}"))

    def stop(self, grace: float | None = None) -> StopDocument:
        """Stop the run on all nodes."""
        words = [] if grace is None else ["--grace", str(grace)]
        return cast("StopDocument", read_document(self.target, "stop", self.id, "-y", *words))

    def pull(self, folder: Words | None = None, *, logs: bool = False) -> PullDocument:
        """Download the run's outputs, into outputs/<job> or a folder."""
        words = [] if folder is None else [os.path.join(folder, "")]  # noqa: PTH118 - the slash makes it a folder
        words += ["--logs"] if logs else []
        return cast("PullDocument", read_document(self.target, "pull", self.id, *words))


def attach(
    run: str,
    *,
    inventory: Words | None = None,
    lab: str | None = None,
    hosts: str | Sequence[str] | None = None,
) -> Run:
    """Return a run by its id, or any unambiguous prefix; nothing is read yet."""
    if not run[:1].isalnum():
        raise ValueError(f"not the id of a run: {run!r}")
    return Run(run, Target.of(inventory, lab, hosts))


def check(
    job: Words | None = None,
    *,
    inventory: Words | None = None,
    lab: str | None = None,
    hosts: str | Sequence[str] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - the option's name
    nodes: str | None = None,
    deep: bool = False,
) -> CheckDocument:
    """Check the nodes, for a job or in general; returns them with all findings, and raises nothing for these."""
    words = [] if job is None else [os.fspath(job)]
    words += setting_words(set or {})
    words += [] if nodes is None else ["--nodes", nodes]
    words += ["--deep"] if deep else []
    return cast("CheckDocument", read_document(Target.of(inventory, lab, hosts), "check", *words))


def launch(  # noqa: PLR0913 - the options of the verb
    job: Words = "job.yaml",
    *,
    inventory: Words | None = None,
    lab: str | None = None,
    hosts: str | Sequence[str] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - the option's name
    nodes: str | int | None = None,
    args: Sequence[object] = (),
    wait: bool = False,
    ignore_checks: bool = False,
    output: TextIO | None = None,
) -> Run:
    """Check the nodes, send the code and start a job file or a script.

    Returns when the workers have started, on Slurm when the job is in its queue. `set` holds keys of the job, such as
    {"env.SEED": "1"}; `nodes` is that key: a count or a choice. `args` follow those of the job. `wait`: until GPUs or
    nodes that another run holds are free. Progress is written to `output`.
    """
    given = dict(set or {})
    if nodes is not None:
        given["nodes"] = nodes
    words = ["launch", os.fspath(job), "-d", *setting_words(given)]
    words += ["--wait"] if wait else []
    words += ["--ignore-checks"] if ignore_checks else []
    target = Target.of(inventory, lab, hosts)
    with Command(target, [*words, *(["--", *map(str, args)] if args else [])], output) as command:
        ending = follow(command, line_printer(None), target)
        if "run" in ending and "verdict" not in ending:
            return Run(ending["run"], target)
        raise early_end(command, ending)


def setting_words(settings: Mapping[str, object]) -> list[str]:
    """Return `--set KEY=VALUE` for keys of the job; JSON is YAML, so that a text stays a text."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def line_printer(output: TextIO | None) -> Show:
    """Return what writes log lines to a stream, but for results of functions and the newline before each."""
    held: dict[tuple[str, int | None], LogLine] = {}  # empty lines that may be such a newline

    def write(entry: LogLine) -> None:
        assert output is not None
        rank = "-" if entry["rank"] is None else f"r{entry['rank']}"
        sign = "!" if entry["stream"] == "stderr" else "|"
        output.write(f"{entry['node']} {rank} {sign} {sanitize(entry['line'])}\n")
        output.flush()

    def show(entry: LogLine) -> None:
        if output is None or "line" not in entry:
            return
        rank = entry["node"], entry["rank"]
        before = held.pop(rank, None)
        if MARK in entry["line"]:
            return
        if before is not None:
            write(before)
        if entry["line"] or entry["stream"] == "stderr":
            write(entry)
        else:
            held[rank] = entry

    return show


def read_lines(command: Command, timeout: float | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of NDJSON."""
    try:
        for line in command.lines(timeout):
            yield read_line(line)
    except MalformedError as error:
        raise_unread(command, error)


def follow(
    command: Command, show: Show, target: Target, *, run: str = "", timeout: float | None = None
) -> Ending:
    """Show log lines until `launch` or `attach` ends, and return what else it wrote; Detached at Ctrl-C.

    A launch writes the id of its run when the run continues.
    """
    ending: Ending = {"run": run} if run else {}
    try:
        _read_ending(command, show, timeout, ending)
    except KeyboardInterrupt:
        command.interrupt()
        _read_ending(command, line_printer(None), None, ending)
        if "run" in ending:
            raise Detached(Run(ending["run"], target)) from None
        raise
    return ending


def _read_ending(command: Command, show: Show, timeout: float | None, ending: Ending) -> None:
    for entry in read_lines(command, timeout):
        if "node" in entry:
            show(cast("LogLine", entry))
        else:
            ending.update(cast("Ending", entry))


def read_verdict(command: Command, ending: Ending) -> VerdictEntry:
    """Return the verdict of a run that was followed to its end; raise why it was not."""
    verdict = ending.get("verdict")
    if verdict is None or "cause" not in verdict:
        raise early_end(command, ending)
    return cast("VerdictEntry", verdict)


def early_end(command: Command, ending: Ending) -> ClusterctlError:
    """Return why a launch started nothing, or why a run was not followed to its end."""
    code = command.wait()
    if "error" in ending:
        raise_reported(ending, code)
    verdict = cast("EarlyEnd | None", ending.get("verdict"))
    reason = (verdict and verdict["error"]) or f"exit code {code}"
    kind = KINDS.get(code, ClusterctlError)
    return with_notes(kind("CC-RUN-060", "early", evidence=command.evidence, reason=reason))
