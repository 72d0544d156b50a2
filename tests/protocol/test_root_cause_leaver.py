"""Who left first, where the others only complain of closed connections: the client and the nodes name the same rank."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from ends import read_record, recorded_cause

from clusterctl.node.gang.attempts import judge_record
from clusterctl.protocol.root_cause import RankEnd, find_leavers

TERM, KILL = signal.SIGTERM, signal.SIGKILL
RAISED = "Traceback (most recent call last):"


class Rank(NamedTuple):
    """How one rank ended: `lost` is the node of the peer that its Gloo error names, `said` when it wrote that."""

    exit: int | None
    time: float
    lost: int | None = None
    said: float = 0.0
    signal: int | None = None


def words(lost: int, said: float) -> dict[str, Any]:
    """Give what Gloo reports when a peer on that node closes its connection."""
    gone = (
        f"RuntimeError: [pair.cc:553] Connection closed by peer [10.77.0.{lost + 1}]:30374. This is typically"
    )
    return {
        "tracebacks": [{"at": said, "lines": [f"[rank0]: {RAISED}", '  File "t.py"', f"[rank0]: {gone}"]}]
    }


def record_of(
    nodes: Sequence[Sequence[Rank]], stops: Mapping[int, float], *, addresses: bool = True
) -> dict[str, Any]:
    """Write the nodes' record of a run: the ranks of each node, and when each node was ordered to stop."""
    parts, number = [], 0
    for place, ranks in enumerate(nodes):
        failures = []
        for rank in ranks:
            end = {"rank": number, "exit": rank.exit, "signal": rank.signal, "time": rank.time}
            said = words(rank.lost, rank.said) if rank.lost is not None else {"tracebacks": []}
            failures.append(
                {**end, "last_at": rank.said or rank.time, "tail": [], "suspended": False, **said}
            )
            number += 1
        about = {"node": f"gpu0{place + 1}", "node_rank": place, "state": "FAILED", "reason": "why"}
        where = {"address": f"10.77.0.{place + 1}"} if addresses else {}
        parts.append({**about, **where, "time": 640.0, "stopped_at": stops.get(place), "failures": failures})
    return {"run": "r", "hub": "gpu01", "whole": True, "stop": None, "parts": parts}


def name_cause(record: dict[str, Any]) -> tuple[str, int | None, str]:
    """Give the node, the rank and the code that the client shows."""
    cause = recorded_cause(read_record(record))
    return (
        cause.failure.node,
        cause.failure.rank,
        cause.symptom_match.symptom.code if cause.symptom_match else "",
    )


def three(culprit: int, end: Rank, *others: Rank) -> list[list[Rank]]:
    """Put one rank on each of three nodes."""
    nodes = [[rank] for rank in others]
    return [*nodes[:culprit], [end], *nodes[culprit:]]


# As recorded: rank 2 closed its group, and its process ended more than a second after the others' tracebacks.
STOPS = {0: 633.45, 1: 633.45, 2: 633.45}
SILENT = Rank(None, 633.50, signal=TERM)  # in an atexit handler when the stop came


def case(name: str, nodes: list[list[Rank]], stops: Mapping[int, float], expected: int) -> Any:
    """Give a case that is named by its first word; `expected` is the rank to blame."""
    return pytest.param(nodes, stops, expected, id=name)


CASES = [
    *(
        case(
            f"rank {culprit} exits with 0 long after the tracebacks of the others",
            three(
                culprit,
                Rank(0, 633.38),
                Rank(1, 633.44, culprit, 631.90),
                Rank(1, 633.44, culprit, 631.95),
            ),
            STOPS,
            culprit,
        )
        for culprit in range(3)
    ),
    *(
        case(
            f"rank {culprit} sleeps in atexit and is ended by our stop",
            three(culprit, SILENT, Rank(1, 633.44, culprit, 631.90), Rank(1, 633.44, culprit, 631.95)),
            STOPS,
            culprit,
        )
        for culprit in range(3)
    ),
    case(
        "the second victim names the first, whose node complains itself",
        three(2, SILENT, Rank(None, 633.49, 1, 632.93, TERM), Rank(1, 633.44, 2, 632.62)),
        {0: 633.45, 2: 633.45},
        2,
    ),
    case(
        "the peer that was ended before it could complain is not on the node that is named",
        three(2, SILENT, Rank(None, 633.49, signal=TERM), Rank(1, 633.44, 2, 632.62)),
        {0: 633.45, 2: 633.45},
        2,
    ),
    case(
        "it ignores TERM and is killed after the grace",
        three(
            1, Rank(None, 635.5, signal=KILL), Rank(1, 633.44, 1, 632.62), Rank(None, 633.5, 1, 632.7, TERM)
        ),
        {0: 633.45, 1: 633.45, 2: 633.45},
        1,
    ),
    case(
        "2 nodes with 2 ranks each: rank 3 ends with 0 after its neighbour's traceback",
        [
            [Rank(1, 633.44, 1, 632.0), Rank(None, 633.5, signal=TERM)],
            [Rank(None, 633.49, 1, 632.1, TERM), Rank(0, 633.40)],
        ],
        {1: 633.45},
        3,
    ),
    case(
        "2 nodes with 2 ranks each: torchrun ends rank 0, which sleeps, after its neighbour's failure",
        [
            [Rank(None, 633.52, signal=TERM), Rank(1, 633.44, 0, 632.0)],
            [Rank(1, 633.47, 0, 632.1), Rank(None, 633.55, signal=TERM)],
        ],
        {1: 633.45},
        0,
    ),
]


