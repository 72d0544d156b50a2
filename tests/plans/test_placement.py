"""Which nodes take part."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.placement import choose_nodes, plan_placement
from clusterctl.specs.inventory import Inventory, Node
from clusterctl.specs.job import Job

NODES = tuple(Node(name=f"gpu{n}", node_rank=n - 1, host=f"10.0.0.{n}") for n in (1, 2, 3))
INVENTORY = Inventory(cluster="c", file="inventory.yaml", nodes=NODES)
JOB = Job(name="j", file="job.yaml", script="t.py")


def test_without_a_pattern_all_are_chosen() -> None:
    """No `--nodes` at all means every node, in the order of the inventory."""
    assert choose_nodes(INVENTORY, None, None) == NODES
    assert [member.node_rank for member in plan_placement(INVENTORY, JOB)] == [0, 1, 2]


@pytest.mark.parametrize("pattern", ["", " ", ","])
def test_an_empty_pattern_is_an_error(pattern: str) -> None:
    """An unset shell variable behind `--nodes` never means every node."""
    with pytest.raises(UsageError) as one:
        choose_nodes(INVENTORY, pattern, None)
    with pytest.raises(UsageError) as other:
        plan_placement(INVENTORY, JOB, pattern=pattern)

    assert (one.value.code, other.value.code) == ("CC-USE-010", "CC-USE-010")


def test_the_pattern_beats_the_job() -> None:
    """Ranks are counted anew among the chosen nodes."""
    chosen = plan_placement(INVENTORY, JOB, pattern="2,gpu1", exclude="gpu1")

    assert [(member.name, member.node_rank) for member in chosen] == [("gpu3", 0)]


def test_an_empty_exclude_excludes_nothing() -> None:
    """As an unset variable of a script gives it; blanks alone are a slip."""
    assert choose_nodes(INVENTORY, None, "") == INVENTORY.nodes
    with pytest.raises(UsageError, match="empty"):
        choose_nodes(INVENTORY, None, " ")
