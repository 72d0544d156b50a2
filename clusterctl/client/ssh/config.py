"""`~/.ssh/config` as OpenSSH reads it: by `ssh -G`, whose answers are cached.

One question costs 5 ms of CPU. With `-v` ssh also names each file that it reads, and an answer is kept on disk until
one of these changes. Three things are not printed, so they are looked for in these files: patterns of `Include`, which
a new file may match; words that make an answer depend on more than files (`Match exec`): it is not kept then; and the
hosts, for `init`.
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
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from clusterctl.client.local.private_files import keep_newest, read_own, write_own
from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.errors import Unreachable
from clusterctl.plans.ssh import with_english_messages
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

VERSION = 3
NONE = "none"
MAX_PARALLEL = 8  # programs that run at a time
LIMIT = 10.0  # seconds; `Match exec` may take its time
MAX_OUTPUT = 4 << 20  # bytes of ssh, and of what `Match exec` runs
MAX_ANSWERS = 20_000  # answers in one file
MAX_CACHE_FILES = 50  # configurations whose answers are kept
MAX_INCLUDE_DEPTH = 16  # OpenSSH's own limit of Include within Include
MAX_FILE_SIZE = 4 << 20
LONGEST_NAME = 200  # bytes of a name that ssh -v prints; the rest is cut off
RACY = 2_000_000_000  # ns: a file this young may change again without a new time stamp
USER_FOLDER = "~/.ssh"  # of an Include, where HOME counts; the file itself is in the home of /etc/passwd
DYNAMIC_CRITERIA = ("exec", "localnetwork")  # of Match: runs a program, uses the network
USED_KEYWORDS = {
    *("hostname", "user", "port", "proxyjump", "proxycommand"),
    *("identityfile", "certificatefile", "identitiesonly", "identityagent"),
    *("hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking"),
    *("revokedhostkeys", "hashknownhosts"),
}
HostOptions = Mapping[str, list[str]]

_READ_FILE = re.compile(rb"^debug1: Reading configuration data ([^\r\n]+)\r?$", re.MULTILINE)
_VISIBLE = re.compile(rb"\\(\\|[0-7]{3})")  # how ssh writes a backslash, and each byte that is not ASCII
_VERBOSE_LINE = re.compile(r"debug\d: |OpenSSH_")


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

    def __init__(
        self,
        notice: Callable[[str], None] = lambda _: None,
        *,
        folder: Path | None = None,
        program: str | None = "ssh",
    ) -> None:
        self._notice = notice
        self._folder = folder
        self._program = shutil.which(program) if program else None
        self._caches: dict[str | None, _OptionsCache] = {}
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
        cache = self._cache_for(query.config)
        key = json.dumps([query.host, query.user, query.port])
        options = cache.entries.get(key)
        if options is None:
            with self._semaphore:
                asked = time.time_ns()
                options, files = self._run_ssh(query, node)
            cache.add(key, options, files, asked)
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
                self._caches[config] = _OptionsCache(self._folder, self._program or "", config)
            return self._caches[config]

    def _run_ssh(self, query: ConfigQuery, node: str) -> tuple[HostOptions, list[str]]:
        """Return what `ssh -G` prints for a host, and which files it has read."""
        try:
            status, stdout, stderr = run_program(
                [self._program or "ssh", "-v", *query.arguments()],
                ProgramLimits(LIMIT, MAX_OUTPUT),
                with_english_messages(os.environ),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _config_error(node, query, str(error)) from error
        if status != 0:
            lines = stderr.decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if not _VERBOSE_LINE.match(line)]
            raise _config_error(node, query, "\n".join(errors).strip())
        options = parse_host_options(stdout.decode("utf-8", "surrogateescape"))
        return options, parse_read_files(stderr)

    def _warn_no_ssh(self) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            self._notice(tr("no ssh program found: ~/.ssh/config is not read, only the inventory is used"))


class AnswersFile(TypedDict):
    """What ssh has answered, and what that depends on: a mark of the program, stamps of files, results of patterns."""

    mark: str
    stamps: dict[str, list[int]]
    globs: dict[str, list[str]]
    answers: dict[str, HostOptions]


class _OptionsCache:
    """The answers under one configuration; those on disk count only while what they depend on is unchanged."""

    def __init__(self, folder: Path | None, program: str, config: str | None) -> None:
        self.entries: dict[str, HostOptions] = {}
        self._lock = threading.Lock()
        self._changed = False
        self._fingerprint = _digest([VERSION, program, _stamp(program), os.getuid()])
        self._dependencies = ConfigDependencies(_usual_files(program) if config is None else [config])
        self._file = None
        if folder is not None:
            place = None if config is None else os.path.abspath(config)  # noqa: PTH100 - what .. leads to is ssh's business
            self._file = folder / f"{_digest([place, os.getuid()])[:32]}.json"
            self._load(self._file)

    def _load(self, file: Path) -> None:
        with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
            data: AnswersFile = json.loads(read_own(file))
            if data["mark"] == self._fingerprint and self._dependencies.restore(
                data["stamps"], data["globs"]
            ):
                self.entries = {
                    str(key): {str(name): [str(text) for text in texts] for name, texts in options.items()}
                    for key, options in data["answers"].items()
                }

    def add(self, key: str, options: HostOptions, files: list[str], asked: int) -> None:
        """Add an answer, the files that ssh has read for it, and when it began to read them."""
        with self._lock:
            self.entries[key] = options
            self._changed = True
            self._dependencies.add(files, asked)

    def save(self) -> None:
        """Write the answers; those of a configuration that has just been written are worth it too."""
        known = self._dependencies
        if self._file is None or not self._changed or not known.cacheable or len(self.entries) > MAX_ANSWERS:
            return
        self._changed = False
        data: AnswersFile = {
            "mark": self._fingerprint,
            "stamps": known.stamps,
            "globs": known.globs,
            "answers": self.entries,
        }
        with suppress(OSError):
            write_own(self._file, json.dumps(data))
            keep_newest(self._file.parent, MAX_CACHE_FILES)


class ConfigDependencies:
    """What answers depend on: files by their stamps, patterns by what they match, and more if not `cacheable`."""

    def __init__(self, roots: list[str]) -> None:
        self._roots = roots
        self._folders = [USER_FOLDER, *(str(Path(root).parent) for root in roots[1:])]
        self.stamps: dict[str, list[int]] = {}
        self.globs: dict[str, list[str]] = {}
        self.cacheable = True

    def restore(self, stamps: dict[str, list[int]], globs: dict[str, list[str]]) -> bool:
        """Take over what earlier answers depended on; False if it has changed since."""
        unchanged = all(_stamp(path) == stamp for path, stamp in stamps.items()) and all(
            _glob(pattern) == paths for pattern, paths in globs.items()
        )
        if unchanged:
            self.stamps, self.globs = stamps, globs
        return unchanged

    def add(self, files: list[str], asked: int) -> None:
        """Add the files that ssh has read since a time; a root that is not there may be there one day."""
        # A program that names no file may have read any.
        self.cacheable &= bool(files) or not any(map(_stamp, self._roots))
        for path in (*self._roots, *files):
            if path not in self.stamps:
                stamp = self.stamps[path] = _stamp(path)
                self._check(path, stamp, asked, was_read=path in files)

    def _check(self, path: str, stamp: list[int], asked: int, *, was_read: bool) -> None:
        is_whole_name = bool(stamp) and len(os.fsencode(path)) < LONGEST_NAME
        is_old = not stamp or max(stamp[1:3]) <= asked - RACY
        self.cacheable &= is_old and (is_whole_name or not was_read)
        for key, values in _read_lines(Path(path)):
            if key == "include":
                # of a relative one, in each folder that it may be meant for
                patterns = {_in_folder(value, folder) for value in values for folder in self._folders}
                self.globs.update({pattern: _glob(pattern) for pattern in patterns - self.globs.keys()})
                self.cacheable &= not any("%" in value for value in values)
            elif (key == "match" and _is_dynamic(values)) or key == "canonicalizehostname":
                self.cacheable = False
            self.cacheable &= not any("${" in word for word in values)


def _usual_files(program: str) -> list[str]:
    """List what ssh reads without -F: the user's file, then the system's; conda's and Homebrew's is near ssh."""
    beside = Path(program).resolve().parent.parent / "etc/ssh/ssh_config"
    return [str(passwd_home() / ".ssh" / "config"), "/etc/ssh/ssh_config", str(beside)]


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


def _is_dynamic(criteria: list[str]) -> bool:
    keywords = {word.lstrip("!").partition("=")[0].lower() for word in criteria}
    return bool(keywords & set(DYNAMIC_CRITERIA))


def _stamp(path: str) -> list[int]:
    """Identify the content of a file; empty if it is not there."""
    try:
        file_stat = Path(path).stat()
    except OSError:
        return []
    return [file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino]


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


def parse_read_files(stderr: bytes) -> list[str]:
    """Find in what `ssh -v` prints the files that it has read; of a long name only the beginning stands there."""

    def decode(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return code if code == b"\\" else bytes([int(code, 8) & 0xFF])

    return [os.fsdecode(_VISIBLE.sub(decode, name)) for name in _READ_FILE.findall(stderr)]


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


def _config_error(node: str, query: ConfigQuery, stderr: str) -> Unreachable:
    command = command_line("ssh", *query.arguments())
    return Unreachable("CC-SSH-019", node=node, evidence=stderr, command=command)
