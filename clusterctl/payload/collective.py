"""The job of `check --deep`: a real all_reduce of all nodes, and rounds of fewer nodes that show who is in the way.

torchrun starts it on every node. Rank 0 leads: it names a round's groups in the run's store, every rank of a group
takes part in a process of its own, which is killed at the round's limit, and tells there how it went. So a round that
hangs costs its limit, and nothing of it reaches into the next. Rank 0 writes a line of JSON per round, and at last
what it found; lines begin with MARK.

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
from typing import Any, Dict, List, NamedTuple

from .answers import LARGE, SIZES, Answer, judge, read_answer, read_groups, read_node, result_of
from .narrowing import Result, Round, search

MARK = "clusterctl-deep "
SPENT = 0.3  # seconds per size, about
LONGEST = {True: 3.0, False: 0.7}  # seconds that one all_reduce may be expected to take: of all, of fewer
MOST = 200  # repetitions
SOURCE = re.compile(r"^\[[^\]]*\.(?:cc|cpp|h):\d+\] ")  # where in Gloo's source, which says nothing to a user
TELLING = 3  # rows that tell enough, if time runs out in a larger one
PAIR_SHARE = 0.5  # of the limit of all, for a smaller group
AFTER = 3.0  # seconds that the leader waits beyond a round's limit
PATIENCE = timedelta(seconds=600)


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
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.store = open_store()
        self.store.set("rank/%d" % self.rank, os.environ["GROUP_RANK"])

    def follow(self) -> None:
        """Take part until the leader says that it is over."""
        number = 0
        while True:
            self.store.wait(["round/%d" % number], PATIENCE)
            wanted = read_groups(self.store.get("round/%d" % number), self.size)
            if not wanted:
                return
            self.take_part(number, wanted)
            number += 1

    def take_part(self, number: int, wanted: List[List[int]]) -> None:
        """Join the group that this rank is in, if any, and tell how it went."""
        mine = next((place for place, ranks in enumerate(wanted) if self.rank in ranks), None)
        if mine is not None:
            answer = self._try(number, mine, wanted[mine])
            self.store.set("answer/%d/%d" % (number, self.rank), json.dumps(answer))
            self.store.add("answers/%d" % number, 1)

    def time_for(self, ranks: int) -> float:
        """Give a round's limit for a group of so many ranks."""
        return self.limit if ranks == self.size else max(3.0, self.limit * PAIR_SHARE)

    def _try(self, number: int, place: int, ranks: List[int]) -> Answer:
        """Do it in a process of its own; what it says last counts."""
        limit = self.time_for(len(ranks))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            key = "group/%d/%d" % (number, place)
            longest = LONGEST[len(ranks) == self.size]
            speak_and_exit(
                writer, Part(self.backend, key, ranks.index(self.rank), len(ranks), limit, longest)
            )
        os.close(writer)
        answer = hear(reader, limit)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return answer


class Leader:
    """Rank 0: carries out the search, and tells each round's story on stdout."""

    def __init__(self, worker: Worker, budget: float) -> None:
        self._worker, self._until = worker, time.monotonic() + budget
        keys = ["rank/%d" % rank for rank in range(worker.size)]
        worker.store.wait(keys, PATIENCE)
        self._nodes = [read_node(worker.store.get(key), worker.size) for key in keys]
        self._ranks: Dict[int, List[int]] = {}
        for rank, node in enumerate(self._nodes):
            self._ranks.setdefault(node, []).append(rank)

    def lead(self) -> None:
        """Go through the rounds; a bug of ours here must still let the others go."""
        number = 0
        try:
            steps = search(sorted(self._ranks), lambda: time.monotonic() < self._until)
            step = next(steps)
            while True:
                results = self._round(number, step)
                number += 1
                step = steps.send(results)
        except StopIteration as end:
            say({"found": end.value})
        finally:
            self._worker.store.set("round/%d" % number, "null")

    def _round(self, number: int, step: Round) -> List[Result]:
        began = time.monotonic()
        wanted = [[rank for node in nodes for rank in self._ranks[node]] for nodes in step.groups]
        self._worker.store.set("round/%d" % number, json.dumps(wanted))
        self._worker.take_part(number, wanted)
        answers = self._gather(number, wanted, began)
        groups = [judge([answers.get(rank) for rank in ranks], ranks) for ranks in wanted]
        for group in groups:
            group["at"] = None if group["rank"] is None else self._nodes[group["rank"]]
        sizes = [len(ranks) for ranks in wanted]
        told = [{"nodes": n, "ranks": size, **group} for n, size, group in zip(step.groups, sizes, groups)]
        say({"round": step.kind, "seconds": round(time.monotonic() - began, 2), "groups": told})
        return [result_of(group, size) for group, size in zip(groups, sizes)]

    def _gather(self, number: int, wanted: List[List[int]], began: float) -> Dict[int, Answer]:
        ranks = [rank for group in wanted for rank in group]
        limit = began + max(self._worker.time_for(len(group)) for group in wanted) + AFTER
        store = self._worker.store
        while store.add("answers/%d" % number, 0) < len(ranks) and time.monotonic() < limit:
            time.sleep(0.01)
        there = [rank for rank in ranks if store.check(["answer/%d/%d" % (number, rank)])]
        return {rank: read_answer(store.get("answer/%d/%d" % (number, rank))) for rank in there}


