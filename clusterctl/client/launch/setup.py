"""Files of `setup`, sent and followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fabric import Connection

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.sync.contents import Contents, StatCache
from clusterctl.client.sync.scan import UNSEEN, ScanProgress, ScanResult, hash_files
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.errors import StartError, UsageError
from clusterctl.node_texts import describe_system_error, translate_node_text
from clusterctl.plans.launch.setup import (
    SetupPlan,
    list_companion_files,
    list_included_files,
    list_local_sources,
    plan_setup,
)
from clusterctl.plans.sync.manifest import decode_name, make_manifest
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.redact import redact
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Setup
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import EventName

MAX_LOCK = 16 << 20  # bytes
MAX_INCLUDED = 100
WHEELS = (".whl", ".tar.gz", ".zip")


@dataclass(frozen=True)
class SetupFiles:
    """The plan of a setup, and the files that it needs."""

    plan: SetupPlan
    scan: ScanResult = field(repr=False)


def read_setup_files(
    setup: Setup,
    env: Mapping[str, str],
    folder: Path,
    cache_dir: Path | None,
    progress: ScanProgress = UNSEEN,
) -> SetupFiles:
    """Read and hash what a setup needs from the job's folder; raises UsageError for what is not there."""
    root = folder.resolve()
    locks = _read_locks(setup, root)
    names = [
        *locks,
        *list_companion_files(setup),
        *setup.files,
        *([setup.wheelhouse] if setup.wheelhouse else []),
    ]
    files = {path: file_stat for name in names for path, file_stat in _walk(root, name)}
    if setup.wheelhouse:
        _check_wheels(setup.wheelhouse, files)
    cache = StatCache(cache_dir, b"setup:" + os.fsencode(root))
    manifest = make_manifest(hash_files(os.fsencode(root), [*files.items()], cache, progress))
    cache.save()
    scan = ScanResult(manifest, (), root, Contents(os.fsencode(root), manifest))
    return SetupFiles(plan_setup(setup, manifest, "\n".join(locks.values()), env), scan)


def _read_locks(setup: Setup, root: Path) -> dict[str, str]:
    """Read the lock file and the requirements files that it includes; what it needs besides must be sent."""
    texts: dict[str, str] = {}
    pending = [setup.lock] if setup.lock else []
    sent = [*setup.files, *([setup.wheelhouse] if setup.wheelhouse else [])]
    while pending and len(texts) < MAX_INCLUDED:
        path = pending.pop()
        if path in texts:
            continue
        texts[path] = _read_text(root / path)
        for name in list_local_sources(texts[path], path):
            if not any(name == sent_path or name.startswith(f"{sent_path}/") for sent_path in sent):
                raise UsageError("CC-SETUP-003", "not-sent", path=path, name=name)
        pending += [_check_inside(name, path) for name in list_included_files(texts[path], path)]
    return texts


def _check_inside(name: str, path: str) -> str:
    if name.startswith(("/", "../")):
        raise UsageError("CC-SETUP-003", "outside", path=path, name=name)
    return name


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_LOCK).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        raise UsageError("CC-SETUP-003", path=path, reason=describe_system_error(error)) from None


def _walk(root: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Return a file, or all files below a folder; links are followed once, hidden names are left out."""
    top = root / name
    try:
        if not top.is_dir():
            yield decode_name(os.fsencode(name)), _stat_file(top)
            return
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(entry_name for entry_name in folders if not entry_name.startswith("."))
            for file in sorted(entry_name for entry_name in files if not entry_name.startswith(".")):
                path = Path(folder, file)
                yield decode_name(os.fsencode(path.relative_to(root))), _stat_file(path)
    except OSError as error:
        raise UsageError("CC-SETUP-003", path=top, reason=describe_system_error(error)) from None


def _stat_file(path: Path) -> os.stat_result:
    file_stat = path.lstat()
    if not stat.S_ISREG(file_stat.st_mode):
        raise UsageError("CC-SETUP-003", "no-file", path=path)
    return file_stat


def _check_wheels(wheelhouse: str, files: dict[str, os.stat_result]) -> None:
    wheelhouse_files = [path for path in files if path.startswith(f"{wheelhouse}/")]
    if not any(path.endswith(WHEELS) for path in wheelhouse_files):
        raise UsageError(
            "CC-SETUP-003",
            "wheels",
            wheelhouse=wheelhouse,
            command=command_line("pip", "download", "-r", "requirements.txt", "-d", wheelhouse),
        )


SHOWN_CHARACTERS = 60  # characters of a step's output that are shown while it runs


@dataclass(frozen=True)
class SetupUpload:
    """The files of a setup, how long it may take, and by node whether it was to be made."""

    upload: TreeUpload
    time_limit: float
    created: dict[str, bool] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # bytes, by node

    def send(
        self,
        c: Connection,
        node: Node,
        interpreter: Interpreter,
        slot: Slot,
        session: Session,
        progress: Callable[[int], None],
    ) -> None:
        """Send a node the files that it lacks, and let it begin."""

        def count_sent(count: int) -> None:
            self.sent[node.name] = self.sent.get(node.name, 0) + count
            progress(count)

        tasks.sync(c, node, interpreter, None, slot, self.upload, count_sent)
        session.send({"do": "setup"})


def needs_setup(events: Mapping[EventName, Untrusted]) -> bool:
    """Return whether a node whose agent is up has to make the environment."""
    return "setup" in events and not events["setup"].flag("made")


def describe_step(text: str, secrets: Mapping[str, str]) -> str:
    """Shorten what a setup reports of its current step, in the language in use."""
    line = translate_node_text(" ".join(redact(text, secrets.values()).split()))
    return f"{line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 3] + '...'}"


def check_same_torch(torches: Mapping[str, str]) -> None:
    """Refuse environments that were made with different versions of torch; raises StartError."""
    nodes_by_version: dict[str, list[str]] = {}
    for name, version in torches.items():
        nodes_by_version.setdefault(version, []).append(name)
    if len(nodes_by_version) > 1:
        evidence = "\n".join(
            f"{fold_names(names)}: torch {version}" for version, names in sorted(nodes_by_version.items())
        )
        raise StartError("CC-SETUP-006", evidence=evidence)
