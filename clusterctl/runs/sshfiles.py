"""Which files an answer of `ssh -G` depends on, so that it can be remembered until one of them changes.

Only `Include` and a few words that make answers depend on more than the files are looked for here; what the
files mean is ssh's business alone.
"""

from __future__ import annotations

import glob
import os
import pwd
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