def say(entry: Answer) -> None:
    """Tell the one who asked."""
    print(MARK + json.dumps(entry), flush=True)


def open_store() -> Any:
    """Connect to the store that torchrun keeps on node 0."""
    from torch.distributed import PrefixStore, TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, PATIENCE)
    return PrefixStore("clusterctl-deep", store)


def hear(reader: int, limit: float) -> Answer:
    """Hear what a process says until it ends, or its time is over; the last complete line is the answer."""
    deadline, text = time.monotonic() + limit, b""
    while time.monotonic() < deadline:
        if select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(reader, 65536)
            if not piece:
                break
            text += piece
    lines = text.split(b"\n")[:-1]
    answer: Answer = json.loads(lines[-1].decode()) if lines else {"at": "start", "rows": []}
    late = time.monotonic() >= deadline
    if "at" in answer and not (late and len(answer["rows"]) >= TELLING):
        what = "no end of `%s` within %g s" if late else "the process died in `%s` (limit %g s)"
        answer["error"], answer["late"] = what % (answer["at"], limit), late
    return answer


class Part(NamedTuple):
    """What one process does: its place in a group of `size`, the seconds for all, and for one all_reduce."""

    backend: str
    key: str
    place: int
    size: int
    limit: float
    longest: float


def speak_and_exit(writer: int, part: Part) -> None:
    """Take part in one collective after the other, and say how far it got; never returns."""
    try:
        told = measure(writer, part)
    except BaseException as error:  # whatever it is, the leader shall hear of it
        lines = SOURCE.sub("", str(error).strip()).splitlines() or [type(error).__name__]
        told = {"error": lines[0][:300], "late": "imed out" in lines[0], "rows": []}
    tell(writer, told)
    os._exit(0)


def tell(writer: int, answer: Answer) -> None:
    """Write a line for the parent."""
    os.write(writer, json.dumps(answer).encode() + b"\n")


def measure(writer: int, part: Part) -> Answer:
    """Form the group and measure all_reduce: the first row of `rows` is the latency, [bytes, seconds]."""
    began = time.monotonic()
    tell(writer, {"at": "connecting", "rows": []})
    bench = join(part)
    told: Answer = {
        "wrong": not bench.is_right(1000),
        "joined": round(time.monotonic() - began, 3),
        "rows": [],
    }
    for length in SIZES + (LARGE if part.backend == "nccl" else ()):
        rows = told["rows"]
        if len(rows) >= 2 and rows[-1][1] * length / rows[-1][0] > part.longest:
            break
        tell(writer, {"at": "all_reduce of %d bytes" % length, **told})
        told["wrong"] = not bench.is_right(length // 4) or told["wrong"]
        rows.append([length, bench.time(length // 4)])
    return told


def join(part: Part) -> Bench:
    """Form the process group; Gloo's own patience ends a little before ours, because its error says more."""
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if part.backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    waits = (
        part.limit - 1.0 if device.type == "cpu" else 2 * part.limit
    )  # NCCL's own end is an abort without words
    patience = timedelta(seconds=max(1.0, waits))
    store = dist.PrefixStore(part.key, open_store())
    dist.init_process_group(
        part.backend, store=store, rank=part.place, world_size=part.size, timeout=patience
    )
    return Bench(device, part.place, part.size)


class Bench:
    """all_reduce on one device, checked and timed."""

    def __init__(self, device: Any, place: int, size: int) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._device, self._place, self._size = device, place, size

    def is_right(self, count: int) -> bool:
        """Add up small whole numbers, which float32 does without rounding; every place has another sum."""
        torch = self._torch
        pattern = torch.arange(count, device=self._device, dtype=torch.float32) % 61
        mine = pattern * (self._place + 1)
        self._dist.all_reduce(mine)
        return bool(torch.equal(mine, pattern * (self._size * (self._size + 1) // 2)))

    def time(self, count: int) -> float:
        """Give the seconds of one all_reduce: the quickest of several, and of all ranks the slowest's."""
        data = self._torch.zeros(count, device=self._device)
        first = self._agree(self._once(data))
        times = [self._once(data) for _ in range(min(MOST, int(SPENT / max(first, 1e-6))))]
        return self._agree(min([*times, first]))

    def _once(self, data: Any) -> float:
        began = time.perf_counter()
        self._dist.all_reduce(data)
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()
        return time.perf_counter() - began

    def _agree(self, seconds: float) -> float:
        told = self._torch.tensor([seconds], device=self._device, dtype=self._torch.float64)
        self._dist.all_reduce(told, op=self._dist.ReduceOp.MAX)
        return float(told.item())


if __name__ == "__main__":
    main()
