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
MAX_INCLUDE_DEPTH = 16  # OpenSSH's own limit of Include within Include
MAX_FILE_SIZE = 4 << 20
DYNAMIC_CRITERIA = ("exec", "localnetwork")  # of Match: asks a program, the network
RACY = 2_000_000_000  # ns: a file this young may change again without a new time stamp


@dataclass
class ConfigDependencies:
    """What was seen of the files; `cacheable` tells whether an answer depends on nothing else."""

    stamps: list[list[object]] = field(default_factory=list)
    cacheable: bool = True


def find_dependencies(config: str | None, home: Path | None = None) -> ConfigDependencies:
    """Look at a configuration file, or at ssh's usual ones, and at all that they include."""
    dependencies = ConfigDependencies()
    user_folder = (home or passwd_home()) / ".ssh"
    if config is not None:
        _trace_file(Path(config), user_folder, dependencies, MAX_INCLUDE_DEPTH)
    else:
        _trace_file(user_folder / "config", user_folder, dependencies, MAX_INCLUDE_DEPTH)
        _trace_file(SYSTEM_FOLDER / "ssh_config", SYSTEM_FOLDER, dependencies, MAX_INCLUDE_DEPTH)
    return dependencies


def list_hosts(config: Path, folder: Path | None = None) -> list[str]:
    """List the hosts that a configuration file and its Includes name outright, without patterns, in their order."""
    return list(dict.fromkeys(_iter_hosts(config, folder or passwd_home() / ".ssh", MAX_INCLUDE_DEPTH)))


def _iter_hosts(path: Path, folder: Path, depth: int) -> Iterator[str]:
    for key, values in _read_lines(path):
        if key == "host":
            yield from (word for word in values if not set(word) & set("*?!"))
        elif key == "include" and depth > 0:
            for pattern in values:
                for included in _glob(pattern, folder):
                    yield from _iter_hosts(Path(included), folder, depth - 1)


