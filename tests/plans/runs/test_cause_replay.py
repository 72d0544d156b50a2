"""Recorded failures of real runs, replayed in every order of arrival: the same rank is named each time."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ends import cause_of, judge

from clusterctl.plans.runs.verdict import verdict_to_json
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.tracebacks import StderrParser

CASES = sorted((Path(__file__).parents[1] / "cases" / "causes").glob("*.json"))
NODES = ("gpu01", "gpu02", "gpu03")
DELAYS = tuple(itertools.permutations((0.0, 0.15, 0.3)))  # seconds that a node's lines take to us
ORDERS = tuple(itertools.permutations(range(3)))
TIMED = {"three-at-once"}  # all fail by themselves: only the time sends the first


def replay(heard: Sequence[Any], delays: Sequence[float]) -> tuple[list[list[Failure]], float | None]:
    """Return the failures of three nodes from what was recorded; each node notices its lines later by its delay."""
    delay = dict(zip(NODES, delays, strict=True))
    parsers: dict[tuple[str, int], StderrParser] = {}
    ends: dict[str, list[Failure]] = {node: [] for node in NODES}
    stops: dict[str, float] = {}
    for time, node, *reported in sorted(heard, key=lambda each: each[0]):
        if len(reported) == 2:
            rank, line = reported
            parsers.setdefault((node, rank), StderrParser()).feed(line, time + delay[node])
        elif reported[0] == "stopping":
            stops.setdefault(node, time)
        else:
            kind, rank, code, number = reported
            killed = kind == "torchrun_exited" and number is not None and node not in stops and not ends[node]
            reason = f"torchrun was killed by {signal_name(number)}" if killed else ""
            if killed or kind == "rank_exited":
                ends[node].append(Failure(node, rank, code, number, time, reason=reason))
    failures = [[_with_words(end, parsers, stops.get(node)) for end in ends[node]] for node in NODES]
    return failures, min(stops.values(), default=None)


def _with_words(
    end: Failure, parsers: Mapping[tuple[str, int], StderrParser], stopped_at: float | None
) -> Failure:
    after_stop = stopped_at is not None and end.time >= stopped_at
    words = parsers.get((end.node, end.rank)) if end.rank is not None else None
    if words is None:
        return replace(end, after_stop=after_stop)
    return replace(
        end,
        tail=tuple(words.tail),
        exception=words.exception,
        message=words.message,
        raised_at=words.raised_at,
        origin=words.origin,
        where=words.where,
        own_frame=words.own_frame,
        survived=words.survived,
        after_stop=after_stop,
    )


def arrivals(name: str, heard: Sequence[Any]) -> Iterator[tuple[list[Failure], float | None]]:
    """Give the failures in every order, with every delay, and with the moments of the deaths exchanged."""
    for delays in DELAYS if name not in TIMED else ((0.0, 0.0, 0.0),):
        parts, stopped_at = replay(heard, delays)
        for order in ORDERS:
            yield [each for place in order for each in parts[place]], stopped_at
    changed = [tell_afterwards(heard), *(exchange_deaths(heard) if name not in TIMED else ())]
    for said in changed:
        parts, stopped_at = replay(said, (0.0, 0.0, 0.0))
        yield [each for part in parts for each in part], stopped_at


def tell_afterwards(heard: Sequence[Any]) -> list[Any]:
    """Let all of a rank's lines have the time of its last one, as for someone who attaches when all is over."""
    last = {(each[1], each[2]): each[0] for each in heard if len(each) == 4}
    return [[last[each[1], each[2]], *each[1:]] if len(each) == 4 else each for each in heard]


def exchange_deaths(heard: Sequence[Any]) -> Iterator[list[Any]]:
    """Let those who ended by themselves end in every other order."""
    places = [
        at
        for at, each in enumerate(heard)
        if each[2] == "rank_exited" and each[-1] not in (9, 15) and each[-2] != 0
    ]
    for times in itertools.permutations([heard[at][0] for at in places]):
        changed = list(heard)
        for at, time in zip(places, times, strict=True):
            changed[at] = [time, *heard[at][1:]]
        yield changed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_whatever_comes_first_the_right_rank_is_named(case: Path) -> None:
    """Node, rank, words and code are right, in every order of arrival and of death."""
    content = json.loads(case.read_text(encoding="utf-8"))
    expected: Mapping[str, Any] = content["expected"]
    for failures, stopped_at in arrivals(case.stem, content["heard"]):
        reported: Any = verdict_to_json(judge("r", {}, failures, stopped_at=stopped_at))["cause"]

        assert (reported["node"], reported["rank"]) == (f"gpu0{expected['rank'] + 1}", expected["rank"])
        assert re.search(expected["said"], f"{reported['exception']} {reported['ending']}")
        assert re.fullmatch(expected["code"], reported["code"] or "")


