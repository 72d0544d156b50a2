"""What `activate` left behind for Python: paths, the environment it chose, CUDA, and the compiler on PATH.

Asked only where there is an `activate`. Programs are run for their version where no file tells it: 1 to 3 ms each.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from typing import Any

from .probe_ask import read_text

LIMIT = 1.0  # seconds for a compiler to say its version
MOST = 60  # entries of a path
COMPILERS = ("cc", "gcc", "clang")


def activate() -> dict[str, Any]:
    """Tell how `activate` ended and what it gave; nothing where there is none."""
    status = os.environ.get("CLUSTERCTL_ACTIVATE_STATUS", "")
    if not status.isdigit():
        return {"status": None}
    nvcc, compiler = find("nvcc"), next(filter(None, map(find, COMPILERS)), None)
    cuda_home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or None
    return {
        "status": int(status),
        "path": entries("PATH"),
        "libraries": entries("LD_LIBRARY_PATH"),
        "conda": os.environ.get("CONDA_PREFIX") or None,
        "venv": os.environ.get("VIRTUAL_ENV") or None,
        "inside": inside(),
        "cuda_home": cuda_home,
        "nvcc": nvcc,
        "cuda": cuda_version(cuda_home, nvcc),
        "compiler": compiler,
        "compiler_version": version_of([compiler, "-dumpfullversion", "-dumpversion"]) if compiler else None,
    }


def inside() -> bool | None:
    """Whether this Python is of an active environment; None if none is active."""
    active = [os.path.realpath(path) for path in map(os.environ.get, ("CONDA_PREFIX", "VIRTUAL_ENV")) if path]
    return os.path.realpath(sys.prefix) in active if active else None


def entries(name: str) -> list[str]:
    """Split a search path."""
    return [entry for entry in os.environ.get(name, "").split(os.pathsep) if entry][:MOST]


def find(program: str) -> str | None:
    """Find a program on PATH."""
    paths = (os.path.join(folder, program) for folder in entries("PATH"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def cuda_version(home: str | None, nvcc: str | None) -> str | None:
    """Read the toolkit's version from its own file, else ask nvcc; the nvcc on PATH is what builds will use."""
    if nvcc:
        home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    text = read_text(os.path.join(home, "version.json")) if home else None
    found = re.search(r'"cuda"\s*:\s*\{[^}]*?"version"\s*:\s*"([\d.]+)"', text or "")
    if found:
        return found.group(1)
    told = re.search(r"release ([\d.]+)", output_of([nvcc, "--version"])) if nvcc else None
    return told.group(1) if told else None


def version_of(command: list[str]) -> str | None:
    """Ask a compiler for its version."""
    found = re.match(r"\d[\d.]*", output_of(command).strip())
    return found.group() if found else None


def output_of(command: list[str]) -> str:
    """Run a program for a moment and give what it prints; `subprocess` alone would cost 9 ms to import."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_DUP2, null, 2),
    ]
    try:
        child = os.posix_spawn(command[0], command, dict(os.environ, LC_ALL="C"), file_actions=actions)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
        os.close(null)
    try:
        return _read(reader).decode("utf-8", "replace")
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # it has said what it had to say, or says nothing
        os.waitpid(child, 0)


def _read(reader: int) -> bytes:
    content, deadline = b"", time.monotonic() + LIMIT
    while len(content) < 65536:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(reader, 4096) if ready else b""
        if not piece:
            break
        content += piece
    return content
