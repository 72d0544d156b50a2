"""Facts: what a node answers is read tolerantly and kept harmless."""

from __future__ import annotations

from typing import Any

import pytest
from cases import healthy_answer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterctl.plans.facts.facts import FULL_MESH_LIMIT, parse_facts, probe_request
from clusterctl.plans.facts.untrusted import MAX_TEXT, clean_text
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.messages.record import MAX_ITEMS, fields_of
from clusterctl.specs.inventory.model import Node


def test_healthy_answer_is_read_whole() -> None:
    """Nothing of a healthy answer is dropped, and nested values arrive."""
    facts = parse_facts(healthy_answer(4))
    assert facts.notes == () and facts.problems == {}
    assert facts.torch.version == "2.7.1+cu126"
    assert facts.nics[1].ipv4 == ("10.0.0.4",)
    assert facts.gpus.devices[1].uuid == "GPU-41"
    assert facts.limits.nofile is not None and facts.limits.nofile.hard == 1048576


def test_unknown_keys_are_ignored() -> None:
    """A newer payload may say more."""
    raw = healthy_answer(1)
    raw["weather"] = "fine"
    raw["torch"]["mood"] = 1
    assert parse_facts(raw) == parse_facts(healthy_answer(1))


@pytest.mark.parametrize("answer", [None, [], "text", 7, {"torch": None}, {1: 2}])
def test_an_answer_of_any_shape_is_facts(answer: object) -> None:
    """What is no answer leaves every part empty."""
    assert parse_facts(answer).torch.version is None


def test_wrong_type_leaves_a_note() -> None:
    """A value of the wrong type counts as missing; a whole part of the wrong type is a problem."""
    raw = healthy_answer(1)
    raw["torch"]["version"] = ["2.7"]
    raw["machine"]["cpus"] = True
    raw["nics"] = "eth0"
    facts = parse_facts(raw)
    assert facts.torch.version is None and facts.torch.cuda == "12.6"
    assert facts.machine.cpus is None
    assert facts.problems == {"nics": "the answer was not understood"}
    assert len(facts.notes) == 3


def test_problem_is_kept_for_its_question_only() -> None:
    """A question that failed is named; all others stay."""
    raw = healthy_answer(1)
    raw["torch"] = {"problem": "no answer within 2 s"}
    facts = parse_facts(raw)
    assert facts.problems == {"torch": "no answer within 2 s"}
    assert facts.packages["torch"] == "2.7.1+cu126"


def test_a_node_cannot_plant_problems_or_notes() -> None:
    """The fields that are ours are not read from the answer."""
    facts = parse_facts({"problems": {"x": "y"}, "notes": ["z"]})
    assert facts.problems == {} and facts.notes == ()


def test_strings_are_short_and_visible() -> None:
    """Control characters and invisible ones are shown escaped, long texts are cut."""
    facts = parse_facts({"machine": {"hostname": "a\x1b[31mb\n\u202ec" + "x" * 5000}})
    assert facts.machine.hostname is not None
    assert facts.machine.hostname.startswith("a\\x1b[31mb\\x0a\\u202ec")
    assert len(facts.machine.hostname) < MAX_TEXT + 30
    assert clean_text("网卡 eth0") == "网卡 eth0"


def test_lists_and_numbers_are_bounded() -> None:
    """A flood of items is cut with a note; absurd numbers are dropped."""
    facts = parse_facts(
        {"nics": [{"name": "n"}] * 9000, "machine": {"memory": 10**400}, "clock": {"received": 1e308}}
    )
    assert len(facts.nics) == MAX_ITEMS
    assert facts.machine.memory is None and facts.clock.received is None
    assert len(facts.notes) == 3


def test_offset_is_bounded_by_our_own_clock() -> None:
    """The request left before it arrived and so did the answer: that brackets the offset."""
    facts = parse_facts({"clock": {"received": 105.0, "answered": 105.2}}, sent_at=100.0, received_at=100.4)
    assert facts.clock.offset == pytest.approx(4.9)
    assert facts.clock.error == pytest.approx(0.1)
    assert parse_facts({"clock": {"received": 105.0}}, sent_at=100.0, received_at=100.4).clock.offset is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.dictionaries(st.sampled_from([*fields_of(Facts)]), JSON))
def test_no_answer_raises(answer: dict[str, Any]) -> None:
    """Whatever JSON a node sends, reading it gives Facts."""
    assert isinstance(parse_facts(answer), Facts)


def test_request_names_the_peers_but_not_the_node_itself() -> None:
    """A peer is asked for by its training address where the inventory gives one, else by its host."""
    nodes = (
        Node(name="a", index=0, host="a.example"),
        Node(name="b", index=1, host="b.example", ip="10.0.0.2"),
    )
    assert probe_request(nodes[0], nodes, "ff")["peers"] == {"b": "10.0.0.2"}
    assert probe_request(nodes[1], nodes, "ff")["peers"] == {"a": "a.example"}


def test_among_very_many_a_node_is_asked_for_the_ways_to_few() -> None:
    """Node 0, its neighbours, and some further off: what a thousand nodes tell grows little faster than they do."""
    nodes = tuple(Node(name=f"n{rank}", index=rank, host=f"h{rank}") for rank in range(1000))
    peers = probe_request(nodes[500], nodes, "ff")["peers"]
    assert set(peers) == {f"n{rank}" for rank in (0, 12, 499, 501, 502, 504, 508, 516, 532, 564, 628, 756)}
    few = nodes[:FULL_MESH_LIMIT]
    assert len(probe_request(few[5], few, "ff")["peers"]) == FULL_MESH_LIMIT - 1
