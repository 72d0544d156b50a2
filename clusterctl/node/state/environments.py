"""The environments of a work directory: each made once for all that goes into it, and never seen half made.

envs/<name>/made.json   written last, when all is well: names the directory of the environment
envs/<name>/<token>/    the environment; its own path is written into it, so it is never moved
envs/<name>/lock        who is making it

The name is the content of the job's `setup` and the Python that makes it: machines which share a home and differ in
their Python do not share an environment.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections import namedtuple
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, Optional

from ...protocol.run_paths import WorkdirPaths
from ...protocol.untrusted import Untrusted
from .workdir import read_json

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec

MARK = "made.json"
CONTENT = 16  # digits of a content that are in the name
USED_EVERY = 86400.0  # seconds; the day of the last use is kept as the mark's time, for `clean`


# Not of `typing`, which every probe would have to load.
class Environment(namedtuple("Made", "folder prefix")):
    """An environment that is complete; `prefix` is empty where a setup only ran commands."""

    __slots__ = ()
    folder: str
    prefix: str

    @property
    def python(self) -> str:
        """Its interpreter."""
        return os.path.join(self.prefix, "bin", "python")

    def mark_used(self) -> None:
        """Keep the day."""
        mark = os.path.join(self.folder, MARK)
        with suppress(OSError):
            if time.time() - os.stat(mark).st_mtime > USED_EVERY:
                os.utime(mark)


def environment_name(content: str) -> str:
    """Name the environment of a content as this interpreter makes it."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    python = os.path.abspath(sys.executable)
    version = "%s %d.%d.%d" % ((sys.implementation.name, *sys.version_info[:3]))
    description = "\0".join((python, version, os.uname().machine, libc))
    return "%s-%08x" % (content[:CONTENT], zlib.crc32(description.encode("utf-8", "surrogateescape")))


def environment_folder(workdir: str, content: str) -> str:
    """Return where the environment of a content is, or would be."""
    return os.path.join(WorkdirPaths(workdir).environments, environment_name(content))


def find_environment(folder: str) -> Optional[Environment]:
    """Return the environment if it is complete; one whose interpreter has gone is not."""
    mark = Untrusted(read_json(os.path.join(folder, MARK)))
    token, kind = mark.text("token"), mark.text("kind")
    if not token or os.path.basename(token) != token:
        return None
    prefix = os.path.join(folder, token) if kind else ""
    environment = Environment(folder, prefix)
    return environment if not kind or os.access(environment.python, os.X_OK) else None


def find_run_environment(rundir: str, spec: Spec) -> Optional[Environment]:
    """Find the environment that a run needs."""
    workdir = os.path.dirname(os.path.dirname(os.path.dirname(rundir)))
    return (
        find_environment(environment_folder(workdir, spec["setup"]["content"])) if spec.get("setup") else None
    )


def apply_environment(rundir: str, spec: Spec) -> Spec:
    """Return the spec of a run with the Python of the job's own environment in it, if one has been made."""
    environment = find_run_environment(rundir, spec)
    if environment is None or not environment.prefix:
        return spec
    return {**spec, "python": environment.python, "environment": environment.prefix}


def append_programs_to_path(env: Dict[str, str], python: str) -> None:
    """Add the programs beside an interpreter to PATH, after all others: `accelerate`, `torchrun`, `pip`."""
    folder, path = os.path.dirname(python), env.get("PATH") or os.defpath
    if os.path.isabs(folder) and folder not in path.split(os.pathsep):
        env["PATH"] = path + os.pathsep + folder


def activate_environment(env: Dict[str, str], prefix: str, kind: str) -> None:
    """Make a process with these variables one of the environment, and of no other."""
    name = "CONDA_PREFIX" if kind == "conda" else "VIRTUAL_ENV"
    for key in ("CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONHOME"):
        env.pop(key, None)
    env.update({"PATH": "%s:%s" % (os.path.join(prefix, "bin"), env.get("PATH") or os.defpath), name: prefix})
