"""A script that is launched or checked without a job file, on an inventory or on hosts of the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clusterctl.cli.actions.init.drafts import SetupDraft, draft_job
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
from clusterctl.cli.context.load import Settings, load_inventory, parse_settings
from clusterctl.cli.context.nodes import notice, open_cluster, report_failures
from clusterctl.console.terminal import hint
from clusterctl.errors import UsageError
from clusterctl.specs.inventory.model import Inventory, name_cluster
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.render import choose_job_name, render_brief_job, split_hosts
from clusterctl.specs.text import command_line
from clusterctl.translation import tr


@dataclass(frozen=True)
class ScriptRun:
    """A script of this machine, the arguments and the changes of the job that were typed."""

    script: str
    overrides: Sequence[str]
    args: Sequence[str]

    @property
    def folder(self) -> Path:
        """The folder that is sent: this one, else that of the script."""
        here, path = Path().absolute(), Path(os.path.normpath(Path(self.script).absolute()))
        return Path() if path.is_relative_to(here) else path.parent

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
    show_file("job.yaml", text)
    job = parse_job(text, str(run.folder / tr(COMMAND_LINE)), parse_settings(run.overrides))
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
