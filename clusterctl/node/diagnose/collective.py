"""The job of `check --deep`: a real all_reduce of all nodes, and rounds of fewer nodes that show who is in the way.

torchrun starts it on every node. Rank 0 leads: it names a round's groups in the run's store, every rank of a group
takes part in a process of its own, which is killed at the round's limit, and writes there how it went. So a round that
hangs costs its limit, and nothing of it reaches into the next. Rank 0 writes a line of JSON per round, and at last
what it found; lines begin with MARK. Every rank may write anything into the store: what is read is bounded, and a wrong
answer is an error of the rank that gave it.

A round is a kind and disjoint groups of nodes, tried side by side; a result is how one group fared. `search` decides
which groups come next, and who is to blame, without clock or network: it yields rounds, is sent their results, and
returns what it found.

arguments: backend, seconds for one round of all, seconds for all rounds
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from datetime import timedelta
from statistics import median
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generator,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ...protocol.messages.checks import GroupResult, RoundEntry, SearchReport
from ...protocol.messages.record import to_json
from ...protocol.ranks import NodeRank, Rank
from ...protocol.untrusted import MalformedError, Row, Untrusted, parse_json, parse_object

if TYPE_CHECKING:
    from ...protocol.messages.network import AnyEntry, RankProgress

ENOUGH_ROUNDS = 3  # rounds of pairs that show a bad node; a bad link between two good ones may take more
SLOW_FRACTION = 0.4  # of the usual bandwidth
LATENCY_FACTOR, LATENCY_MARGIN = 5.0, 0.002  # times the usual latency, and seconds above it
SIZES = (8, 64 << 10, 1 << 20, 16 << 20)  # bytes
LARGE_SIZES = (128 << 20,)  # with NCCL
MAX_ANSWER = 64 << 10  # bytes
BYTES_PER_RANK = 16  # of JSON, in the list of a round's groups
MAX_ERROR = 300  # characters
MIN_TIME, MAX_TIME = 1e-9, 1e6  # seconds
MARK = "clusterctl-deep "
SECONDS_PER_SIZE = 0.3  # seconds per size, about
# seconds that one all_reduce may be expected to take: of all, of fewer
MAX_ALL_REDUCE = {True: 3.0, False: 0.7}
MAX_REPETITIONS = 200
# where in Gloo's source, which means nothing to a user
SOURCE_PREFIX = re.compile(r"^\[[^\]]*\.(?:cc|cpp|h):\d+\] ")
ENOUGH_ROWS = 3  # rows that are enough, if time runs out in a larger one
SMALL_GROUP_SHARE = 0.5  # of the limit of all, for a smaller group
ANSWER_GRACE = 3.0  # seconds that the leader waits beyond a round's limit
STORE_TIMEOUT = timedelta(seconds=600)


class Round(NamedTuple):
    """Groups of nodes that are tried at the same time."""

    kind: str
    groups: List[List[NodeRank]]


class Result(NamedTuple):
    """How a group fared: bandwidth in bytes/s, latency in s; both 0 if it failed."""

    ok: bool
    bandwidth: float = 0.0
    latency: float = 0.0


Pair = Tuple[NodeRank, NodeRank]
Pairs = Dict[Pair, Result]


def search(
    nodes: Sequence[NodeRank], has_time: Callable[[], bool]
) -> Generator[Round, List[Result], SearchReport]:
    """Try all nodes, then what distinguishes them; `has_time` is whether there is time for another round."""
    (all_result,) = yield Round("all", [list(nodes)])
    report, remaining = SearchReport(ok=all_result.ok), list(nodes)
    if not all_result.ok:
        single_results = yield Round("alone", [[node] for node in nodes])
        bad_nodes = tuple(node for node, result in zip(nodes, single_results) if not result.ok)
        report, remaining = report.replace(nodes=bad_nodes), [node for node in nodes if node not in bad_nodes]
    if len(remaining) > 2 or (len(remaining) == 2 and report.nodes):
        pairs = yield from _try_pairs(remaining, has_time, all_result.ok or bool(report.nodes))
        yield from _retry_slow(pairs)
        report = _add_bad(report, pairs)
    elif len(remaining) == 2 and not all_result.ok:
        report = report.replace(links=(tuple(remaining),))
    blamed = {*report.nodes, *(node for link in report.links for node in link[1:])}
    healthy = [node for node in nodes if node not in blamed]
    if blamed and len(healthy) > 1 and has_time():
        (recheck,) = yield Round("rest", [healthy])
        report = report.replace(rest=recheck.ok)
    return report


def _try_pairs(
    nodes: List[NodeRank], has_time: Callable[[], bool], explained: bool
) -> Generator[Round, List[Result], Pairs]:
    """Try pairs until every node was in a few; where a failure is not explained yet, all pairs, or halves."""
    pairs: Pairs = {}
    for number, groups in enumerate(matchings(nodes)):
        enough = explained or not all(result.ok for result in pairs.values())
        if number and ((number >= ENOUGH_ROUNDS and enough) or not has_time()):
            break
        results = yield Round("pairs", groups)
        pairs.update({(a, b): result for (a, b), result in zip(groups, results)})
    return pairs


def _retry_slow(pairs: Pairs) -> Generator[Round, List[Result], None]:
    """Try again what looked slow: a moment's noise must not blame anybody."""
    nodes, links = find_slow(pairs)
    doubtful = [pair for pair in pairs if pair in links or nodes & set(pair)]
    while doubtful:
        batch = _disjoint(doubtful)
        results = yield Round("again", [list(pair) for pair in batch])
        for pair, new in zip(batch, results):
            old = pairs[pair]
            better = Result(True, max(old.bandwidth, new.bandwidth), min(old.latency, new.latency))
            pairs[pair] = better if old.ok and new.ok else new
        doubtful = [pair for pair in doubtful if pair not in batch]


