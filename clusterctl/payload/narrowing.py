"""Which groups of nodes a deep check tries next, and who is to blame: no clock, no network, plain values.

A round is a kind and disjoint groups of nodes, tried side by side; a result is how one group fared. `search` is a
generator: it yields rounds, is sent their results, and returns what it found.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Sequence, Set, Tuple

ENOUGH = 3  # rounds of pairs that show a bad node; a bad link between two good ones may take more
SLOW = 0.4  # of the usual bandwidth
LATE, LATE_BY = 5.0, 0.002  # times the usual latency, and seconds above it


class Round(NamedTuple):
    """Groups of node numbers that are tried at the same time."""

    kind: str
    groups: List[List[int]]


class Result(NamedTuple):
    """How a group fared: bandwidth in bytes/s, latency in s; both 0 if it failed."""

    ok: bool
    bandwidth: float = 0.0
    latency: float = 0.0


Pair = Tuple[int, int]
Pairs = Dict[Pair, Result]
Found = Dict[str, Any]
Search = Generator[Round, List[Result], Found]


def search(nodes: Sequence[int], in_time: Callable[[], bool]) -> Search:
    """Try all nodes, then what tells them apart; `in_time` says whether there is time for another round."""
    found: Found = {"ok": True, "nodes": [], "links": [], "slow_nodes": [], "slow_links": [], "rest": None}
    (whole,) = yield Round("all", [list(nodes)])
    found["ok"], left = whole.ok, list(nodes)
    if not whole.ok:
        alone = yield Round("alone", [[node] for node in nodes])
        found["nodes"] = [node for node, result in zip(nodes, alone) if not result.ok]
        left = [node for node in nodes if node not in found["nodes"]]
    if len(left) > 2 or (len(left) == 2 and found["nodes"]):
        pairs = yield from _try_pairs(left, in_time, whole.ok or bool(found["nodes"]))
        yield from _look_twice(pairs)
        _blame(found, pairs)
    elif len(left) == 2 and not whole.ok:
        found["links"] = [left]
    blamed = {*found["nodes"], *(node for link in found["links"] for node in link[1:])}
    rest = [node for node in nodes if node not in blamed]
    if blamed and len(rest) > 1 and in_time():
        (again,) = yield Round("rest", [rest])
        found["rest"] = again.ok
    return found


def _try_pairs(
    left: List[int], in_time: Callable[[], bool], explained: bool
) -> Generator[Round, List[Result], Pairs]:
    """Try pairs until every node was in a few; where a failure is not explained yet, all pairs, or halves."""
    pairs: Pairs = {}
    for number, groups in enumerate(matchings(left)):
        enough = explained or not all(result.ok for result in pairs.values())
        if number and ((number >= ENOUGH and enough) or not in_time()):
            break
        results = yield Round("pairs", groups)
        pairs.update({(a, b): result for (a, b), result in zip(groups, results)})
    return pairs


def _look_twice(pairs: Pairs) -> Generator[Round, List[Result], None]:
    """Try again what looked slow: a moment's noise must not blame anybody."""
    nodes, links = slow_ones(pairs)
    doubtful = [pair for pair in pairs if pair in links or nodes & set(pair)]
    while doubtful:
        now = _disjoint(doubtful)
        results = yield Round("again", [list(pair) for pair in now])
        for pair, new in zip(now, results):
            old = pairs[pair]
            better = Result(True, max(old.bandwidth, new.bandwidth), min(old.latency, new.latency))
            pairs[pair] = better if old.ok and new.ok else new
        doubtful = [pair for pair in doubtful if pair not in now]


def _disjoint(pairs: Sequence[Pair]) -> List[Pair]:
    """Choose pairs that can be tried side by side."""
    chosen: List[Pair] = []
    for pair in pairs:
        if not any(node in other for other in chosen for node in pair):
            chosen.append(pair)
    return chosen


def _blame(found: Found, pairs: Pairs) -> None:
    bad = {pair for pair, result in pairs.items() if not result.ok}
    tried = {node: [pair for pair in pairs if node in pair] for pair in pairs for node in pair}
    sick = [node for node, own in sorted(tried.items()) if len(own) > 1 and bad.issuperset(own)]
    if len(sick) < len(tried):
        found["nodes"] = sorted([*found["nodes"], *sick])
    found["links"] = [list(pair) for pair in sorted(bad) if not set(pair) & set(found["nodes"])]
    nodes, links = slow_ones(pairs)
    found["slow_nodes"], found["slow_links"] = sorted(nodes), [list(pair) for pair in sorted(links)]


def matchings(nodes: Sequence[int]) -> Iterator[List[List[int]]]:
    """Give rounds of disjoint pairs in which, at the end, everybody has met everybody once."""
    seats: List[Any] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]))
        yield [sorted(pair) for pair in facing if None not in pair]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def slow_ones(pairs: Pairs) -> Tuple[Set[int], Set[Pair]]:
    """Find nodes that are slow with everybody, and links that are slow between nodes that are not."""
    good = {pair: result for pair, result in pairs.items() if result.ok}
    own = {node: [result for pair, result in good.items() if node in pair] for pair in good for node in pair}
    best = {node: _best(results) for node, results in own.items()}
    if len(best) < 3:
        return set(), set()
    usual = Result(
        True, median(one.bandwidth for one in best.values()), median(one.latency for one in best.values())
    )
    nodes = {node for node, one in best.items() if len(own[node]) > 1 and is_slow(one, usual)}
    links = {
        pair for pair, result in good.items() if not nodes & set(pair) and is_slow(result, _worse(best, pair))
    }
    return nodes, links


def _best(results: Sequence[Result]) -> Result:
    return Result(True, max(one.bandwidth for one in results), min(one.latency for one in results))


def _worse(best: Dict[int, Result], pair: Pair) -> Result:
    """Give what can be expected between two nodes: what the weaker of them can do."""
    a, b = best[pair[0]], best[pair[1]]
    return Result(True, min(a.bandwidth, b.bandwidth), max(a.latency, b.latency))


def is_slow(one: Result, usual: Result) -> bool:
    """Tell whether a result is clearly worse than the usual one."""
    late = one.latency > usual.latency * LATE and one.latency > usual.latency + LATE_BY
    return one.bandwidth < usual.bandwidth * SLOW or late
