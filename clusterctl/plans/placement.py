"""Which nodes take part in a job, and which node_rank each one gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.specs.inventory import Inventory, Node
from clusterctl.specs.job import Job
from clusterctl.specs.nodeset import fold_names, select_nodes


@dataclass(frozen=True)
class Member:
    """A node of the inventory with its rank in one run; node_rank 0 is the master."""

    node: Node
    node_rank: int

    @property
    def name(self) -> str:
        """The inventory's name of the node."""
        return self.node.name


def choose_nodes(inventory: Inventory, pattern: str | None, exclude: str | None) -> tuple[Node, ...]:
    """Pick nodes by pattern, keep the inventory's order; `None` picks all."""
    names = [node.name for node in inventory.nodes]
    wanted = set(select_nodes(pattern, names)) if pattern is not None else set(range(len(names)))
    dropped = set(select_nodes(exclude, names)) if exclude else set()
    chosen = tuple(inventory.nodes[index] for index in sorted(wanted - dropped))
    if not chosen:
        raise UsageError(
            f"no node is left: {exclude} excludes all that was chosen",
            code="CC-USE-004",
            fix=f"the inventory has {fold_names(names)}",
        )
    return chosen


def plan_placement(
    inventory: Inventory, job: Job, *, pattern: str | None = None, exclude: str | None = None
) -> tuple[Member, ...]:
    """Give each chosen node its node_rank; `--nodes` beats the job's `nodes:`, a count takes the first ones."""
    wanted = pattern if pattern is not None else (job.nodes if isinstance(job.nodes, str) else None)
    nodes = choose_nodes(inventory, None if wanted == "all" else wanted, exclude)
    if pattern is None and isinstance(job.nodes, int):
        nodes = _first(nodes, job.nodes, inventory)
    return tuple(Member(node, rank) for rank, node in enumerate(nodes))


def _first(nodes: Sequence[Node], count: int, inventory: Inventory) -> tuple[Node, ...]:
    if count > len(nodes):
        raise UsageError(
            f"the job wants {count} nodes, {len(nodes)} can be used",
            code="CC-USE-005",
            fix=f"set `nodes: {len(nodes)}` in the job, or add nodes to {inventory.file}",
        )
    return tuple(nodes[:count])