def _disjoint(pairs: Sequence[Pair]) -> List[Pair]:
    """Choose pairs that can be tried side by side."""
    chosen: List[Pair] = []
    for pair in pairs:
        if not any(node in other for other in chosen for node in pair):
            chosen.append(pair)
    return chosen


def _add_bad(report: SearchReport, pairs: Pairs) -> SearchReport:
    failed = {pair for pair, result in pairs.items() if not result.ok}
    tried = {node: [pair for pair in pairs if node in pair] for pair in pairs for node in pair}
    bad_nodes = [
        node
        for node, node_pairs in sorted(tried.items())
        if len(node_pairs) > 1 and failed.issuperset(node_pairs)
    ]
    blamed = sorted([*report.nodes, *(bad_nodes if len(bad_nodes) < len(tried) else [])])
    slow_nodes, slow_links = find_slow(pairs)
    return report.replace(
        nodes=tuple(blamed),
        links=tuple(pair for pair in sorted(failed) if not set(pair) & set(blamed)),
        slow_nodes=tuple(sorted(slow_nodes)),
        slow_links=tuple(sorted(slow_links)),
    )


def matchings(nodes: Sequence[NodeRank]) -> Iterator[List[List[NodeRank]]]:
    """Yield rounds of disjoint pairs in which, at the end, everybody has met everybody once."""
    order: List[Any] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(order) - 1):
        half = len(order) // 2
        pairs = zip(order[:half], reversed(order[half:]))
        yield [sorted(pair) for pair in pairs if None not in pair]
        order = [order[0], order[-1], *order[1:-1]]


def find_slow(pairs: Pairs) -> Tuple[Set[NodeRank], Set[Pair]]:
    """Find nodes that are slow with everybody, and links that are slow between nodes that are not."""
    good = {pair: result for pair, result in pairs.items() if result.ok}
    node_results = {
        node: [result for pair, result in good.items() if node in pair] for pair in good for node in pair
    }
    best = {node: _best(results) for node, results in node_results.items()}
    if len(best) < 3:
        return set(), set()
    usual = Result(
        True,
        median(result.bandwidth for result in best.values()),
        median(result.latency for result in best.values()),
    )
    nodes = {node for node, result in best.items() if len(node_results[node]) > 1 and is_slow(result, usual)}
    links = {
        pair for pair, result in good.items() if not nodes & set(pair) and is_slow(result, _worse(best, pair))
    }
    return nodes, links


def _best(results: Sequence[Result]) -> Result:
    return Result(
        True, max(result.bandwidth for result in results), min(result.latency for result in results)
    )


def _worse(best: Dict[NodeRank, Result], pair: Pair) -> Result:
    """Return what can be expected between two nodes: what the weaker of them can do."""
    a, b = best[pair[0]], best[pair[1]]
    return Result(True, min(a.bandwidth, b.bandwidth), max(a.latency, b.latency))


def is_slow(result: Result, usual: Result) -> bool:
    """Return whether a result is clearly worse than the usual one."""
    high_latency = (
        result.latency > usual.latency * LATENCY_FACTOR and result.latency > usual.latency + LATENCY_MARGIN
    )
    return result.bandwidth < usual.bandwidth * SLOW_FRACTION or high_latency


