"""Runs command lists into a log (child process)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, List, Mapping, Sequence

from ...protocol.exit_status import describe_end
from ...protocol.run_paths import RunPaths
from ..runtime.reports import write_report
from ..state.run_record import read_spec
from ..supervise.evidence import is_full
from ..supervise.spawn import render_template

if TYPE_CHECKING:
    from ...protocol.messages.files import StepSpec
    from ...protocol.messages.local import StepFailure

TAIL_LINES = 20  # lines
TAIL_BYTES = 64 << 10  # bytes of a log's end that are looked at
LARGEST_LOG = 64 << 20  # bytes of a log; beyond, it begins again
REPORT_INTERVAL = 0.5  # seconds
PLAIN = re.compile(r"[\w@%+=:,./-]+\Z", re.ASCII)

# Where programs that make environments are put by their own installers, and no PATH of a plain session leads.
PROGRAM_FOLDERS = (
    "~/.local/bin",
    "~/.cargo/bin",
    "~/bin",
    "~/micromamba/bin",
    "~/miniforge3/bin",
    "~/miniconda3/bin",
    "~/anaconda3/bin",
    "/opt/conda/bin",
    "/opt/miniconda3/bin",
)


class StepFailed(Exception):
    """A command did not do its work; `again` is what a person would type to see it fail."""

    def __init__(self, reason: str, text: str, *, code: str, again: str = "") -> None:
        super().__init__(reason)
        self.reason, self.text, self.code, self.again = reason, text, code, again

    def as_dict(self) -> StepFailure:
        """Render for a report."""
        return {"reason": self.reason, "text": self.text, "code": self.code, "again": self.again}


class StepRunner:
    """Runs commands in a directory, with what they print in a log; `report` gets what is running.

    `code` is that of a command that fails.
    """

    def __init__(
        self,
        log: str,
        folder: str,
        env: Mapping[str, str],
        report: Callable[[str], None],
        code: str = "CC-SETUP-001",
    ) -> None:
        self._code = code
        self._log = log
        self._folder = folder
        self._report = report
        program_folders = ":".join(map(os.path.expanduser, PROGRAM_FOLDERS))
        self._env = {**env, "PATH": "%s:%s" % (env.get("PATH", os.defpath), program_folders)}

    def find(self, step: StepSpec, values: Mapping[str, str]) -> List[str]:
        """Return the words of a step, its program the first of those wished for that is here."""
        programs = [render_template(program, values) for program in step["programs"]]
        available = [
            candidate
            for candidate in programs
            if os.path.isabs(candidate) or shutil.which(candidate, path=self._env["PATH"])
        ]
        program = (available or programs)[0]
        return [program, *(render_template(word, values) for word in step["arguments"])]

    def run(self, argv: Sequence[str], shown: str) -> None:
        """Run one command to its end; raises StepFailed if that is not a good one.

        It writes into the log itself: what it leaves in the background may go on writing there.
        """
        self._report(shown)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(self._log, flags, 0o600)
        try:
            with suppress(OSError):  # on a full disk the commands that fail report it themselves
                os.write(log, ("$ %s\n" % " ".join(map(quote, argv))).encode("utf-8", "surrogateescape"))
            begin = os.fstat(log).st_size
            try:
                child = self._start(argv, log)
            except OSError as error:
                raise self._start_failure(argv[0], error) from None
            code = self._wait(child, log, begin)
            tail = last_lines(log, begin)
        finally:
            os.close(log)
        if code != 0:
            raise self._failure(shown, code, tail)

    def _start(self, argv: Sequence[str], log: int) -> subprocess.Popen[bytes]:
        arguments = [os.fsencode(word) for word in argv]
        program = shutil.which(argv[0], path=self._env["PATH"]) or argv[0]
        return subprocess.Popen(
            arguments,
            executable=program,
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def _wait(self, child: subprocess.Popen[bytes], log: int, begin: int) -> int:
        """Wait for the end of a command, and say now and then what it wrote last."""
        while True:
            try:
                return child.wait(REPORT_INTERVAL)
            except subprocess.TimeoutExpired:
                lines = [line for line in last_lines(log, begin) if line.strip()]
                if lines:
                    self._report(lines[-1])
            if os.fstat(log).st_size > LARGEST_LOG:
                drop_beginning(log)

    def _failure(self, shown: str, code: int, tail: Sequence[str]) -> StepFailed:
        ending = describe_end(None, -code) if code < 0 else describe_end(code, None)
        disk_full = is_full(self._folder) or any("No space left on device" in line for line in tail)
        disk_hint = ", the disk is full" if disk_full else ""
        reason = "`%s` %s%s" % (shorten(shown), ending, disk_hint)
        return StepFailed(reason, "\n".join(tail), code="CC-DISK-001" if disk_full else self._code)

    def _start_failure(self, program: str, error: OSError) -> StepFailed:
        reason = "cannot start %s: %s" % (program, error.strerror)
        return StepFailed(reason, "PATH is %s" % self._env["PATH"], code="CC-SETUP-004")


def drop_beginning(log: int) -> None:
    """Drop what a log holds but for its end."""
    end = os.pread(log, TAIL_BYTES, os.fstat(log).st_size - TAIL_BYTES)
    os.ftruncate(log, 0)
    os.write(log, b"[more than %d MB stood here, and are dropped]\n" % (LARGEST_LOG >> 20) + end)


def last_lines(log: int, begin: int) -> List[str]:
    """Return the last lines of a log, as far as they stand behind a place; of a line that was written over, the end."""
    size = os.fstat(log).st_size
    start = max(min(begin, size), size - TAIL_BYTES)
    text = os.pread(log, TAIL_BYTES, start).decode("utf-8", "replace")
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return lines[1 if start > begin else 0 : -1 if text.endswith("\n") else None][-TAIL_LINES:]


def shorten(text: str, longest: int = 100) -> str:
    """Put a command into a line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def quote(word: str) -> str:
    """Write a word for a shell."""
    return word if PLAIN.match(word) else "'%s'" % word.replace("'", "'\"'\"'")


ERROR_CODE = "CC-SETUP-005"


def main(arguments: List[str]) -> None:
    """Run the commands of `before` or `after` in the run's code; the first that fails is the last."""
    rundir, name, log, report = arguments[0], arguments[1], arguments[2], int(arguments[3])
    os.set_inheritable(report, False)
    spec = read_spec(rundir)
    assert spec is not None  # the agent, which starts this, has read it
    hook = spec["before"] if name == "before" else spec["after"]
    runner = StepRunner(
        log,
        RunPaths(rundir).code,
        os.environ,
        lambda text: write_report(report, {"doing": text}),
        ERROR_CODE,
    )
    try:
        for step in hook["steps"]:
            runner.run(runner.find(step, {}), step["shown"])
        write_report(report, {"done": True})
    except StepFailed as error:
        write_report(report, {"failed": error.as_dict()})
