"""The search of a deep check: which rounds it asks for, and whom it blames, on clusters that are plain functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest

from clusterctl.node.diagnose.collective import Result, Round, matchings, search
from clusterctl.protocol.messages.record import to_json

Fares = Callable[[Sequence[int]], Result]
GOOD, FAILED = Result(True, 1e9, 0.0002), Result(False)


def drive(count: int, fares: Fares, time_for: int = 1000) -> tuple[dict[str, Any], list[Round]]:
    """Carry out a search on nodes whose groups fare as a function says."""
    rounds: list[Round] = []
    steps = search(range(count), lambda: len(rounds) < time_for)
    step = next(steps)
    while True:
        rounds.append(step)
        try:
            step = steps.send([fares(group) for group in step.groups])
        except StopIteration as end:
            return to_json(end.value), rounds


def without(*bad: int) -> Fares:
    """Fail where one of these takes part with others."""
    return lambda group: (
        Result(len(group) < 2 or not set(bad) & set(group)) if set(bad) & set(group) else GOOD
    )


def between(a: int, b: int, result: Result = FAILED) -> Fares:
    """Spoil what holds both."""
    return lambda group: result if {a, b} <= set(group) else GOOD


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_everybody_meets_everybody_once(count: int) -> None:
    """Rounds of disjoint pairs, all pairs in the end."""
    rounds = list(matchings(range(count)))
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)
    assert sorted(tuple(pair) for pairs in rounds for pair in pairs) == list(combinations(range(count), 2))


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_healthy_nodes_are_not_blamed(count: int) -> None:
    """At most three rounds of pairs, however many nodes there are."""
    found, rounds = drive(count, lambda _: GOOD)
    assert found == {"ok": True, "nodes": [], "links": [], "slow_nodes": [], "slow_links": [], "rest": None}
    assert len(rounds) <= 4


@pytest.mark.parametrize("count", [3, 8, 33])
def test_a_node_that_fails_with_everybody(count: int) -> None:
    """It is named, and the others are tried without it."""
    found, rounds = drive(count, without(1))
    assert (found["ok"], found["nodes"], found["links"], found["rest"]) == (False, [1], [], True)
    assert [step.kind for step in rounds][:3] == ["all", "alone", "pairs"]
    assert len(rounds) <= 6
    assert rounds[-1] == ("rest", [[node for node in range(count) if node != 1]])


def test_a_node_that_fails_alone() -> None:
    """No pair is needed to know it, and the others are still looked at."""
    found, _ = drive(4, lambda group: Result(False) if 2 in group else GOOD)
    assert (found["nodes"], found["links"], found["rest"]) == ([2], [], True)


@pytest.mark.parametrize("pair", [(0, 1), (2, 5), (6, 7)])
def test_a_link_between_two_good_nodes(pair: tuple[int, int]) -> None:
    """All pairs are tried until the one is found that fails."""
    found, _ = drive(8, between(*pair))
    assert (found["nodes"], found["links"], found["rest"]) == ([], [list(pair)], True)


def test_two_nodes_cannot_be_told_apart() -> None:
    """The link is named, which is all that can be said."""
    found, _ = drive(2, lambda group: Result(False) if len(group) > 1 else GOOD)
    assert (found["nodes"], found["links"]) == ([], [[0, 1]])


def test_where_no_pair_works_nobody_is_odd() -> None:
    """A cause that all share blames no node."""
    found, _ = drive(4, lambda group: Result(False) if len(group) > 1 else GOOD)
    assert found["nodes"] == []


def test_what_only_all_together_cannot_do() -> None:
    """Every pair works: nobody is blamed."""
    found, rounds = drive(5, lambda group: Result(False) if len(group) > 2 else GOOD)
    assert (found["ok"], found["nodes"], found["links"]) == (False, [], [])
    assert sum(len(step.groups) for step in rounds if step.kind == "pairs") == 10


@pytest.mark.parametrize("count", [3, 9])
def test_a_slow_node(count: int) -> None:
    """It is slow with everybody, and was looked at twice."""
    found, rounds = drive(count, lambda group: Result(True, 2e7, 0.0002) if 1 in group else GOOD)
    assert (found["ok"], found["slow_nodes"], found["slow_links"]) == (True, [1], [])
    assert "again" in [step.kind for step in rounds]


def test_a_late_node() -> None:
    """Latency counts too."""
    found, _ = drive(4, lambda group: Result(True, 1e9, 0.02) if 3 in group else GOOD)
    assert found["slow_nodes"] == [3]


def test_a_slow_link() -> None:
    """Both ends are quick with others."""
    found, _ = drive(4, between(0, 2, Result(True, 1e8, 0.0002)))
    assert (found["slow_nodes"], found["slow_links"]) == ([], [[0, 2]])


def test_a_moment_of_noise_blames_nobody() -> None:
    """What was slow once and quick the second time is quick."""
    asked: list[tuple[int, ...]] = []

    def noisy(group: Sequence[int]) -> Result:
        asked.append(tuple(group))
        return Result(True, 1e7, 0.1) if asked.count((0, 1)) == 1 and tuple(group) == (0, 1) else GOOD

    found, _ = drive(4, noisy)
    assert (found["slow_nodes"], found["slow_links"]) == ([], [])


def test_time_is_bounded() -> None:
    """When the time is over no further round of pairs begins."""
    found, rounds = drive(64, between(3, 40), time_for=5)
    assert len(rounds) <= 6
    assert found["ok"] is False
