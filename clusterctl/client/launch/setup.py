"""Files of `setup`, sent and followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fabric import Connection

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Session
from clusterctl.client.sync.contents import Contents, StatCache, hash_still, stamp_of
from clusterctl.client.sync.distribute import Passing
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import StartError, UsageError
from clusterctl.plans.launch.setup import SetupPlan, companions, included, needed, plan_setup
from clusterctl.plans.sync.manifest import Entry, manifest_of, text_of
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Setup
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, redact

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


SHOWN = 60  # characters of what a step says that are shown while it runs


@dataclass(frozen=True)
class Supply:
    """The files of a setup, how long it may take, and by node whether it was to be made."""

    scan: ScanResult
    time_limit: float
    passing: Passing | None = None
    made: dict[str, bool] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # bytes, by node

    def send(
        self,
        c: Connection,
        node: Node,
        interpreter: tasks.Interpreter,
        seat: int,
        leash: Session,
        progress: Callable[[int], None],
    ) -> None:
        """Bring a node the files that it lacks, and have it begin."""

        def move(count: int) -> None:
            self.sent[node.name] = self.sent.get(node.name, 0) + count
            progress(count)

        tasks.sync(c, node, interpreter, None, seat, self.scan, move, passing=self.passing)
        leash.send({"do": "setup"})


def needs_setup(seen: Mapping[str, Untrusted]) -> bool:
    """Tell whether a node whose agent is up has to make the environment."""
    return "setup" in seen and not seen["setup"].flag("made")


def describe_step(text: str, secrets: Mapping[str, str]) -> str:
    """Say in a few words what a setup is at."""
    line = " ".join(redact(text, secrets.values()).split())
    return f"{line if len(line) <= SHOWN else line[: SHOWN - 3] + '...'}"


def refuse_mixed(torches: Mapping[str, str]) -> None:
    """Refuse environments that were made with different versions of torch; raises StartError."""
    found: dict[str, list[str]] = {}
    for name, version in torches.items():
        found.setdefault(version, []).append(name)
    if len(found) > 1:
        told = "\n".join(f"{fold_names(names)}: torch {version}" for version, names in sorted(found.items()))
        raise StartError(
            "the environments that `setup` made hold different versions of torch",
            code="CC-SETUP-006",
            evidence=told,
            fix="pin torch in the lock file, or give the nodes the same one",
        )
