"""What a gate that waits has imported, and with what: a run that would have imported something else must not get it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, NamedTuple, Tuple

if TYPE_CHECKING:
    from ...protocol.messages.local import GateStart

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
TORCHRUN = "torch.distributed.run"
Signature = Tuple[int, int, int]


class Imports(NamedTuple):
    """The interpreter as its command names it, the payload, variables, the gate's plan, and the files imported."""

    python: str
    payload: str
    env: Mapping[str, str]
    start: GateStart
    files: Mapping[str, Signature]

    def find_difference(self, python: str, payload: str, env: Mapping[str, str], start: GateStart) -> str:
        """Return what a gate that starts now would do otherwise; empty if nothing."""
        if python != self.python:
            return "the interpreter is %s, not %s" % (python, self.python)
        if payload != self.payload:
            return "it is of another version of clusterctl"
        for name in ("preload", "workers"):
            if start.get(name) != self.start.get(name):
                return "%s differs" % name
        for name in sorted({*env, *self.env}):
            if is_stable(name) and env.get(name) != self.env.get(name):
                return "%s differs from its value when torch was imported" % name
        changed = self.find_changed_file()
        return "%s has changed since it was imported" % changed if changed else ""

    def find_changed_file(self) -> str:
        """Return a file that is no longer what was imported, or a directory of modules with other entries."""
        return next((path for path, signature in self.files.items() if sign(path) != signature), "")


def is_stable(name: str) -> bool:
    """Return whether a variable must have the value that it had at the import."""
    return name not in VOLATILE and not name.startswith(VOLATILE_PREFIX)


def record_imports(payload: str, start: GateStart) -> Imports:
    """Record what this process has imported."""
    with open("/proc/self/cmdline", "rb") as source:
        python = os.fsdecode(source.read().split(b"\0")[0])
    files = {path: sign(path) for path in {*list_files()}}
    return Imports(python, payload, dict(os.environ), start, files)


def list_files() -> Iterator[str]:
    """Yield the files of modules and libraries, the interpreter, and the directories that modules are looked for in."""
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
    """Return what changes when a file is replaced or written."""
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
