"""`~/.ssh/config` as OpenSSH reads it: by `ssh -G`, once for each host and command.

One query costs 5 ms of CPU. Not printed by ssh, and so read here for `init`: which hosts a file names.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.errors import Unreachable
from clusterctl.plans.ssh import with_english_messages
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

NONE = "none"
MAX_PARALLEL = 8  # programs that run at a time
LIMIT = 10.0  # seconds; `Match exec` may take its time
MAX_OUTPUT = 4 << 20  # bytes of ssh, and of what `Match exec` runs
MAX_INCLUDE_DEPTH = 16  # OpenSSH's own limit of Include within Include
MAX_FILE_SIZE = 4 << 20
USER_FOLDER = "~/.ssh"  # of an Include, where HOME counts; the file itself is in the home of /etc/passwd
USED_KEYWORDS = {
    *("hostname", "user", "port", "proxyjump", "proxycommand"),
    *("identityfile", "certificatefile", "identitiesonly", "identityagent"),
    *("hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking"),
    *("revokedhostkeys", "hashknownhosts"),
}
HostOptions = Mapping[str, list[str]]


@dataclass(frozen=True)
class ConfigQuery:
    """The query: a host as a user would type it, and the options of the command line."""

    host: str
    user: str | None = None
    port: int | None = None
    config: str | None = None

    def arguments(self) -> list[str]:
        """Write the question as arguments of ssh; nothing in it can be taken for an option."""
        options = ["-F", self.config] if self.config is not None else []
        options += ["-l", self.user] if self.user is not None else []
        options += ["-p", str(self.port)] if self.port is not None else []
        return ["-G", *options, "--", self.host]


class SshConfig:
    """Answers of ssh about hosts, for one command. Safe to use from many threads."""

    def __init__(self, notice: Callable[[str], None] = lambda _: None, *, program: str = "ssh") -> None:
        self._notice = notice
        self._program = shutil.which(program)
        self._answers: dict[ConfigQuery, Future[HostOptions]] = {}
        self._semaphore = threading.Semaphore(MAX_PARALLEL)
        self._lock = threading.Lock()
        self._warned = False

    def query(self, query: ConfigQuery, node: str) -> HostOptions:
        """Return the configuration of a host; empty without one, or without ssh."""
        if query.config == NONE:
            return {}
        if self._program is None:
            self._warn_no_ssh()
            return {}
        with self._lock:
            answer = self._answers.get(query)
            is_first = answer is None
            if answer is None:
                answer = self._answers[query] = Future()
        if is_first:
            try:
                answer.set_result(self._run_ssh(self._program, query, node))
            except BaseException as error:
                answer.set_exception(error)
        return answer.result()

    def _run_ssh(self, program: str, query: ConfigQuery, node: str) -> HostOptions:
        """Return what `ssh -G` prints for a host."""
        try:
            with self._semaphore:
                status, stdout, stderr = run_program(
                    [program, *query.arguments()],
                    ProgramLimits(LIMIT, MAX_OUTPUT),
                    with_english_messages(os.environ),
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _config_error(node, query, str(error)) from error
        if status != 0:
            raise _config_error(node, query, stderr.decode("utf-8", "replace").strip())
        return parse_host_options(stdout.decode("utf-8", "surrogateescape"))

    def _warn_no_ssh(self) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            self._notice(tr("no ssh program found: ~/.ssh/config is not read, only the inventory is used"))


def passwd_home() -> Path:
    """Return the home that ssh believes in, which HOME does not change."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _in_folder(pattern: str, folder: str) -> str:
    return pattern if pattern.startswith(("/", "~")) else f"{folder}/{pattern}"


def _glob(pattern: str) -> list[str]:
    return sorted(glob.glob(os.path.expanduser(pattern)))  # noqa: PTH207, PTH111 - Path.glob takes no absolute pattern; ~other may be unknown


def list_hosts(config: Path) -> list[str]:
    """List the hosts that a configuration file and its Includes name outright, without patterns, in their order."""
    return list(dict.fromkeys(_iter_hosts(config, MAX_INCLUDE_DEPTH)))


def _iter_hosts(path: Path, depth: int) -> Iterator[str]:
    for key, values in _read_lines(path):
        if key == "host":
            yield from (word for word in values if not set(word) & set("*?!"))
        elif key == "include" and depth > 0:
            for pattern in values:
                for included in _glob(_in_folder(pattern, USER_FOLDER)):
                    yield from _iter_hosts(Path(included), depth - 1)


def _read_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_SIZE).decode("utf-8", "replace")
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
    except ValueError:  # an odd number of quotes: ssh reports it
        return line.split()


def parse_host_options(text: str) -> HostOptions:
    """Read what `ssh -G` prints: a key and its value per line."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in USED_KEYWORDS:
            options.setdefault(key, []).append(value)
    return options


def split_paths(text: str) -> list[str]:
    """Split the files of UserKnownHostsFile, which ssh prints with one space between; a name may hold one."""
    return [path for path in re.split(r" (?=[/~%$])", text.strip()) if path]


def _config_error(node: str, query: ConfigQuery, stderr: str) -> Unreachable:
    command = command_line("ssh", *query.arguments())
    return Unreachable("CC-SSH-019", node=node, evidence=stderr, command=command)
