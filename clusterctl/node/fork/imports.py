"""What a server has imported and with what: a later process that would have imported something else must not use it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

# What differs from login to login, or is set by us, and is not read by an import.
VOLATILE = frozenset(
    {
        "_",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "SSH_AUTH_SOCK",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "TORCHELASTIC_ERROR_FILE",
        "XDG_SESSION_ID",
    }
)
VOLATILE_PREFIX = "CLUSTERCTL_"
Signature = Tuple[int, int, int]


class Imports(NamedTuple):
    """The interpreter as its command names it, the payload, variables, modules, and the files they came from."""

    python: str
    payload: str
    env: Mapping[str, str]
    preload: Sequence[str]
    files: Mapping[str, Signature]

    def digest(self) -> str:
        """Give a text that two servers share if each could stand for the other."""
        stable = sorted(pair for pair in self.env.items() if is_stable(pair[0]))
        values = (
            self.python,
            self.payload,
            stable,
            list(self.preload),
            sorted(self.files.items()),
        )
        return sha256(repr(values).encode("utf-8", "surrogateescape")).hexdigest()

    def find_changed_file(self) -> str:
        """Name a file that is no longer what was imported, or a directory of modules with other entries."""
        return next((path for path, signature in self.files.items() if sign(path) != signature), "")

    def find_difference(self, python: str, preload: Sequence[str], env: Mapping[str, str]) -> str:
        """Say what a process that starts with these would have done otherwise, its files aside."""
        if python != self.python:
            return "the interpreter is %s, not %s" % (python, self.python)
        if list(preload) != list(self.preload):
            return "preload differs"
        for name in sorted({*env, *self.env}):
            if is_stable(name) and env.get(name) != self.env.get(name):
                return "%s differs from its value when torch was imported" % name
        return ""


def is_stable(name: str) -> bool:
    """Whether a variable must have the value that it had at the import."""
    return name not in VOLATILE and not name.startswith(VOLATILE_PREFIX)


def record_imports(payload: str, preload: Sequence[str]) -> Imports:
    """Record what this process has imported."""
    with open("/proc/self/cmdline", "rb") as source:
        python = os.fsdecode(source.read().split(b"\0")[0])
    files = {path: sign(path) for path in {*list_files()}}
    return Imports(python, payload, dict(os.environ), list(preload), files)


def list_files() -> Iterator[str]:
    """Name the files of modules and libraries, the interpreter, and the directories that modules are looked for in."""
    for module in list(sys.modules.values()):
        path: Any = getattr(module, "__dict__", {}).get("__file__")  # type: ignore[record-key]  # a module's own
        if isinstance(path, str):
            yield path
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as source:
        for line in source:
            path = line.rstrip("\n").partition("/")[2]
            if ".so" in path:
                yield "/" + path
    yield from (sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"))
    yield from filter(os.path.isdir, sys.path)


def sign(path: str) -> Signature:
    """Give what changes when a file is replaced or written."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, 0 if os.path.isdir(path) else status.st_size, status.st_ino)


def count_bytes(pids: Iterable[int]) -> int:
    """Count the memory of processes: what they share counts once, what others use as well in part."""
    return sum(map(_read_share, pids))


def _read_share(pid: int) -> int:
    # it may have ended, and an old kernel has no such file
    with suppress(OSError, ValueError), open("/proc/%d/smaps_rollup" % pid, "rb") as source:
        return next((int(line.split()[1]) << 10 for line in source if line.startswith(b"Pss:")), 0)
    return 0
