"""A script that has no job file yet: the job that its source shows, and a launch or check with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterctl.cli.actions.init.login import Login, Prompts
from clusterctl.cli.actions.init.machines import (
    COMMAND_LINE,
    ConnectOptions,
    has_gpus,
    probe_nodes,
    read_hosts,
    render_machines,
)
from clusterctl.cli.actions.init.write_files import show_file
from clusterctl.cli.context.load import load_inventory, parse_settings
from clusterctl.cli.context.nodes import notice, open_cluster, report_failures
from clusterctl.cli.context.settings import Settings
from clusterctl.console.terminal import hint
from clusterctl.errors import UsageError
from clusterctl.plans.discover import list_imports, list_requirements
from clusterctl.plans.launch.script import MAX_SCRIPT, ScriptUse, output_args, plan_script
from clusterctl.plans.launch.setup import NAMES_TORCH
from clusterctl.specs.inventory.model import Inventory, name_cluster
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.render import JobDraft, choose_job_name, render_brief_job, split_hosts
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

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
        if path.is_file() and path.stat().st_size <= MAX_SCRIPT:
            return path.read_bytes()
    return b""


def _list_packages(folder: Path, script: str) -> tuple[str, ...]:
    beside = (folder / script).parent
    local = {path.stem for place in {folder, beside} for path in place.glob("*") if _is_module(path)}
    return list_imports(read_source(folder, script), local)


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" or path.is_dir()


@dataclass(frozen=True)
class ScriptRun:
    """A script of this machine, the arguments and the changes of the job that were typed.

    `code` is a folder that is sent with it, wherever it is.
    """

    script: str
    overrides: Sequence[str]
    args: Sequence[str]
    code: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the job, which is sent unless another one is given: this one, else that of the script."""
        here, path = Path().absolute(), Path(os.path.normpath(Path(self.script).absolute()))
        return Path() if self.code is None and path.is_relative_to(here) else path.parent

    @property
    def name(self) -> str:
        """The name of the script in that folder."""
        return os.path.relpath(self.script, self.folder)


def load_script(settings: Settings, run: ScriptRun) -> tuple[Inventory, Job]:
    """Return the inventory and the job for a script, and show what was made of the command line."""
    if not Path(run.script).is_file():
        raise UsageError("CC-USE-009", "script", script=run.script)
    if settings.hosts is None:
        inventory = load_inventory(settings, on_slurm=True)
        return inventory, _make_job(run, has_gpus=_have_gpus(inventory))
    name = choose_job_name(run.folder.resolve().name.lower())
    imported = read_hosts([settings.hosts], ConnectOptions())
    machines = Login(ConnectOptions(), name, run.folder, Prompts()).read(imported)
    if machines.failures:
        *others, last = machines.failures.values()
        report_failures(others)
        raise last
    text = render_machines(machines, name, made_by="launch --hosts", pythons=machines.choose_pythons())
    lines = (line for line in text.splitlines() if line and not line.lstrip().startswith("#"))
    show_file("inventory.yaml", "\n".join(lines))
    job = _make_job(run, has_gpus=machines.has_gpus)
    if run.code is not None:
        return name_cluster(parse_inventory(text, settings.hosts), name), job
    keep = ["init", *split_hosts(settings.hosts), "--script", run.name]
    keep += [] if run.folder == Path() else ["--dir", str(run.folder)]
    hint(tr("to write both files: {command}", command=command_line("clusterctl", *keep)))
    return name_cluster(parse_inventory(text, settings.hosts), name), job


def _make_job(run: ScriptRun, *, has_gpus: bool) -> Job:
    name = choose_job_name(Path(run.name).stem.lower(), "train")
    draft = draft_job(run.folder, run.name, name, has_gpus=has_gpus, setup=SetupDraft())
    text = render_brief_job(draft)
    if (run.folder / "job.yaml").is_file():
        notice(
            tr(
                "{path} is not used; `clusterctl launch` without a script uses it",
                path=run.folder / "job.yaml",
            )
        )
    if run.code is None:  # the script of `clusterctl.run` ends with the call, and other keys come from there
        show_file("job.yaml", text)
    settings = parse_settings(run.overrides)
    settings += [] if run.code is None else [("sync.source", os.path.abspath(run.code))]  # noqa: PTH100 - normalized
    job = parse_job(text, str(run.folder / tr(COMMAND_LINE)), settings)
    return replace(job, args=(*job.args, *run.args))


def _have_gpus(inventory: Inventory) -> bool:
    """Return whether a node has a GPU: by the inventory, else by the facts of the nodes; True where none answers."""
    if inventory.slurm is not None:
        return inventory.slurm.gpus_per_node != 0
    if all(node.gpus is not None for node in inventory.nodes):
        return any(node.gpus for node in inventory.nodes)
    with open_cluster() as cluster:
        facts, _ = probe_nodes(cluster, inventory.nodes)
    return has_gpus(facts) or not facts