@pytest.mark.parametrize(("nodes", "stops", "expected"), CASES)
def test_the_rank_that_left_early_is_named(
    nodes: list[list[Rank]], stops: Mapping[int, float], expected: int
) -> None:
    """With 0, or asleep in its clean-up when the stop comes: it is the cause, and no reason to start again."""
    record = record_of(nodes, stops)
    node = f"gpu0{expected // len(nodes[0]) + 1}"
    found = judge_record(record)

    assert name_cause(record) == (node, expected, "CC-JOB-053")
    assert (found.reason, found.node) == ("code", node)
    assert f"rank {expected} on {node} left" in found.text


@pytest.mark.parametrize("addresses", [True, False])
def test_a_single_silent_rank_is_meant_without_addresses_too(addresses: bool) -> None:
    """Where everybody but one complains of a closed connection, it is that one."""
    nodes = three(1, SILENT, Rank(1, 633.44, 1, 632.0), Rank(1, 633.44, 1, 632.0))
    record = record_of(nodes, STOPS, addresses=addresses)

    assert name_cause(record) == ("gpu02", 1, "CC-JOB-053")


UNDECIDED = [
    pytest.param(
        three(2, SILENT, Rank(1, 633.44, 1, 632.0), Rank(1, 633.44, 0, 632.0)),
        STOPS,
        id="the two that complain name each other",
    ),
    pytest.param(
        three(2, Rank(0, 600.0), Rank(1, 633.44, 1, 632.0), Rank(1, 633.44, 0, 632.0)),
        STOPS,
        id="the one that ended with 0 is named by nobody, though all complain",
    ),
    pytest.param(
        three(2, SILENT, Rank(1, 634.44, 2, 634.4), Rank(1, 634.44, 2, 634.4)),
        STOPS,
        id="they complain only after the stop",
    ),
    pytest.param(
        three(2, Rank(0, 633.9), Rank(1, 634.44, 2, 634.4), Rank(1, 634.44, 2, 634.4)),
        STOPS,
        id="it ends with 0 because it was asked to",
    ),
]


@pytest.mark.parametrize(("nodes", "stops"), UNDECIDED)
def test_no_rank_is_blamed_without_evidence(nodes: list[list[Rank]], stops: Mapping[int, float]) -> None:
    """Then the first to complain is shown, and the nodes take it for the network's fault."""
    record = record_of(nodes, stops)

    assert name_cause(record)[1:] == (0, "CC-JOB-052")
    assert judge_record(record).reason == "network"


def test_of_several_silent_ranks_on_the_named_node_none_is_chosen() -> None:
    """The first to complain is shown, with those that it may have meant."""
    nodes = [[Rank(1, 633.44, 1, 632.0), Rank(1, 633.44, 1, 632.0)], [SILENT, SILENT]]
    cause = recorded_cause(read_record(record_of(nodes, {1: 633.45})))

    assert (cause.failure.rank, [one.rank for one in cause.silent]) == (0, [2, 3])


def test_a_rank_that_another_process_ended_with_term_is_named() -> None:
    """Its node had not been ordered to stop; its end made all others stop, whatever the clocks."""
    nodes = three(1, Rank(None, 633.449, signal=TERM), SILENT, Rank(None, 633.50, 1, 633.43, TERM))
    record = record_of(nodes, {0: 633.45, 2: 633.45})

    assert name_cause(record) == ("gpu02", 1, "CC-JOB-045")
    assert judge_record(record)[:2] == ("worker_killed", "gpu02")


def test_one_that_left_goes_before_one_that_was_only_waited_for() -> None:
    """NCCL's peers wait for a rank that has ended; one that does nothing but wait as well is innocent."""
    waiting = {"lines": [RAISED, "RuntimeError: Timed out waiting 4000ms for recv operation"], "at": 632.0}
    record = record_of(three(2, Rank(0, 600.0), Rank(1, 633.44), SILENT), STOPS)
    record["parts"][0]["failures"][0]["tracebacks"] = [waiting]

    assert name_cause(record) == ("gpu03", 2, "CC-JOB-053")
    assert judge_record(record)[:2] == ("code", "gpu03")


LOCAL = (
    "[t.cc] recv failed on SocketImpl(fd=6, addr=[10.77.0.1]:52026, remote=[10.77.0.3]:29500): reset by peer"
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Read error [10.77.0.3]:30374: Connection reset by peer", {"gpu03"}),
        ("Read error [fd00::3]:30374: Connection reset by peer", {"six"}),
        (LOCAL, {"gpu03"}),
        ("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] closed by peer 10.77.0.3", set()),
        ("closed by peer [10.77.0.31]:4242, []", set()),
    ],
)
def test_the_peers_address_is_read(text: str, named: set[str]) -> None:
    """The whole address counts, and not the complaining rank's own; an unknown address of a node is none."""
    addresses = {"gpu01": "10.77.0.1", "gpu03": "10.77.0.3", "six": "fd00::3", "unknown": ""}
    ranks = [RankEnd("gpu01", 1.0, complaint=text)]
    ranks += [RankEnd(node, 2.0, silent=True) for node in addresses]
    found = {ranks[place].node for place in find_leavers(ranks, addresses)}

    assert found == named
