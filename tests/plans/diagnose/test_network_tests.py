"""Who calls whom in a proof on the wire, on which rails, and what is believed of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import change, healthy_answer

from clusterctl.plans.diagnose.network_tests import (
    choose_mesh_members,
    parse_listener,
    parse_paths,
    plan_mesh_connections,
    plan_rails,
)
from clusterctl.plans.facts.facts import FULL_MESH_LIMIT, parse_facts, plan_neighbours
from clusterctl.plans.launch.network import resolve_network
from clusterctl.protocol.messages.checks import MeshPorts, MeshResult
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node


def node(number: int, **values: Any) -> Node:
    """Give node gpuN at 10.0.0.N."""
    return replace(Node(name=f"gpu{number}", index=number - 1, host=f"10.0.0.{number}"), **values)


def facts(number: int, **changes: Any) -> Facts:
    """Give the facts of healthy node gpuN, changed; `__` stands for a dot."""
    raw = healthy_answer(number)
    for path, value in changes.items():
        change(raw, path.replace("__", "."), value)
    return parse_facts(raw)


def taken(nodes: list[Node], known: dict[str, Facts]) -> dict[str, dict[str, str]]:
    """Give who takes part, with his addresses."""
    networks = {one.name: resolve_network(one, known.get(one.name)) for one in nodes}
    return plan_rails(choose_mesh_members(nodes, known, networks), known, networks)


@pytest.mark.parametrize("count", [2, 3, 8, FULL_MESH_LIMIT])
def test_up_to_the_limit_all_call_all(count: int) -> None:
    """Every ordered pair once."""
    names = [f"n{number}" for number in range(count)]
    calls = plan_neighbours(names)
    assert {(one, other) for one in calls for other in calls[one]} == {
        (a, b) for a in names for b in names if a != b
    }
    assert all(len(set(peers)) == count - 1 for peers in calls.values())


@pytest.mark.parametrize("count", [FULL_MESH_LIMIT + 1, 64, 200, 1000])
def test_above_it_a_sample_that_connects_all(count: int) -> None:
    """Each calls both neighbours and a few others, is called as often, and nobody calls himself or twice."""
    names = [f"n{number}" for number in range(count)]
    calls = plan_neighbours(names)
    called = [peer for peers in calls.values() for peer in peers]
    for place, name in enumerate(names):
        assert {names[place - 1], names[(place + 1) % count]} <= set(calls[name])
        assert name not in calls[name]
        assert len(set(calls[name])) == len(calls[name]) <= 12
        assert called.count(name) == len(calls[name])


def test_only_what_may_work_is_tried() -> None:
    """Nodes that did not answer, have something wrong already, or share an address take no part; one alone is none."""
    nodes = [node(1), node(2), node(3, nic=("eth7",)), node(4), node(5, ip="10.0.0.1")]
    known = {"gpu1": facts(1), "gpu2": facts(2), "gpu3": facts(3), "gpu5": facts(5)}
    assert taken(nodes, known) == {}
    assert list(taken([*nodes[1:4], node(6)], {**known, "gpu6": facts(6)})) == ["gpu2", "gpu6"]


def test_loopback_reaches_no_other_machine() -> None:
    """It is tried among nodes of one machine only."""
    pair = [node(1, ip="127.0.0.1"), node(2, ip="127.0.0.2")]
    apart = {"gpu1": facts(1), "gpu2": facts(2)}
    together = {"gpu1": facts(1), "gpu2": facts(2, machine__boot_id=apart["gpu1"].machine.boot_id)}
    assert taken(pair, apart) == {}
    assert taken(pair, together) == {"gpu1": {"": "127.0.0.1"}, "gpu2": {"": "127.0.0.2"}}


def test_further_nics_meet_in_their_networks() -> None:
    """Whatever their order in the list; an address that two nodes have is none."""
    pair = [node(1, nic=("eth0", "ib0")), node(2, nic=("ib0", "eth0"))]
    rails = taken(pair, {"gpu1": facts(1), "gpu2": facts(2)})
    assert rails == {
        "gpu1": {"": "10.0.0.1", "10.9.0.0/24": "10.9.0.1"},
        "gpu2": {"": "10.0.0.2", "10.9.0.0/24": "10.9.0.2"},
    }
    clash = facts(2, nics__2__addresses__0__ip="10.9.0.1")
    assert taken(pair, {"gpu1": facts(1), "gpu2": clash}) == {
        "gpu1": {"": "10.0.0.1"},
        "gpu2": {"": "10.0.0.2"},
    }


def test_orders_name_address_port_and_rail() -> None:
    """Each node is told whom to call where, and all the others node 0's second door."""
    one = MeshPorts(
        addresses={"": "10.0.0.1", "r": "10.9.0.1"}, ports={"": 4001, "r": 4002}, master_port=20003
    )
    two = MeshPorts(addresses={"": "10.0.0.2", "r": "10.9.0.2"}, ports={"": 5001, "r": 5002})
    three = MeshPorts(addresses={"": "10.0.0.3"}, ports={"": 6001})
    orders = plan_mesh_connections({"a": one, "b": two, "c": three})
    reported = {
        name: [
            (peer["name"], peer["address"], peer["port"], peer["listener"], peer["rail"]) for peer in peers
        ]
        for name, peers in orders.items()
    }
    assert reported["c"] == [
        ("a", "10.0.0.1", 4001, "mesh", ""),
        ("b", "10.0.0.2", 5001, "mesh", ""),
        ("a", "10.0.0.1", 20003, "master", ""),
    ]
    assert ("b", "10.9.0.2", 5002, "mesh", "r") in reported["a"]
    assert ("a", "10.0.0.1", 20003, "master", "") not in reported["a"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"problem": "Cannot assign requested address"},
        {"listening": None},
        {"listening": {"ports": {"other": 4}}},
        {"listening": {"ports": {"": 4, "of nobody": 5}}},
        {"listening": {"ports": ["x"]}},
    ],
)
def test_who_does_not_listen_says_why_or_nothing(answer: dict[str, Any]) -> None:
    """Whatever is no answer to the question is told as that."""
    assert str(
        parse_listener(answer.get("listening"), answer.get("problem", ""), {"": "10.0.0.1"})
    ).startswith("it cannot listen on 10.0.0.1: ")


def test_only_what_was_asked_is_believed() -> None:
    """A node cannot speak for others, tell of calls that nobody ordered, or tell twice."""
    order = [{"name": "b", "listener": "mesh", "rail": ""}]
    true = {"peer": "b", "listener": "mesh", "rail": "", "step": "done", "got": 262144, "caller": "z"}
    lies = [{**true, "peer": "c"}, {**true, "listener": "master"}, {**true, "rail": "r"}, 7, {"peer": ["b"]}]
    (way,) = parse_paths([true, *lies, true], "a", order)
    assert (way.ends, way.open) == (("a", "b"), True)
    assert parse_paths("nonsense", "a", order) == ()


def test_who_is_absent_does_not_count() -> None:
    """Calls from and to a node that fell silent say nothing of the way."""
    orders = [{"name": name, "listener": "mesh", "rail": ""} for name in ("b", "c")]
    reported = [{"peer": name, "step": "greet", "error": "nobody answers"} for name in ("b", "c")]
    wire = MeshResult(
        nodes=("a", "b", "c"), paths=parse_paths(reported, "a", orders), absent={"b": "it did not report"}
    )
    assert [way.ends for way in wire.select_paths("mesh")] == [("a", "c")]
