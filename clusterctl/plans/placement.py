"""Which nodes take part in a job, and which node_rank each one gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.specs.counted import counted
from clusterctl.specs.inventory import Inventory, Node
from clusterctl.specs.job import Job
from clusterctl.specs.nodeset import fold_names, select_nodes


@dataclass(frozen=True)
class Member:
    """A node of the inventory with its rank in one run; node_rank 0 is the master.

    A `spare` has no rank until it takes the place of another; its number only follows on the last rank.
    """

    node: Node
    node_rank: int
    spare: bool = False

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
    """Give each chosen node its node_rank; `--nodes` beats the job's `nodes:`, a count takes the first ones.

    Nodes that are kept in reserve are chosen only by name. The spares that the job wants come last.
    """
    wanted = pattern if pattern is not None else (job.nodes if isinstance(job.nodes, str) else None)
    named = wanted not in (None, "all")
    found = choose_nodes(inventory, wanted if named else None, exclude)
    nodes = tuple(node for node in found if named or not node.spare)
    if not nodes:
        raise UsageError(
            f"every node that is left is a spare: {fold_names([node.name for node in found])}",
            code="CC-USE-004",
            fix="name those that the job shall run on, or drop `spare: true` from some of them",
        )
    if pattern is None and isinstance(job.nodes, int):
        nodes = _first(nodes, job.nodes, inventory)
    spares = _choose_spares(inventory, job, nodes, exclude)
    chosen = tuple(Member(node, rank) for rank, node in enumerate(nodes))
    return chosen + tuple(Member(node, rank, spare=True) for rank, node in enumerate(spares, len(nodes)))


def _choose_spares(
    inventory: Inventory, job: Job, nodes: Sequence[Node], exclude: str | None
) -> tuple[Node, ...]:
    """Take what the inventory keeps in reserve first, then what the job leaves over."""
    count = job.restart.spares if job.restart else 0
    if not count:
        return ()
    free = [node for node in choose_nodes(inventory, None, exclude) if node not in nodes]
    if count > len(free):
        left = f"{len(free)} of them" if free else "none"
        raise UsageError(
            f"the job wants {counted(count, 'spare')} beside its {counted(len(nodes), 'node')}, "
            f"{left} can be had",
            code="CC-USE-032",
            fix="set `restart.spares` lower, choose fewer `nodes`, or add nodes with `spare: true` to the inventory",
        )
    return tuple(sorted(free, key=lambda node: not node.spare)[:count])


def _first(nodes: Sequence[Node], count: int, inventory: Inventory) -> tuple[Node, ...]:
    if count > len(nodes):
        raise UsageError(
            f"the job wants {count} nodes, {len(nodes)} can be used",
            code="CC-USE-005",
            fix=f"set `nodes: {len(nodes)}` in the job, or add nodes to {inventory.file}",
        )
    return tuple(nodes[:count])