def passwd_home() -> Path:
    """Return the home that ssh believes in, which HOME does not change."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _trace_file(path: Path, folder: Path, dependencies: ConfigDependencies, depth: int) -> None:
    dependencies.stamps.append([str(path), *_stamp(path, dependencies)])
    for key, values in _read_lines(path):
        if key == "include":
            for pattern in values:
                _trace_include(pattern, folder, dependencies, depth)
        elif (key == "match" and _is_dynamic(values)) or key == "canonicalizehostname":
            dependencies.cacheable = False
        if any("${" in word for word in values):
            dependencies.cacheable = False


def _trace_include(pattern: str, folder: Path, dependencies: ConfigDependencies, depth: int) -> None:
    if depth == 0 or "%" in pattern or "$" in pattern:
        dependencies.cacheable = False
        return
    paths = _glob(pattern, folder)
    dependencies.stamps.append([_absolute_pattern(pattern, folder), *paths])
    for path in paths:
        _trace_file(Path(path), folder, dependencies, depth - 1)


def _glob(pattern: str, folder: Path) -> list[str]:
    return sorted(glob.glob(_absolute_pattern(pattern, folder)))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _absolute_pattern(pattern: str, folder: Path) -> str:
    return _expand_home(pattern) if pattern.startswith("~") else str(folder / pattern)


def _expand_home(path: str) -> str:
    return str(passwd_home()) + path[1:] if path.startswith("~/") else os.path.expanduser(path)  # noqa: PTH111 - ~other may be nobody, which is no error here


def _is_dynamic(criteria: list[str]) -> bool:
    keywords = {word.lstrip("!").partition("=")[0].lower() for word in criteria}
    return bool(keywords & set(DYNAMIC_CRITERIA))


def _stamp(path: Path, dependencies: ConfigDependencies) -> tuple[int, ...]:
    try:
        file_stat = path.stat()
    except OSError:
        return ()
    if max(file_stat.st_mtime_ns, file_stat.st_ctime_ns) > time.time_ns() - RACY:
        dependencies.cacheable = False
    return file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino


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
    except ValueError:  # an odd number of quotes: ssh will say so
        return line.split()


VERSION = 2
NONE = "none"
MAX_PARALLEL = 8  # programs that run at a time
LIMIT = 10.0  # seconds; `Match exec` may take its time
MAX_ANSWERS = 20_000  # answers in one file
MAX_CACHE_FILES = 50  # configurations whose answers are kept
USED_KEYWORDS = {
    *("hostname", "user", "port", "proxyjump", "proxycommand"),
    *("identityfile", "certificatefile", "identitiesonly", "identityagent"),
    *("hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking"),
    "revokedhostkeys",
}
HostOptions = Mapping[str, list[str]]


@dataclass(frozen=True)
class ConfigQuery:
    """What is asked: a host as a user would type it, and what the command line says beside it."""

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
        self._caches: dict[str | None, _OptionsCache] = {}
        self._semaphore = threading.Semaphore(MAX_PARALLEL)
        self._lock = threading.Lock()
        self._warned = False

    def query(self, query: ConfigQuery, node: str) -> HostOptions:
        """Say what the configuration says of a host; empty without one, or without ssh."""
        if query.config == NONE:
            return {}
        if self._program is None:
            self._warn_no_ssh()
            return {}
        cache = self._cache_for(query.config)
        key = json.dumps([query.host, query.user, query.port])
        options = cache.entries.get(key)
        if options is None:
            with self._semaphore:
                options = cache.entries[key] = self._run_ssh(query, node)
            cache.changed = True
        return options

    def save(self) -> None:
        """Remember the answers of this command for the next."""
        with self._lock:
            caches = list(self._caches.values())
        for cache in caches:
            cache.save()

    def _cache_for(self, config: str | None) -> _OptionsCache:
        with self._lock:
            if config not in self._caches:
                home = self._home if config is None else None
                self._caches[config] = _OptionsCache(
                    self._folder, self._program or "", config, find_dependencies(config, home)
                )
            return self._caches[config]

    def _run_ssh(self, query: ConfigQuery, node: str) -> HostOptions:
        try:
            status, stdout, stderr = _run_in_session([self._program or "ssh", *query.arguments()])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _config_error(node, query, str(error)) from error
        if status != 0:
            raise _config_error(node, query, stderr.decode("utf-8", "replace").strip())
        return parse_host_options(stdout.decode("utf-8", "surrogateescape"))

    def _warn_no_ssh(self) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            self._notice("there is no ssh program here: ~/.ssh/config is not read, only the inventory counts")


class _OptionsCache:
    """The answers under one configuration; those on disk count only while its files are unchanged."""

    def __init__(
        self, folder: Path | None, program: str, config: str | None, dependencies: ConfigDependencies
    ) -> None:
        self.entries: dict[str, HostOptions] = {}
        self.changed = False
        self._fingerprint = _digest(
            [VERSION, program, _stamp_program(program), os.getuid(), dependencies.stamps]
        )
        self._file = None
        if folder is not None and dependencies.cacheable:
            self._file = folder / f"{_digest([config, os.getuid()])[:32]}.json"
            self._load(self._file)

    def _load(self, file: Path) -> None:
        with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
            data = json.loads(read_own(file))
            if data["mark"] == self._fingerprint:
                self.entries = {
                    str(key): {str(name): [str(text) for text in texts] for name, texts in options.items()}
                    for key, options in data["answers"].items()
                }

    def save(self) -> None:
        """Write the answers; those of a configuration that has just been written are worth it too."""
        if self._file is None or not self.changed or len(self.entries) > MAX_ANSWERS:
            return
        self.changed = False
        text = json.dumps({"mark": self._fingerprint, "answers": dict(self.entries)})
        with suppress(OSError):
            write_own(self._file, text)
            keep_newest(self._file.parent, MAX_CACHE_FILES)


def _run_in_session(command: list[str]) -> tuple[int, bytes, bytes]:
    """Run a program in a session of its own; what it started, as `Match exec` does, ends with it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=LIMIT)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, stdout, stderr


def parse_host_options(text: str) -> HostOptions:
    """Read what `ssh -G` prints: a key and its value per line."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in USED_KEYWORDS:
            options.setdefault(key, []).append(value)
    return options


def expand_tokens(text: str, tokens: Mapping[str, str]) -> str | None:
    """Fill in `%h` and its like, `${VARIABLE}` and a leading `~/`; None if one is not known here."""
    missing = False

    def fill(match: re.Match[str]) -> str:
        nonlocal missing
        letter, variable = match.groups()
        value = os.environ.get(variable) if variable else tokens.get(letter)
        missing = missing or value is None
        return value or ""

    expanded = re.sub(r"%(.)|\$\{([^}]*)\}", fill, text)
    if missing:
        return None
    return tokens["d"] + expanded[1:] if expanded.startswith("~/") else expanded


def split_paths(text: str) -> list[str]:
    """Split the files of UserKnownHostsFile, which ssh prints with one space between; a name may hold one."""
    return [path for path in re.split(r" (?=[/~%$])", text.strip()) if path]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8", "surrogateescape")).hexdigest()


def _stamp_program(program: str) -> list[int]:
    try:
        file_stat = Path(program).stat()
    except OSError:
        return []
    return [file_stat.st_size, file_stat.st_mtime_ns]


def _config_error(node: str, query: ConfigQuery, stderr: str) -> Unreachable:
    command = command_line("ssh", *query.arguments())
    return Unreachable("CC-SSH-019", node=node, evidence=stderr, command=command)
