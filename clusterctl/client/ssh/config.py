"""`ssh -G` answers, cached.

Which files an answer of `ssh -G` depends on, so that it can be remembered until one of them changes.

Only `Include` and a few words that make answers depend on more than the files are looked for here; what the
files mean is ssh's business alone.

`~/.ssh/config` as OpenSSH reads it: ssh itself is asked (`ssh -G`), and its answers are remembered.

One question costs 4 ms of CPU. An answer is kept on disk until a file that it depends on changes; where it
depends on more than files (`Match exec`), it is asked for each command anew.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from clusterctl.client.local.private_files import keep_newest, read_own, write_own
from clusterctl.errors import Unreachable
from clusterctl.specs.text import command_line

SYSTEM_FOLDER = Path("/etc/ssh")
DEEPEST = 16  # OpenSSH's own limit of Include within Include
LARGEST = 4 << 20
MOVING = ("exec", "localnetwork")  # of Match: asks a program, the network
RACY = 2_000_000_000  # ns: a file this young may change again without a new time stamp


@dataclass
class Traces:
    """What was seen of the files; `fixed` tells whether an answer depends on nothing else."""

    marks: list[list[object]] = field(default_factory=list)
    fixed: bool = True


def trace_files(config: str | None, home: Path | None = None) -> Traces:
    """Look at a configuration file, or at ssh's usual ones, and at all that they include."""
    traces = Traces()
    user_folder = (home or own_home()) / ".ssh"
    if config is not None:
        _follow(Path(config), user_folder, traces, DEEPEST)
    else:
        _follow(user_folder / "config", user_folder, traces, DEEPEST)
        _follow(SYSTEM_FOLDER / "ssh_config", SYSTEM_FOLDER, traces, DEEPEST)
    return traces


def named_hosts(config: Path, folder: Path | None = None) -> list[str]:
    """List the hosts that a configuration file and its Includes name outright, without patterns, in their order."""
    return list(dict.fromkeys(_names(config, folder or own_home() / ".ssh", DEEPEST)))


def _names(path: Path, folder: Path, depth: int) -> Iterator[str]:
    for key, words in _read_lines(path):
        if key == "host":
            yield from (word for word in words if not set(word) & set("*?!"))
        elif key == "include" and depth > 0:
            for pattern in words:
                for found in _find(pattern, folder):
                    yield from _names(Path(found), folder, depth - 1)


def own_home() -> Path:
    """Return the home that ssh believes in, which HOME does not change."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _follow(path: Path, folder: Path, traces: Traces, depth: int) -> None:
    traces.marks.append([str(path), *_stamp(path, traces)])
    for key, words in _read_lines(path):
        if key == "include":
            for pattern in words:
                _include(pattern, folder, traces, depth)
        elif (key == "match" and _asks_around(words)) or key == "canonicalizehostname":
            traces.fixed = False
        if any("${" in word for word in words):
            traces.fixed = False


def _include(pattern: str, folder: Path, traces: Traces, depth: int) -> None:
    if depth == 0 or "%" in pattern or "$" in pattern:
        traces.fixed = False
        return
    found = _find(pattern, folder)
    traces.marks.append([_whole(pattern, folder), *found])
    for path in found:
        _follow(Path(path), folder, traces, depth - 1)


def _find(pattern: str, folder: Path) -> list[str]:
    return sorted(glob.glob(_whole(pattern, folder)))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _whole(pattern: str, folder: Path) -> str:
    return _expand(pattern) if pattern.startswith("~") else str(folder / pattern)


def _expand(path: str) -> str:
    return str(own_home()) + path[1:] if path.startswith("~/") else os.path.expanduser(path)  # noqa: PTH111 - ~other may be nobody, which is no error here


def _asks_around(words: list[str]) -> bool:
    names = {word.lstrip("!").partition("=")[0].lower() for word in words}
    return bool(names & set(MOVING))


def _stamp(path: Path, traces: Traces) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    if max(found.st_mtime_ns, found.st_ctime_ns) > time.time_ns() - RACY:
        traces.fixed = False
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _read_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        words = _split(line.strip())
        if words:
            key, _, rest = words[0].partition("=")
            yield key.lower(), [word for word in (rest, *words[1:]) if word not in {"", "="}]


def _split(line: str) -> list[str]:
    if not line or line.startswith("#"):
        return []
    try:
        return shlex.split(line)
    except ValueError:  # an odd number of quotes: ssh will say so
        return line.split()


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
