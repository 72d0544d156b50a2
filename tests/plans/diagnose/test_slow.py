"""Which rank arrives last: recorded arrivals on nodes whose clocks differ, and answers that cannot be compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from clusterctl.plans.diagnose.evidence import Entry, GroupRecord, NodeEvidence, RankEvidence, parse_evidence
from clusterctl.plans.diagnose.slow import Slowness, judge_slowness
from clusterctl.protocol.untrusted import Untrusted

CLOCKS = {"gpu01": 0.0, "gpu02": 3600.0, "gpu03": -0.5}
NOW, STEP, STEPS = 1000.0, 0.2, 50


def answer(node: str, ranks: Sequence[int], late: Sequence[float], steps: int = STEPS) -> NodeEvidence:
    """Let ranks of a node arrive so many seconds late in each of the steps; of the hub with the others' clocks."""
    rows = []
    for rank, delay in zip(ranks, late, strict=True):
        arrivals = [100.0 + STEP * step + delay + 0.001 * ((rank + step) % 3) for step in range(steps)]
        entries = [
            Entry(step, None, "all_reduce", "[[1]]", "Float", True, NOW - moment)
            for step, moment in enumerate(arrivals)
        ]
        group = GroupRecord("0", "default_pg", (), tuple(entries))
        rows.append(RankEvidence(rank, node, groups=(group,)))
    clocks = {name: offset for name, offset in CLOCKS.items() if name != node} if node == "gpu01" else {}
    return NodeEvidence(node, tuple(rows), 0.1, NOW + CLOCKS[node], clocks)


def judged(*late: float) -> Slowness:
    """Judge three nodes with one rank each."""
    return judge_slowness([answer(f"gpu0{rank + 1}", [rank], [delay]) for rank, delay in enumerate(late)])


def test_a_slow_rank_is_named_whatever_its_clock_shows() -> None:
    """How often it was last, by how much, and what that costs; the clocks are the hub's to compare."""
    found = judged(0.0, 0.041, 0.0)
    assert (found.judgement.code, found.judgement.suspects, found.collectives) == ("CC-HANG-011", (1,), STEPS)
    assert (
        "rank 1 (gpu02) arrives last in 100 % of 50 collectives, 40 ms behind the median"
        in found.judgement.sentence
    )
    assert found.rows[0].loss == pytest.approx(0.2, abs=0.02)


def test_a_slow_node_is_named_if_none_of_its_ranks_is() -> None:
    """Its ranks take turns at being last."""
    nodes = [answer("gpu01", [0, 1, 2], [0.0, 0.0, 0.0]), answer("gpu02", [3, 4, 5], [0.02, 0.02, 0.02])]
    found = judge_slowness(nodes)
    assert (found.judgement.code, found.judgement.suspects) == ("CC-HANG-011", (3, 4, 5))
    assert "ranks 3-5 (gpu02)" in found.judgement.sentence


def with_jitter(seed: int, nodes: int, per_node: int, jitter: float, slow: float = 0.0) -> Slowness:
    """Judge ranks whose steps last as long as each other's but for chance; the last rank may be slow besides."""
    chance = random.Random(seed)
    count, steps, step = nodes * per_node, 60, 0.3
    entries: list[list[Entry]] = [[] for _ in range(count)]
    begin = 100.0
    for number in range(steps):
        arrivals = [begin + step * (1 + jitter * chance.uniform(-1, 1)) for _ in range(count)]
        arrivals[-1] += slow
        for rank, moment in enumerate(arrivals):
            entries[rank].append(
                Entry(number, None, "all_reduce", "[[1]]", "Float", True, NOW - moment, "gloo")
            )
        begin = max(arrivals)
    ranks = [
        RankEvidence(
            rank, f"gpu0{rank // per_node + 1}", groups=(GroupRecord("0", "default_pg", (), tuple(found)),)
        )
        for rank, found in enumerate(entries)
    ]
    clocks = {f"gpu0{number + 1}": 0.0 for number in range(1, nodes)}
    return judge_slowness(
        NodeEvidence(
            f"gpu0{number + 1}",
            tuple(ranks[number * per_node : (number + 1) * per_node]),
            0.1,
            NOW,
            clocks if number == 0 else {},
        )
        for number in range(nodes)
    )


@pytest.mark.parametrize(
    ("nodes", "per_node", "jitter"),
    [(1, 2, 0.2), (2, 1, 0.3), (2, 2, 0.2), (2, 4, 0.15), (2, 8, 0.1), (4, 8, 0.1)],
)
def test_chance_accuses_nobody(nodes: int, per_node: int, jitter: float) -> None:
    """One of two ranks is always the last: in half of the steps that says nothing. A slow rank among them is named."""
    seeds = range(12)
    accused = [seed for seed in seeds if with_jitter(seed, nodes, per_node, jitter).judgement.suspects]
    slow = [with_jitter(seed, nodes, per_node, jitter, slow=0.2).judgement.suspects for seed in seeds]
    assert accused == []
    assert slow == [(nodes * per_node - 1,)] * len(seeds)


