"""A run's files on a node, of any version."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator, List, Optional

from ...protocol.run_paths import RunPaths, WorkdirPaths, is_meant
from ...protocol.states import PROTOCOL
from ...protocol.untrusted import Untrusted
from ..runtime.stream import VerbError
from .workdir import component, read_json

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec

# Of formats 1 and 2; until 3 a run that was stopped is CANCELLED.
RENAMED_KEYS = {
    "seat": "slot",
    "seats": "slots",
    "parted": "gang_done",
    "said": "tracebacks",
    "frozen": "suspended",
    "starved": "oom_killed",
}


def run_dirs(workdir: str, run_prefix: Optional[str], node: Optional[str]) -> Iterator[str]:
    """Yield the directories of runs by prefix or short id; without `node`, of all that share the home."""
    runs = WorkdirPaths(workdir).runs
    for run_id in _list(runs):
        if run_prefix and not is_meant(run_id, run_prefix):
            continue
        for name in _list(os.path.join(runs, run_id)):
            path = os.path.join(runs, run_id, name)
            if node is None or RunPaths(path).node == node:
                yield path


def find_run(workdir: str, run_id: str, node: str) -> str:
    """Return the directory of one run; VerbError if this node has none."""
    path = find_run_or_none(workdir, run_id, node)
    if path:
        return path
    raise VerbError("CC-RUN-011", f"no run {run_id} on {node} in {workdir}")


def find_run_or_none(workdir: str, run_id: str, node: str) -> Optional[str]:
    """Return the directory of one run; None if this node has none."""
    for path in run_dirs(os.path.realpath(os.path.expanduser(workdir)), component(run_id), node):
        if RunPaths(path).run_id == run_id and os.path.exists(RunPaths(path).spec):
            return path
    return None


def read_spec(rundir: str) -> Optional[Spec]:
    """Read what a run was to do; None if there is none that names run and node."""
    spec = read_run_file(RunPaths(rundir).spec)
    untrusted = Untrusted(spec)
    return spec if untrusted.text("run") and untrusted.text("node") else None


def read_run_file(path: str) -> Any:
    """Read a file of a run with the keys of this version."""
    content = read_json(path)
    # not in a spec of today: its environment may have such keys
    is_current = not content or Untrusted(content).integer("protocol") == PROTOCOL
    return content if is_current else dict(_rename(content))


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(item) for item in value]
    if not isinstance(value, dict):
        return "STOPPED" if value == "CANCELLED" else value
    return {RENAMED_KEYS.get(key, key): _rename(item) for key, item in value.items()}


def _list(path: str) -> List[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
