"""A run that may go on with fewer nodes: who may lead it on, which ranks there are, what an attempt's spec has."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from clusterctl.node.gang.attempts import Roster, spec_of_attempt
from clusterctl.node.gang.limits import read_bounds
from clusterctl.protocol.messages.gang import (
    MAJORITY,
    NODES,
    TO_PEER,
    NextAttempt,
    RosterView,
    read_message,
    render_message,
)
from clusterctl.protocol.untrusted import Untrusted


def spec_of(nnodes: int, min_nodes: int | None, spares: int = 0, slot: int = 0, processes: int = 2) -> Any:
    """Return the spec of one slot of a run."""
    ranks = [*range(nnodes), *[None] * spares]
    entries = [
        {
            "slot": number,
            "node": f"n{number}",
            "node_rank": rank,
            "processes": processes,
            "address": f"10.0.0.{number}",
        }
        for number, rank in enumerate(ranks)
    ]
    own = {} if min_nodes is None else {"min_nodes": min_nodes}
    size = {"slots": len(ranks), "nnodes": nnodes, "world_size": nnodes * processes, "nproc": processes}
    return {"run": "j-1", "slot": slot, **size, "attempt": 1, "roster": entries, "restart": {"max": 9}, **own}


def sent(roster: Roster) -> RosterView:
    """Read what a roster sends to others, as a member of the same run does."""
    bounds = read_bounds(spec_of(roster.nnodes, None, roster.slot_count - roster.nnodes))
    text = render_message(NextAttempt(None, roster.view()))
    view: RosterView = read_message(Untrusted(json.loads(text)), TO_PEER, bounds).roster
    return view


def lose(roster: Roster, *slots: Any) -> set[Any]:
    """Mark slots lost; gives those that are left."""
    for slot in slots:
        roster.mark_lost(slot, "gone")
    return roster.all_slots - roster.lost


def test_one_node_after_the_other() -> None:
    """Of 4 nodes 3 go on and then 2, node 0 not among them; a third loss leaves too few."""
    roster = Roster(spec_of(4, 2))
    left = lose(roster, 2)
    assert roster.find_shortage(left, left) is None
    assert roster.assign(left)
    assert roster.node_ranks == {0: 0, 1: 1, 3: 2}
    roster.agree()

    left = lose(roster, 0)
    assert roster.find_shortage(left, left) is None
    assert roster.assign(left)
    assert (roster.node_ranks, roster.attempt) == ({1: 0, 3: 1}, 3)
    roster.agree()

    assert roster.find_shortage(lose(roster, 3), {1}) == NODES


def test_two_at_once() -> None:
    """Half of the last members might be going on elsewhere."""
    roster = Roster(spec_of(4, 1))
    left = lose(roster, 1, 2)
    assert roster.find_shortage(left, left) == MAJORITY
    assert not roster.in_minority


def test_without_the_key_all_nodes_are_needed() -> None:
    """A job that does not ask for it ends as before, and its rosters have nothing new."""
    roster = Roster(spec_of(4, None, spares=1))
    assert roster.assign(lose(roster, 1))
    assert roster.node_ranks == {0: 0, 4: 1, 2: 2, 3: 3}
    assert not roster.view().left_out
    left = lose(roster, 2)
    assert roster.find_shortage(left, left) == NODES
    assert not roster.assign(left)


def test_a_spare_comes_first() -> None:
    """As long as there are spares the run keeps its size, then the ranks close up in their order."""
    roster = Roster(spec_of(4, 2, spares=1))
    assert roster.assign(lose(roster, 1))
    assert roster.node_ranks == {0: 0, 4: 1, 2: 2, 3: 3}
    roster.agree()
    assert roster.assign(lose(roster, 0))
    assert roster.node_ranks == {4: 0, 2: 1, 3: 2}


def test_until_go_both_majorities_are_needed() -> None:
    """A node that has received a smaller roster without its GO does not know whether the others have it."""
    ahead, behind = Roster(spec_of(5, 1, slot=0)), Roster(spec_of(5, 1, slot=2))
    ahead.assign(lose(ahead, 3, 4))
    behind.apply(sent(ahead))
    assert behind.has_majority({0, 1, 2})
    assert not behind.has_majority({1, 2}), "2 of the new 3, but 2 of the old 5"
    assert not Roster(spec_of(5, 1, slot=3)).has_majority({3, 4})

    ahead.agree()
    behind.apply(sent(ahead))
    assert behind.has_majority({1, 2})
    behind.mark_lost(0, "gone")
    assert behind.describe_left() == "only 2 of 3 nodes are left"


def test_too_small_an_attempt_leaves_the_majority_as_it_is() -> None:
    """Where most nodes are spares, an attempt's nodes alone cannot agree on who counts."""
    roster = Roster(spec_of(2, 1, spares=3))
    assert roster.assign(lose(roster, 1))
    assert not roster.view().left_out


