"""The job of a script that has no job file yet: how it is launched, where its results go, what its packages are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from clusterctl.plans.discover import list_imports, list_requirements
from clusterctl.plans.launch.script import LARGEST_SCRIPT, ScriptUse, output_args, plan_script
from clusterctl.plans.launch.setup import NAMES_TORCH
from clusterctl.specs.render import JobDraft

REQUIREMENTS = "requirements.txt"
# Lock files of which `setup` makes an environment, the most exact first.
LOCK_FILES: Mapping[str, str] = {
    "uv.lock": "uv",
    "environment.yml": "conda",
    "environment.yaml": "conda",
    REQUIREMENTS: "venv",
}


@dataclass(frozen=True)
class SetupDraft:
    """The `setup` of a job, and the files that it needs and that do not exist yet."""

    keys: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    new_files: Mapping[str, str] = field(default_factory=dict)


def draft_job(folder: Path, script: str, name: str, *, has_gpus: bool, setup: SetupDraft) -> JobDraft:
    """Draft the job of a script in this folder by what its source shows."""
    use = ScriptUse()
    use.add_file(script, read_source(folder, script))
    found = plan_script(use)
    return JobDraft(
        name=name,
        script=script,
        gpus=has_gpus,
        script_exists=(folder / script).is_file(),
        launcher=found.launcher,
        args=(*found.args, *output_args(use)),
        nproc_per_node=found.nproc_per_node,
        setup=setup.keys,
    )


def draft_setup(folder: Path, script: str, torch: str | None) -> SetupDraft:
    """Draft what makes an environment with torch on every node, from a lock file if the folder has one."""
    lock = next((name for name in LOCK_FILES if (folder / name).is_file()), None)
    requirements = list_requirements(_list_packages(folder, script), torch)
    if lock is None:
        return SetupDraft({"venv": REQUIREMENTS}, {REQUIREMENTS: "\n".join(requirements) + "\n"})
    text = read_source(folder, lock).decode("utf-8", "replace")
    if LOCK_FILES[lock] != "venv" or NAMES_TORCH.search(text):
        return SetupDraft({LOCK_FILES[lock]: lock})
    return SetupDraft({"venv": lock, "run": [f"python -m pip install {requirements[0]}"]})


def read_source(folder: Path, name: str) -> bytes:
    """Read a file of the folder; empty if it cannot be read or is too large to be a script."""
    with suppress(OSError, ValueError):
        path = folder / name
        if path.is_file() and path.stat().st_size <= LARGEST_SCRIPT:
            return path.read_bytes()
    return b""


def _list_packages(folder: Path, script: str) -> tuple[str, ...]:
    beside = (folder / script).parent
    local = {path.stem for place in {folder, beside} for path in place.glob("*") if _is_module(path)}
    return list_imports(read_source(folder, script), local)


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" or path.is_dir()
