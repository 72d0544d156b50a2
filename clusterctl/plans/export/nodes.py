"""Which nodes an exported script is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from clusterctl.plans.launch.placement import Member, plan_placement
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.job.model import Job

Target = Literal["slurm", "bash"]


@dataclass(frozen=True)
class ExportNodes:
    """The nodes of a script: how many, those whose settings it has, and whether it names them to Slurm."""

    count: int
    members: tuple[Member, ...] = ()
    named: bool = False


def choose_export_nodes(
    job: Job, inventory: Inventory | None, target: Target, choice: tuple[str | None, str | None]
) -> ExportNodes:
    """Choose the nodes as a launch does, without spares; Slurm may take any node where the job gives a number."""
    if inventory is None:
        return ExportNodes(int(job.nodes))
    pattern, exclude = choice
    without_spares = replace(job, restart=None)
    if target == "slurm" and pattern is None and isinstance(job.nodes, int):
        everyone = plan_placement(inventory, without_spares, pattern="*", exclude=exclude)
        return ExportNodes(job.nodes, everyone)
    members = plan_placement(inventory, without_spares, pattern=pattern, exclude=exclude)
    named = pattern is not None or exclude is not None or job.nodes != "all"
    return ExportNodes(len(members), members, named)
