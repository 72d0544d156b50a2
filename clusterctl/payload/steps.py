"""Commands that run one after the other, into one log; the first that fails ends it, with what it said last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Mapping, Sequence

from .evidence import is_full
from .launcher import fill
from .verdict import describe_end

TAIL = 20  # lines
LONGEST_LINE = 400  # characters
TELL_EVERY = 0.5  # seconds
PLAIN = re.compile(r"[\w@%+=:,./-]+\Z", re.ASCII)

# Where programs that make environments are put by their own installers, and no PATH of a plain session leads.
HOMES = (
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

    def as_dict(self) -> Dict[str, str]:
        """Render for a report."""
        return {"reason": self.reason, "text": self.text, "code": self.code, "again": self.again}


class Steps:
    """Runs commands in a directory, with what they print in a log; `say` hears what they are at.

    `code` is that of a command that fails.
    """

    def __init__(
        self,
        log: str,
        folder: str,
        env: Mapping[str, str],
        say: Callable[[str], None],
        code: str = "CC-SETUP-001",
    ) -> None:
        self._code = code
        self._log = log
        self._folder = folder
        self._say = say
        homes = ":".join(map(os.path.expanduser, HOMES))
        self._env = {**env, "PATH": "%s:%s" % (env.get("PATH", os.defpath), homes)}

    def find(self, wish: Dict[str, Any], values: Mapping[str, str]) -> List[str]:
        """Return the words of a step, its program the first of those wished for that is here."""
        programs = [fill(program, values) for program in wish["programs"]]
        here = [one for one in programs if os.path.isabs(one) or shutil.which(one, path=self._env["PATH"])]
        program = (here or programs)[0]
        return [program, *(fill(word, values) for word in wish["words"])]

    def run(self, argv: Sequence[str], shown: str) -> None:
        """Run one command to its end; raises StepFailed if that is not a good one."""
        self._say(shown)
        with open(self._log, "ab", buffering=0) as log:
            _write(log, ("$ %s\n" % " ".join(map(quote, argv))).encode("utf-8", "surrogateescape"))
            try:
                child = self._start(argv)
            except OSError as error:
                raise self._not_there(argv[0], error) from None
            tail = self._carry(child, log)
            code = child.wait()
        if code != 0:
            raise self._failure(shown, code, tail)

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        words = [os.fsencode(word) for word in argv]
        program = shutil.which(argv[0], path=self._env["PATH"]) or argv[0]
        return subprocess.Popen(
            words,
            executable=program,
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _carry(self, child: subprocess.Popen[bytes], log: Any) -> Deque[str]:
        """Copy what a command prints into the log; gives its last lines. It ends with the command's output."""
        assert child.stdout is not None
        tail: Deque[str] = deque(maxlen=TAIL)
        told = time.monotonic()
        with child.stdout as source:
            for line in source:
                _write(log, line)
                text = line.decode("utf-8", "replace").rstrip().rpartition("\r")[2]
                tail.append(text[:LONGEST_LINE])
                if text.strip() and time.monotonic() - told > TELL_EVERY:
                    told = time.monotonic()
                    self._say(tail[-1])
        return tail

    def _failure(self, shown: str, code: int, tail: Sequence[str]) -> StepFailed:
        how = describe_end(None, -code) if code < 0 else describe_end(code, None)
        full = is_full(self._folder) or any("No space left on device" in line for line in tail)
        room = ", the disk is full" if full else ""
        reason = "`%s` %s%s" % (shorten(shown), how, room)
        return StepFailed(reason, "\n".join(tail), code="CC-DISK-001" if full else self._code)

    def _not_there(self, program: str, error: OSError) -> StepFailed:
        reason = "cannot start %s: %s" % (program, error.strerror)
        return StepFailed(reason, "PATH is %s" % self._env["PATH"], code="CC-SETUP-004")


def _write(log: Any, content: bytes) -> None:
    with suppress(OSError):  # on a full disk what fails for it says so itself
        log.write(content)


def shorten(text: str, longest: int = 100) -> str:
    """Put a command into a line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def quote(word: str) -> str:
    """Write a word for a shell."""
    return word if PLAIN.match(word) else "'%s'" % word.replace("'", "'\"'\"'")
