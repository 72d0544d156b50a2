"""Which nodes take part."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.launch.placement import choose_nodes, explain_rank_pattern, plan_placement
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job

NODES = tuple(Node(name=f"gpu{n}", index=n - 1, host=f"10.0.0.{n}") for n in (1, 2, 3))
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
    """Ranks are counted again among the chosen nodes."""
    chosen = plan_placement(INVENTORY, JOB, pattern="2,gpu1", exclude="gpu1")

    assert [(member.name, member.node_rank) for member in chosen] == [("gpu3", 0)]


def test_an_empty_exclude_excludes_nothing() -> None:
    """As an unset variable of a script gives it; blanks alone are a slip."""
    assert choose_nodes(INVENTORY, None, "") == INVENTORY.nodes
    with pytest.raises(UsageError, match="empty"):
        choose_nodes(INVENTORY, None, " ")


# ---- spares ----

RESERVE = Inventory(
    cluster="c",
    file="inventory.yaml",
    nodes=(*NODES, Node(name="gpu4", index=3, host="10.0.0.4", spare=True)),
)


def placed(text: str, pattern: str | None = None, exclude: str | None = None) -> list[tuple[str, int, bool]]:
    """Place a job over RESERVE."""
    job = parse_job(f"name: j\nscript: t.py\n{text}", "job.yaml")
    members = plan_placement(RESERVE, job, pattern=pattern, exclude=exclude)
    return [(member.name, member.node_rank, member.spare) for member in members]


def test_nodes_in_reserve_are_taken_by_name_only() -> None:
    """Neither all nor a count takes them; a name, a range or a glob does."""
    ordinary = [("gpu1", 0, False), ("gpu2", 1, False), ("gpu3", 2, False)]

    assert placed("") == placed("nodes: all") == placed("nodes: 3") == placed("", "all") == ordinary
    assert placed("nodes: gpu[3-4]") == [("gpu3", 0, False), ("gpu4", 1, False)]
    with pytest.raises(UsageError, match="the job needs 4 nodes, 3 are available"):
        placed("nodes: 4")
    with pytest.raises(UsageError, match="all remaining nodes are spares: gpu4"):
        placed("", exclude="gpu[1-3]")


def test_spares_come_last() -> None:
    """First what is kept in reserve, then what the job leaves over; what is excluded is no spare either."""
    assert placed("nodes: 2\nrestart: {spares: 2}") == [
        ("gpu1", 0, False),
        ("gpu2", 1, False),
        ("gpu4", 2, True),
        ("gpu3", 3, True),
    ]
    assert placed("nodes: 2\nrestart: {spares: 1}", exclude="gpu4")[-1] == ("gpu3", 2, True)
    with pytest.raises(
        UsageError, match="needs 2 spares in addition to its 3 nodes, 1 of them available"
    ) as error:
        placed("restart: {spares: 2}")
    assert error.value.code == "CC-USE-032"


def test_a_single_number_is_explained_as_a_rank() -> None:
    """Who writes `--nodes 2` for two nodes learns how two are chosen; 0, 1, names and ranges are plain."""
    nodes = [Node(name="gpu03", index=2, host="10.0.0.3")]
    assert explain_rank_pattern("2", nodes).endswith("rank 2, gpu03; for 2 nodes: --nodes 0-1")
    assert [explain_rank_pattern(text, nodes) for text in (None, "0", "1", "gpu03", "2-3")] == [""] * 5