def read_groups(text: bytes, size: int) -> List[List[Rank]]:
    """Read the groups of a round, which rank 0 has named; none at the end, and where it names what cannot be."""
    try:
        message = Untrusted({"groups": parse_json(text, size * BYTES_PER_RANK + MAX_ANSWER)})
    except MalformedError:
        return []
    groups = [
        [Rank(number) for number in row.integers(size, 0, size - 1)] for row in message.rows("groups", size)
    ]
    ranks = [rank for group in groups for rank in group]
    return groups if len(set(ranks)) == len(ranks) else []


def read_node(text: bytes, size: int) -> NodeRank:
    """Read on which node a rank is."""
    number = text.decode("ascii", "replace")
    if not (number.isdecimal() and len(number) < 10 and int(number) < size):
        raise SystemExit("a rank does not report its node")
    return NodeRank(int(number))


def read_answer(text: bytes) -> RankProgress:
    """Read how it went on another rank; what it leaves out, or sends wrongly, is an error of that rank."""
    try:
        message = parse_object(text, MAX_ANSWER)
    except MalformedError as error:
        return {"error": "its answer cannot be read: %s" % error, "rows": []}
    rows = [read_row(row) for row in message.rows("rows", len(SIZES + LARGE_SIZES))]
    answer: RankProgress = {"rows": [row for row in rows if row is not None]}
    if message.text("error"):
        answer["error"], answer["late"] = message.text("error", MAX_ERROR), message.flag("late")
        return answer
    joined = message.number("joined", 0.0, MAX_TIME)
    if not answer["rows"] or joined is None or message.choice("wrong") is None:
        return {"error": "its answer is incomplete", "rows": []}
    answer["wrong"], answer["joined"] = message.flag("wrong"), joined
    return answer


def read_row(row: Row) -> Optional[List[float]]:
    """Read one measurement: bytes, and seconds for them."""
    size, seconds = row.integer(0, 1, max(LARGE_SIZES)), row.number(1, MIN_TIME, MAX_TIME)
    return None if size is None or seconds is None else [size, seconds]


def merge_answers(answers: List[Optional[RankProgress]], ranks: List[Rank]) -> GroupResult:
    """Make of the ranks' answers that of their group; the first complaint stands for all."""
    silent = [rank for rank, answer in zip(ranks, answers) if answer is None]
    failed = [(rank, answer) for rank, answer in zip(ranks, answers) if answer and answer.get("error")]
    wrong = [rank for rank, answer in zip(ranks, answers) if answer and answer.get("wrong")]
    if silent:
        return GroupResult(rank=silent[0], error="no answer")
    if failed:
        rank, answer = next((entry for entry in failed if not entry[1].get("late")), failed[0])
        return GroupResult(rank=rank, error=answer["error"])
    first = answers[0] or {}
    blamed, error = (wrong[0], "got a wrong sum") if wrong else (None, "")
    rows = tuple(map(tuple, first["rows"]))
    return GroupResult(ok=not wrong, rank=blamed, error=error, rows=rows, joined=first["joined"])


def to_result(group: GroupResult, rank_count: int) -> Result:
    """Reduce a group's answer to what the search looks at."""
    if not group.ok:
        return Result(False)
    factor = 2.0 * (rank_count - 1) / rank_count if rank_count > 1 else 1.0
    return Result(True, max(factor * size / seconds for size, seconds in group.rows), group.latency)


def main() -> None:
    """Lead or follow until the search is over."""
    import torch  # noqa: F401 - loaded before processes are made, so that each of them has it at once

    backend, limit, budget = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    worker = Worker(backend, limit)
    if worker.rank == 0:
        Leader(worker, budget).lead()
    else:
        worker.follow()