def say(rank: int, *lines: str, time: float, code: int | None = 1, by: int | None = None) -> list[Any]:
    """Give what a rank reports and how it ends, as it is recorded."""
    node = f"gpu0{rank + 1}"
    words = [[time, node, rank, line] for line in lines]
    return [*words, [time + 0.2, node, "rank_exited", rank, None if by else code, by]]


TRACEBACK = "[rank{0}]: Traceback (most recent call last):"
PEER = "[rank{0}]: RuntimeError: [pair.cc:537] Connection closed by peer [10.0.0.2]:4242"
WATCHDOG = (
    "[rank{0}]:[E1121 12:00:00 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600044 milliseconds "
    "before timing out.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
)
NCCL_GONE = (
    TRACEBACK,
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
    "remote process exited or there was a network error, NCCL version 2.21.5",
    "[rank{0}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.",
)
ASSERTED = (
    TRACEBACK,
    "[rank{0}]: RuntimeError: CUDA error: device-side assert triggered",
    "[rank{0}]:[E1121 12:00:00 ProcessGroupNCCL.cpp:1414] [PG 0 Rank {0}] Process group watchdog thread terminated "
    "with exception: CUDA error: device-side assert triggered",
)


def stop_all(time: float, *, by: int | None = None, ranks: Sequence[int] = ()) -> list[Any]:
    """Give our stop on all nodes, and the ranks that it ended."""
    ended = [[time + 0.05, f"gpu0{rank + 1}", "rank_exited", rank, None, by] for rank in ranks]
    return [*([time, node, "stopping", None, None, None] for node in NODES), *ended]


def texts(rank: int, lines: Sequence[str]) -> list[str]:
    """Fill in the rank."""
    return [line.replace("{0}", str(rank)) for line in lines]


def written(name: str) -> tuple[list[Any], int, str]:
    """Give what is received in a case that needs GPUs, from the texts that NCCL and CUDA have in their sources."""
    if name == "nccl watchdog":
        waiting = [each for rank in (0, 2) for each in say(rank, *texts(rank, WATCHDOG), time=1.0, by=6)]
        return [*waiting, *stop_all(1.25, by=15, ranks=[1])], 1, "CC-JOB-050"
    if name == "device assert":
        gone = [each for rank in (0, 2) for each in say(rank, *texts(rank, NCCL_GONE), time=1.0)]
        return [*gone, *say(1, *texts(1, ASSERTED), time=1.1, by=6), *stop_all(1.3)], 1, "CC-JOB-002"
    if name == "fallen off":
        lost = (
            TRACEBACK,
            "[rank{0}]: RuntimeError: Unable to determine the device handle for GPU0000:3B:00.0",
        )
        gone = [each for rank in (0, 1) for each in say(rank, *texts(rank, NCCL_GONE), time=1.0)]
        return [*gone, *say(2, *texts(2, lost), time=1.2), *stop_all(1.4)], 2, "CC-JOB-005"
    full = (TRACEBACK, "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    gone = [each for rank in (1, 2) for each in say(rank, *texts(rank, (TRACEBACK, PEER)), time=1.0)]
    return [*gone, *say(0, *texts(0, full), time=1.1), *stop_all(1.3)], 0, "CC-JOB-001"


@pytest.mark.parametrize("name", ["nccl watchdog", "device assert", "fallen off", "out of memory"])
def test_texts_of_gpus_name_the_right_rank(name: str) -> None:
    """With NCCL the culprit of a timeout is the rank that does not report one; a GPU's own error beats what follows."""
    heard, rank, code = written(name)
    for failures, stopped_at in arrivals(name, heard):
        cause = cause_of(failures, stopped_at)

        assert (cause.failure.rank, cause.symptom_match and cause.symptom_match.symptom.code) == (rank, code)


def test_a_killed_torchrun_is_the_cause_and_not_what_we_ended_for_it() -> None:
    """Its node's rank is ended by us a second later, as all others are."""
    heard = [
        [10.0, "gpu02", "torchrun_exited", None, None, 9],
        *[[10.02, node, "stopping", None, None, None] for node in ("gpu01", "gpu03")],
        *[[11.02, f"gpu0{rank + 1}", "rank_exited", rank, None, 9] for rank in range(3)],
    ]
    parts, stopped_at = replay(heard, (0.0, 0.0, 0.0))
    cause = cause_of([each for part in parts for each in part], stopped_at)

    assert (cause.failure.node, cause.failure.reason) == ("gpu02", "torchrun was killed by SIGKILL")
    assert len(cause.ended) == 3
