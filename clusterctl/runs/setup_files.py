"""What a job's `setup` sends along: the lock file and what it leads to, the wheelhouse, and whatever else is named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clusterctl.errors import UsageError
from clusterctl.plans.setup import SetupPlan, companions, included, needed, plan_setup
from clusterctl.plans.tree import Entry, manifest_of, text_of
from clusterctl.runs.contents import Contents, hash_still
from clusterctl.runs.source import ScanResult
from clusterctl.runs.statcache import StatCache, stamp_of
from clusterctl.specs.commandline import command_line
from clusterctl.specs.job import Setup

LARGEST_LOCK = 16 << 20
MOST_INCLUDED = 100
WHEELS = (".whl", ".tar.gz", ".zip")


@dataclass(frozen=True)
class Provision:
    """The plan of a setup, and the files that it needs."""

    plan: SetupPlan
    scan: ScanResult = field(repr=False)


def read_setup(setup: Setup, env: Mapping[str, str], folder: Path, cache_dir: Path | None) -> Provision:
    """Read and hash what a setup needs from the job's folder; raises UsageError for what is not there."""
    root = folder.resolve()
    locks = _read_locks(setup, root)
    named = [*locks, *companions(setup), *setup.files, *([setup.wheelhouse] if setup.wheelhouse else [])]
    files = {path: found for name in named for path, found in _walk(root, name)}
    if setup.wheelhouse:
        _look_for_wheels(setup.wheelhouse, files)
    cache = StatCache(cache_dir, b"setup:" + os.fsencode(root))
    manifest = manifest_of(_entry(root, path, found, cache) for path, found in files.items())
    cache.save()
    scan = ScanResult(manifest, (), root, Contents(os.fsencode(root), manifest))
    return Provision(plan_setup(setup, manifest, "\n".join(locks.values()), env), scan)


def _read_locks(setup: Setup, root: Path) -> dict[str, str]:
    """Read the lock file and the requirements files that it includes; what it needs besides must be sent."""
    found: dict[str, str] = {}
    waiting = [setup.lock] if setup.lock else []
    sent = [*setup.files, *([setup.wheelhouse] if setup.wheelhouse else [])]
    while waiting and len(found) < MOST_INCLUDED:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = _read_text(root / path)
        for name in needed(found[path], path):
            if not any(name == one or name.startswith(f"{one}/") for one in sent):
                raise _missing(f"{path} installs from {name}, which is not sent", f"files: [{name}]")
        waiting += [_inside(name, path) for name in included(found[path], path)]
    return found


def _inside(name: str, path: str) -> str:
    if name.startswith(("/", "../")):
        raise _missing(f"{path} leads to {name}, which is not beside the job", "copy it there")
    return name


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_LOCK).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        raise _missing(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _walk(root: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Give a file, or all files below a folder; links are followed once, hidden names are left out."""
    top = root / name
    try:
        if not top.is_dir():
            yield text_of(os.fsencode(name)), _stat_file(top)
            return
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for file in sorted(one for one in files if not one.startswith(".")):
                path = Path(folder, file)
                yield text_of(os.fsencode(path.relative_to(root))), _stat_file(path)
    except OSError as error:
        raise _missing(f"{top}: {error.strerror or error}") from None


def _stat_file(path: Path) -> os.stat_result:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise _missing(
            f"{path}: a link, or no file", "copy it there; only a folder that is named may be a link"
        )
    return found


def _look_for_wheels(wheelhouse: str, files: dict[str, os.stat_result]) -> None:
    inside = [path for path in files if path.startswith(f"{wheelhouse}/")]
    if not any(path.endswith(WHEELS) for path in inside):
        raise UsageError(
            f"setup.wheelhouse: no wheels in {wheelhouse}",
            code="CC-SETUP-003",
            fix=command_line("pip", "download", "-r", "requirements.txt", "-d", wheelhouse)
            + "; for other nodes than this machine add --platform",
        )


def _entry(root: Path, path: str, found: os.stat_result, cache: StatCache) -> Entry:
    sha = cache.find(path, stamp_of(found))
    if sha is None:
        found, sha = hash_still(os.fsencode(root), path)
        cache.remember(path, stamp_of(found), sha)
    mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    return Entry(path, "file", mode, sha, found.st_size)


def _missing(message: str, fix: str = "paths in `setup` are relative to the job file") -> UsageError:
    return UsageError(f"setup: {message}", code="CC-SETUP-003", fix=fix)