class Worker:
    """One rank: takes part in the rounds that the leader names."""

    def __init__(self, backend: str, limit: float) -> None:
        self.backend, self.limit = backend, limit
        self.rank, self.size = Rank(int(os.environ["RANK"])), int(os.environ["WORLD_SIZE"])
        self.store = open_store()
        self.store.set("rank/%d" % self.rank, os.environ["GROUP_RANK"])

    def follow(self) -> None:
        """Take part until the leader reports the end."""
        number = 0
        while True:
            self.store.wait(["round/%d" % number], STORE_TIMEOUT)
            groups = read_groups(self.store.get("round/%d" % number), self.size)
            if not groups:
                return
            self.participate(number, groups)
            number += 1

    def participate(self, number: int, groups: List[List[Rank]]) -> None:
        """Join the group that this rank is in, if any, and report how it went."""
        group_index = next((index for index, ranks in enumerate(groups) if self.rank in ranks), None)
        if group_index is not None:
            answer = self._run_participant(number, group_index, groups[group_index])
            self.store.set("answer/%d/%d" % (number, self.rank), json.dumps(answer))
            self.store.add("answers/%d" % number, 1)

    def limit_for(self, rank_count: int) -> float:
        """Return a round's limit for a group of so many ranks."""
        return self.limit if rank_count == self.size else max(3.0, self.limit * SMALL_GROUP_SHARE)

    def _run_participant(self, number: int, group_index: int, ranks: List[Rank]) -> RankProgress:
        """Run it in a child process; its last report counts."""
        limit = self.limit_for(len(ranks))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            key = "group/%d/%d" % (number, group_index)
            longest = MAX_ALL_REDUCE[len(ranks) == self.size]
            measure_and_exit(
                writer, Participant(self.backend, key, ranks.index(self.rank), len(ranks), limit, longest)
            )
        os.close(writer)
        answer = receive_answer(reader, limit)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return answer


class Leader:
    """Rank 0: carries out the search, and reports each round on stdout."""

    def __init__(self, worker: Worker, budget: float) -> None:
        self._worker, self._deadline = worker, time.monotonic() + budget
        keys = ["rank/%d" % rank for rank in range(worker.size)]
        worker.store.wait(keys, STORE_TIMEOUT)
        self._nodes = [read_node(worker.store.get(key), worker.size) for key in keys]
        self._ranks: Dict[NodeRank, List[Rank]] = {}
        for rank, node in enumerate(self._nodes):
            self._ranks.setdefault(node, []).append(Rank(rank))

    def lead(self) -> None:
        """Go through the rounds; a bug of ours here must still let the others go."""
        number = 0
        try:
            steps = search(sorted(self._ranks), lambda: time.monotonic() < self._deadline)
            step = next(steps)
            while True:
                results = self._run_round(number, step)
                number += 1
                step = steps.send(results)
        except StopIteration as end:
            write_entry({"found": end.value})
        finally:
            self._worker.store.set("round/%d" % number, "null")

    def _run_round(self, number: int, step: Round) -> List[Result]:
        began = time.monotonic()
        groups = [[rank for node in nodes for rank in self._ranks[node]] for nodes in step.groups]
        self._worker.store.set("round/%d" % number, json.dumps(groups))
        self._worker.participate(number, groups)
        answers = self._gather(number, groups, began)
        results = [merge_answers([answers.get(rank) for rank in ranks], ranks) for ranks in groups]
        group_results = tuple(
            result.replace(
                nodes=tuple(nodes),
                ranks=len(ranks),
                at=None if result.rank is None else self._nodes[result.rank],
            )
            for nodes, ranks, result in zip(step.groups, groups, results)
        )
        write_entry(
            RoundEntry(round=step.kind, seconds=round(time.monotonic() - began, 2), groups=group_results)
        )
        return [to_result(result, len(ranks)) for result, ranks in zip(results, groups)]

    def _gather(self, number: int, groups: List[List[Rank]], began: float) -> Dict[Rank, RankProgress]:
        ranks = [rank for group in groups for rank in group]
        limit = began + max(self._worker.limit_for(len(group)) for group in groups) + ANSWER_GRACE
        store = self._worker.store
        while store.add("answers/%d" % number, 0) < len(ranks) and time.monotonic() < limit:
            time.sleep(0.01)
        answered = [rank for rank in ranks if store.check(["answer/%d/%d" % (number, rank)])]
        return {rank: read_answer(store.get("answer/%d/%d" % (number, rank))) for rank in answered}


def write_entry(entry: AnyEntry) -> None:
    """Write the answer for the process that asked."""
    print(MARK + json.dumps(to_json(entry)), flush=True)


def open_store() -> Any:
    """Connect to the store that torchrun keeps on node 0."""
    from torch.distributed import PrefixStore, TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, STORE_TIMEOUT)
    return PrefixStore("clusterctl-deep", store)


