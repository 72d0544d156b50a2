"""A check that passed a moment ago: what is kept of it, when it counts, and when all is tested again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import simulated
from simulated import SimulatedCluster, Ways, facts_of, simulated_nodes

from clusterctl.cli.actions.preflight import Preflight, Questions, run_preflight
from clusterctl.cli.context.checks import select_checks
from clusterctl.client.preflight import MAX_AGE, MAX_KEPT, RecentCheck, load_check, save_check
from clusterctl.console.progress import Phases
from clusterctl.protocol.messages.checks import MeshPath, MeshResult
from clusterctl.protocol.messages.facts import Facts, GpuHealth, GpuState, Machine, Nccl, Torch
from clusterctl.specs.inventory.model import Inventory

NODES = simulated_nodes(3)
INVENTORY = Inventory(cluster="simulated", file="inventory.yaml", nodes=NODES)
NOW = 1_790_000_000.0
FACTS = Facts(
    machine=Machine(boot_id="ab-12"),
    torch=Torch(version="2.7.1"),
    nccl=Nccl(version="2.26.2"),
    gpu_health=GpuHealth(devices=(GpuState(),), pci=("0000:01:00.0",)),
)
MESH = MeshResult(
    nodes=("a", "b"),
    paths=(MeshPath(caller="a", peer="b", step="done", rtt=30),),
    master_port=29500,
    seconds=0.1,
)
CHECK = RecentCheck(
    time=NOW,
    facts={"a": FACTS, "b": FACTS},
    rails={"a": {"": "10.0.0.1"}, "b": {"": "10.0.0.2"}},
    mesh=MESH,
)


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    """For as long as it counts; a clock that was put back makes nothing young."""
    save_check(tmp_path, "x", CHECK)
    assert load_check(tmp_path, "x", NOW + MAX_AGE - 1) == CHECK
    assert load_check(tmp_path, "x", NOW + MAX_AGE) is None
    assert load_check(tmp_path, "x", NOW - 1) is None
    assert load_check(tmp_path, "y", NOW) is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"time": "now"}', '{"time": 1790000000, "mesh": 7}', "{" * 9000]
)
def test_a_damaged_file_is_no_check(tmp_path: Path, content: str) -> None:
    """Neither is one that another account could have written."""
    file = tmp_path / "x.json"
    file.write_text(content)
    assert load_check(tmp_path, "x", NOW) is None
    save_check(tmp_path, "x", CHECK)
    file.chmod(0o666)
    tmp_path.chmod(0o755)
    assert load_check(tmp_path, "x", NOW) is None


def test_few_are_kept(tmp_path: Path) -> None:
    """The oldest go."""
    for number in range(MAX_KEPT + 5):
        save_check(tmp_path, str(number), CHECK)
    assert len(list(tmp_path.iterdir())) == MAX_KEPT


class Nodes:
    """Simulated nodes whose answers can be changed, and what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.changes: dict[str, Any] = {}
        self.asked: list[list[str]] = []
        self._folder = folder
        monkeypatch.setattr(simulated, "facts_of", self._answer)

    def _answer(self, node: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request["skip"])
        facts = {**facts_of(node, request), **self.changes}
        return {name: value for name, value in facts.items() if name not in request["skip"]}

    def check(self, skip: tuple[str, ...] = (), **options: Any) -> tuple[Preflight, bool]:
        """Check all; says whether the nodes connected to each other for it."""
        self.asked.clear()
        with SimulatedCluster(Ways()) as cluster:
            selection = select_checks(INVENTORY, None, (), skip)
            questions = Questions(NODES, None, selection, **options)
            result = run_preflight(cluster, questions, Phases([node.name for node in NODES]), self._folder)
        return result, [] in self.asked


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    """Make three."""
    return Nodes(monkeypatch, tmp_path)


def test_the_next_check_asks_what_is_cheap(nodes: Nodes) -> None:
    """Its result is that of the first, with its age, and everything else is new."""
    first, in_full = nodes.check()
    assert in_full and first.exit_code == 0 and first.age is None
    nodes.changes["locks"] = [{"gpu": 0, "pid": 7}]
    second, in_full = nodes.check()
    assert not in_full and second.age is not None and len(nodes.asked) == len(NODES)
    assert second.mesh == first.mesh
    assert {name: facts.nccl for name, facts in second.facts.items()} == {
        name: facts.nccl for name, facts in first.facts.items()
    }
    assert all(facts.locks for facts in second.facts.values())
    third, in_full = nodes.check(recheck=True)
    assert in_full and third.age is None


def test_a_check_serves_one_launch(nodes: Nodes) -> None:
    """The run may have crashed because of what was tested: the next launch tests it again, and so does a check."""
    assert nodes.check()[1]
    assert not nodes.check(launches=True)[1]
    assert nodes.check(launches=True)[1]
    assert nodes.check()[1]
    nodes.check(recheck=True, launches=True)
    assert nodes.check()[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": {"boot_id": "another"}},
        {"torch": {"version": "2.6.0"}},
        {"nics": []},
        {"tmp_disk": {"problem": "no answer within 2 s"}},
    ],
    ids=["started again", "another torch", "another network", "no answer"],
)
def test_a_node_that_changed_is_tested_in_full(nodes: Nodes, changes: dict[str, Any]) -> None:
    """What was tested may no longer hold."""
    assert nodes.check()[0].exit_code == 0
    nodes.changes = changes
    assert nodes.check()[1]


def test_what_did_not_pass_is_not_used_again(nodes: Nodes) -> None:
    """Until it has passed once; which findings are ignored does not matter."""
    nodes.changes = {"torch": {"version": "1.8.0"}}
    assert nodes.check()[0].exit_code == 3
    assert nodes.check()[1]
    nodes.changes = {}
    assert nodes.check()[1]
    assert not nodes.check()[1]
    assert not nodes.check(skip=("NET-012",))[1]