def in_steps(late: float, pauses: Sequence[float], sizes: Sequence[str], steps: int = 24) -> Slowness:
    """Judge two ranks, of which the second is late in all collectives of each step, which come after these pauses."""
    ranks = []
    for rank, delay in ((0, 0.0), (1, late)):
        moment, entries = 100.0, []
        for number in range(steps * len(pauses)):
            moment += pauses[number % len(pauses)]
            size = sizes[number % len(sizes)]
            age = NOW - moment - delay
            entries.append(Entry(number, None, "all_reduce", size, "Float", True, age, "gloo"))
        ranks.append(
            RankEvidence(rank, "gpu01", groups=(GroupRecord("0", "default_pg", (), tuple(entries)),))
        )
    return judge_slowness([NodeEvidence("gpu01", tuple(ranks), 0.1, NOW)])


@pytest.mark.parametrize(
    ("pauses", "sizes", "steps_in_period"),
    [
        ((0.2,), "a", 1),  # one collective in a step
        ((0.12, 0.02, 0.02, 0.02, 0.02), "abcde", 1),  # the buckets of a backward pass
        ((0.12, 0.02, 0.02, 0.02, 0.02), "a", 1),  # all of the same size
        ((0.22, 0.07, 0.07), "a", 1),  # and further apart than the delay
        ((0.2, 0.2, 0.2, 0.001), "aaab", 3),  # a sum for the log in every third step
    ],
)
def test_a_delay_counts_once_in_a_step(pauses: Sequence[float], sizes: str, steps_in_period: int) -> None:
    """However many collectives of it have the same delay, those that wait lose it once."""
    found = in_steps(0.03, pauses, sizes)
    expected = 0.03 * steps_in_period / sum(pauses)
    assert found.waits[0] == pytest.approx(expected, rel=0.35) and found.waits[1] == 0.0
    assert not found.on_gpu


def test_waiting_is_unknown_where_collectives_are_few() -> None:
    """Fewer than twenty, fewer than five steps, or clocks that cannot be compared."""
    assert in_steps(0.03, (0.2,), "a", steps=19).waits == {}
    assert in_steps(0.03, (0.2, 0.001, 0.001, 0.001, 0.001, 0.001), "abcdef", steps=4).waits == {}
    nodes = [replace(answer("gpu01", [0], [0.0]), clocks={}), answer("gpu02", [1], [0.0])]
    assert judge_slowness(nodes).waits == {}


@pytest.mark.parametrize("late", [(0.0, 0.0, 0.0), (0.0005, 0.0, 0.001)])
def test_noise_is_no_slow_rank(late: tuple[float, ...]) -> None:
    """Some rank is always the last one."""
    found = judged(*late)
    assert (found.judgement.code, found.judgement.suspects) == ("CC-HANG-012", ())
    assert "no rank is late" in found.judgement.sentence


def test_what_cannot_be_compared_is_said() -> None:
    """Clocks that were not compared, too few collectives, ranks without a record."""
    nodes = [replace(answer("gpu01", [0], [0.0]), clocks={}), answer("gpu02", [1], [0.0])]
    assert "clocks" in judge_slowness(nodes).judgement.sentence
    few = judge_slowness([answer("gpu01", [0, 1], [0.0, 0.0], steps=3)])
    assert few.judgement.sentence.endswith("too few collectives so far")
    silent = NodeEvidence("gpu01", (RankEvidence(0, "gpu01", records_problem="no recorder"),) * 2, 0.1, NOW)
    assert judge_slowness([silent]).judgement.sentence.endswith("no recorder")
    assert judge_slowness([answer("gpu01", [0], [0.0])]).judgement.sentence.endswith("has one rank only")
    assert judge_slowness([]).judgement.code == "CC-HANG-012"


def test_hostile_answers_are_bounded() -> None:
    """Clocks that are none are not taken, of endless entries the first count, and any age is survived."""
    row: list[Any] = [1, None, "gloo:all_reduce", "[[1]]", "Float", True]
    entries = [[number, *row[1:], age] for number, age in enumerate([1e300, -5.0, "x", None, *[1e8] * 500])]
    groups = [{"name": "0", "about": "default_pg", "members": "", "entries": entries}]
    ranks = [{"rank": rank, "problem": "", "groups": groups} for rank in (0, 1)]
    clocks = {"gpu02": "late", "gpu03": 10**30, "gpu04": 5_000_000}
    node = parse_evidence(Untrusted({"ranks": ranks, "time": 1e9, "clocks": clocks}), "gpu01")
    assert node.clocks == {"gpu04": 5.0}
    assert all(len(group.entries) <= 256 for rank in node.ranks for group in rank.groups)
    assert judge_slowness([node]).judgement.sentence