@pytest.mark.parametrize("key", ["agreed", "left_out"])
def test_numbers_of_no_attempt_are_refused(key: str) -> None:
    """What a hostile hub sends of later attempts does not make a minority of a majority."""
    roster = Roster(spec_of(4, 2))
    roster.assign(lose(roster, 3))
    message = json.loads(render_message(NextAttempt(None, roster.view())))
    (message["roster"] if key == "agreed" else message["roster"]["entries"][3])[key] = 10**9
    bounds = read_bounds(spec_of(4, 2))
    if key == "agreed":
        assert read_message(Untrusted(message), TO_PEER, bounds).roster.agreed == 1
    else:
        with pytest.raises(ValueError, match="attempt"):
            read_message(Untrusted(message), TO_PEER, bounds)


class Cluster:
    """Agents of one run that lose sight of each other, and what each of them knows."""

    def __init__(self, choice: random.Random, nnodes: int, spares: int) -> None:
        self.choice = choice
        self.nodes = [
            Roster(spec_of(nnodes, 1, spares, slot=slot, processes=1)) for slot in range(nnodes + spares)
        ]
        self.leader, self.ranked = self.nodes[0], set(self.nodes[0].node_ranks)

    def some(self, slots: set[Any]) -> set[Any]:
        """Choose some of these, or all."""
        return set(self.choice.sample(sorted(slots), self.choice.randint(1, len(slots))))

    def regroup(self) -> bool:
        """Some agents come together, their lowest leads; whether they begin an attempt, and may."""
        group = self.some(set(range(len(self.nodes))))
        hub = self.nodes[min(group)]
        for slot in group:
            hub.apply(self.nodes[slot].view())
        group -= hub.lost
        lose(hub, *(hub.all_slots - group))
        fit = self.some(group)
        if hub.find_shortage(group, fit) is not None:
            return False
        self.assert_others_have_ended(group)
        hub.assign(fit)
        received = self.some(group) | {hub.own_slot}
        for slot in received:
            self.nodes[slot].apply(hub.view())
        if set(hub.node_ranks) <= received and self.choice.random() < 0.8:
            hub.agree()
            self.leader, self.ranked = hub, set(hub.node_ranks)
            for slot in self.some(group) & received:
                self.nodes[slot].agree()
        return True

    def assert_others_have_ended(self, group: set[Any]) -> None:
        """The last attempt that had GO is over: a node of it has come here, or its hub sees too few others."""
        if group & self.ranked:
            return
        seen = Roster(spec_of(self.leader.nnodes, 1, self.leader.slot_count - self.leader.nnodes, slot=-1))
        seen.apply(self.leader.view())
        lose(seen, *group)
        assert seen.in_minority, (group, self.ranked, self.leader.entries)


@pytest.mark.parametrize("seed", range(40))
def test_no_two_sides_go_on(seed: int) -> None:
    """Whatever was received where before a cut, no side begins an attempt while another side's may still run."""
    choice, began = random.Random(seed), 0
    for _ in range(60):
        cluster = Cluster(choice, choice.randint(3, 6), choice.choice([0, 0, 1, 2]))
        for _ in range(12):
            began += cluster.regroup()
    assert began > 60


def test_an_attempts_spec_has_its_own_size() -> None:
    """Ranks are counted from the nodes that take part, for mpirun and Ray too; the run's own spec stays as it is."""
    spec = spec_of(3, 2)
    spec.update(mpi={"slots": [2, 2, 2]}, ray={"all_gpus": 6, "names": {}})
    spec["roster"][2]["processes"] = 4
    roster = Roster(spec)
    roster.assign(lose(roster, 1))
    own = spec_of_attempt(spec, roster)

    assert (own["attempt"], own["node_rank"], own["planned_nodes"]) == (2, 0, 3)
    assert (own["nnodes"], own["world_size"]) == (2, 6)
    assert own["mpi"] == {"slots": [2, 4]}
    assert own["ray"] == {"all_gpus": 6, "names": {"10.0.0.0": "n0", "10.0.0.2": "n2"}}
    assert (spec["nnodes"], spec["mpi"], spec["ray"]["names"]) == (3, {"slots": [2, 2, 2]}, {})


@pytest.mark.parametrize("counted", [0, None])
def test_what_is_not_counted_stays_so(counted: int | None) -> None:
    """Ray without GPUs, or that counts them itself; a node whose ranks its program starts."""
    spec = spec_of(3, 2)
    spec["ray"] = {"all_gpus": counted, "names": {}}
    spec["roster"][2]["processes"] = None
    roster = Roster(spec)
    roster.assign(lose(roster, 1))
    own = spec_of_attempt(spec, roster)
    assert (own["ray"]["all_gpus"], own["world_size"]) == (counted, None)


def test_a_run_of_fixed_size_keeps_its_spec() -> None:
    """Without the key only rank and number are new."""
    spec = spec_of(3, None, spares=1, slot=3)
    roster = Roster(spec)
    roster.assign(lose(roster, 1))
    own = spec_of_attempt(spec, roster)
    assert own == {**spec, "attempt": 2, "node_rank": 1}
