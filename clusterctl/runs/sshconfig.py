"""`~/.ssh/config` as OpenSSH reads it: ssh itself is asked (`ssh -G`), and its answers are remembered.

One question costs 4 ms of CPU. An answer is kept on disk until a file that it depends on changes; where it
depends on more than files (`Match exec`), it is asked for each command anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterctl.errors import Unreachable
from clusterctl.runs.private_files import keep_newest, read_own, write_own
from clusterctl.runs.sshfiles import Traces, trace_files
from clusterctl.specs.commandline import command_line

VERSION = 2
NONE = "none"
AT_ONCE = 8  # programs that run at a time
LIMIT = 10.0  # seconds; `Match exec` may take its time
MOST = 20_000  # answers in one file
MOST_BOOKS = 50  # configurations whose answers are kept
KEPT = {
    *("hostname", "user", "port", "proxyjump", "proxycommand"),
    *("identityfile", "certificatefile", "identitiesonly", "identityagent"),
    *("hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking"),
    "revokedhostkeys",
}
Answer = Mapping[str, list[str]]


@dataclass(frozen=True)
class Question:
    """What is asked: a host as a user would type it, and what the command line says beside it."""

    host: str
    user: str | None = None
    port: int | None = None
    config: str | None = None

    def arguments(self) -> list[str]:
        """Write the question as arguments of ssh; nothing in it can be taken for an option."""
        words = ["-F", self.config] if self.config is not None else []
        words += ["-l", self.user] if self.user is not None else []
        words += ["-p", str(self.port)] if self.port is not None else []
        return ["-G", *words, "--", self.host]


class SshConfig:
    """Answers of ssh about hosts, for one command. Safe to use from many threads."""

    def __init__(
        self,
        notice: Callable[[str], None] = lambda _: None,
        *,
        folder: Path | None = None,
        program: str | None = "ssh",
        home: Path | None = None,
    ) -> None:
        self._notice = notice
        self._folder = folder
        self._program = shutil.which(program) if program else None
        self._home = home
        self._books: dict[str | None, _Book] = {}
        self._turns = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._warned = False

    def ask(self, question: Question, node: str) -> Answer:
        """Say what the configuration says of a host; empty without one, or without ssh."""
        if question.config == NONE:
            return {}
        if self._program is None:
            self._warn()
            return {}
        book = self._book(question.config)
        key = json.dumps([question.host, question.user, question.port])
        known = book.answers.get(key)
        if known is None:
            with self._turns:
                known = book.answers[key] = self._run(question, node)
            book.grown = True
        return known

    def save(self) -> None:
        """Remember the answers of this command for the next."""
        with self._lock:
            books = list(self._books.values())
        for book in books:
            book.save()

    def _book(self, config: str | None) -> _Book:
        with self._lock:
            if config not in self._books:
                home = self._home if config is None else None
                self._books[config] = _Book(
                    self._folder, self._program or "", config, trace_files(config, home)
                )
            return self._books[config]

    def _run(self, question: Question, node: str) -> Answer:
        try:
            status, printed, said = _run_alone([self._program or "ssh", *question.arguments()])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unusable(node, question, str(error)) from error
        if status != 0:
            raise _unusable(node, question, said.decode("utf-8", "replace").strip())
        return parse_answer(printed.decode("utf-8", "surrogateescape"))

    def _warn(self) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            self._notice("there is no ssh program here: ~/.ssh/config is not read, only the inventory counts")


class _Book:
    """The answers under one configuration; those on disk count only while its files are unchanged."""

    def __init__(self, folder: Path | None, program: str, config: str | None, traces: Traces) -> None:
        self.answers: dict[str, Answer] = {}
        self.grown = False
        self._mark = _digest([VERSION, program, _stamp_program(program), os.getuid(), traces.marks])
        self._file = None
        if folder is not None and traces.fixed:
            self._file = folder / f"{_digest([config, os.getuid()])[:32]}.json"
            self._load(self._file)

    def _load(self, file: Path) -> None:
        with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
            kept = json.loads(read_own(file))
            if kept["mark"] == self._mark:
                self.answers = {
                    str(key): {str(name): [str(text) for text in texts] for name, texts in answer.items()}
                    for key, answer in kept["answers"].items()
                }

    def save(self) -> None:
        """Write the answers; those of a configuration that has just been written are worth it too."""
        if self._file is None or not self.grown or len(self.answers) > MOST:
            return
        self.grown = False
        text = json.dumps({"mark": self._mark, "answers": dict(self.answers)})
        with suppress(OSError):
            write_own(self._file, text)
            keep_newest(self._file.parent, MOST_BOOKS)


def _run_alone(command: list[str]) -> tuple[int, bytes, bytes]:
    """Run a program in a session of its own; what it started, as `Match exec` does, ends with it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=LIMIT)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, printed, said


def parse_answer(text: str) -> Answer:
    """Read what `ssh -G` prints: a key and its value per line."""
    answer: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in KEPT:
            answer.setdefault(key, []).append(value)
    return answer


def expand_tokens(text: str, tokens: Mapping[str, str]) -> str | None:
    """Fill in `%h` and its like, `${VARIABLE}` and a leading `~/`; None if one is not known here."""
    missing = False

    def fill(match: re.Match[str]) -> str:
        nonlocal missing
        letter, variable = match.groups()
        value = os.environ.get(variable) if variable else tokens.get(letter)
        missing = missing or value is None
        return value or ""

    filled = re.sub(r"%(.)|\$\{([^}]*)\}", fill, text)
    if missing:
        return None
    return tokens["d"] + filled[1:] if filled.startswith("~/") else filled


def split_paths(text: str) -> list[str]:
    """Split the files of UserKnownHostsFile, which ssh prints with one space between; a name may hold one."""
    return [path for path in re.split(r" (?=[/~%$])", text.strip()) if path]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8", "surrogateescape")).hexdigest()


def _stamp_program(program: str) -> list[int]:
    try:
        found = Path(program).stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _unusable(node: str, question: Question, said: str) -> Unreachable:
    command = command_line("ssh", *question.arguments())
    return Unreachable(
        "ssh cannot read its configuration",
        code="CC-SSH-019",
        node=node,
        evidence=said,
        fix=f"make `{command}` work; or write `config: none` under `ssh:` in the inventory to do without",
    )