def receive_answer(reader: int, limit: float) -> RankProgress:
    """Read what a process reports until it ends, or its time is over; the last complete line is the answer."""
    deadline, text = time.monotonic() + limit, b""
    while time.monotonic() < deadline:
        if select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(reader, 65536)
            if not chunk:
                break
            text += chunk
    lines = text.split(b"\n")[:-1]
    answer: RankProgress = json.loads(lines[-1].decode()) if lines else {"at": "start", "rows": []}
    timed_out = time.monotonic() >= deadline
    if "at" in answer and not (timed_out and len(answer["rows"]) >= ENOUGH_ROWS):
        template = (
            "`%s` did not finish within %g s" if timed_out else "the process exited during `%s` (limit %g s)"
        )
        answer["error"], answer["late"] = template % (answer["at"], limit), timed_out
    return answer


class Participant:
    """One process's place in a group, and all_reduce on its device, checked and timed."""

    def __init__(
        self, backend: str, key: str, group_rank: int, group_size: int, limit: float, longest: float
    ) -> None:
        """Take note of the seconds for all, and for one all_reduce."""
        self.backend, self.longest = backend, longest
        self._key, self._group_rank, self._group_size = key, group_rank, group_size
        self._limit = limit

    def join(self) -> None:
        """Form the process group; Gloo's own patience ends a little before ours, because its error has more detail."""
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._device = torch.device("cpu")
        if self.backend == "nccl":
            self._device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self._device)
        # NCCL's own end is an abort without words
        seconds = self._limit - 1.0 if self._device.type == "cpu" else 2 * self._limit
        dist.init_process_group(
            self.backend,
            store=dist.PrefixStore(self._key, open_store()),
            rank=self._group_rank,
            world_size=self._group_size,
            timeout=timedelta(seconds=max(1.0, seconds)),
        )

    def is_correct(self, count: int) -> bool:
        """Add up small whole numbers, which float32 does without rounding; every place has another sum."""
        torch = self._torch
        pattern = torch.arange(count, device=self._device, dtype=torch.float32) % 61
        data = pattern * (self._group_rank + 1)
        self._dist.all_reduce(data)
        return bool(torch.equal(data, pattern * (self._group_size * (self._group_size + 1) // 2)))

    def time(self, count: int) -> float:
        """Return the seconds of one all_reduce: the quickest of several, and of all ranks the slowest's."""
        data = self._torch.zeros(count, device=self._device)
        first = self._max_over_ranks(self._time_once(data))
        times = [
            self._time_once(data)
            for _ in range(min(MAX_REPETITIONS, int(SECONDS_PER_SIZE / max(first, 1e-6))))
        ]
        return self._max_over_ranks(min([*times, first]))

    def _time_once(self, data: Any) -> float:
        began = time.perf_counter()
        self._dist.all_reduce(data)
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()
        return time.perf_counter() - began

    def _max_over_ranks(self, seconds: float) -> float:
        slowest = self._torch.tensor([seconds], device=self._device, dtype=self._torch.float64)
        self._dist.all_reduce(slowest, op=self._dist.ReduceOp.MAX)
        return float(slowest.item())


def measure_and_exit(writer: int, participant: Participant) -> None:
    """Take part in one collective after the other, and say how far it got; never returns."""
    try:
        answer = measure(writer, participant)
    except BaseException as error:  # whatever it is, the leader must get it
        lines = SOURCE_PREFIX.sub("", str(error).strip()).splitlines() or [type(error).__name__]
        answer = {"error": lines[0][:300], "late": "imed out" in lines[0], "rows": []}
    send_answer(writer, answer)
    os._exit(0)


def send_answer(writer: int, answer: RankProgress) -> None:
    """Write a line for the parent."""
    os.write(writer, json.dumps(answer).encode() + b"\n")


def measure(writer: int, participant: Participant) -> RankProgress:
    """Form the group and measure all_reduce: the first row of `rows` is the latency, [bytes, seconds]."""
    began = time.monotonic()
    send_answer(writer, {"at": "connecting", "rows": []})
    participant.join()
    answer: RankProgress = {
        "wrong": not participant.is_correct(1000),
        "joined": round(time.monotonic() - began, 3),
        "rows": [],
    }
    for length in SIZES + (LARGE_SIZES if participant.backend == "nccl" else ()):
        rows = answer["rows"]
        if len(rows) >= 2 and rows[-1][1] * length / rows[-1][0] > participant.longest:
            break
        step = "all_reduce of %d bytes" % length
        send_answer(writer, {"at": step, **answer})
        answer["wrong"] = not participant.is_correct(length // 4) or answer["wrong"]
        rows.append([length, participant.time(length // 4)])
    return answer


if __name__ == "__main__":
    main()
