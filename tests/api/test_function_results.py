"""Results come from the logs of nodes, which may hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from clusterctl.api.results import MARK, MAX_TOTAL, Results
from clusterctl.console.documents.runs import LogLine
from clusterctl.errors import ClusterctlError


def line(text: str, rank: int | None = 0, node: str = "gpu01", attempt: int = 1) -> LogLine:
    """Make a line of a log."""
    return cast("LogLine", {"node": node, "rank": rank, "attempt": attempt, "stream": "stdout", "line": text})


def read(lines: Sequence[LogLine]) -> list[Any]:
    """Return the results of a run that wrote these lines."""
    results = Results()
    for entry in lines:
        results.feed(entry)
    return results.values("run-1", max((entry["attempt"] for entry in lines), default=1))


def test_pieces_are_put_together_in_the_order_of_the_ranks() -> None:
    """Lines of several ranks come mixed; text before a result on its line belongs to the job."""
    lines = [
        line(f"{MARK}json 0 2 2 [1,", 1, "gpu02"),
        line(f"loss 0.1{MARK}json 0 1 2 null", 0),
        line(f"{MARK}json 1 2 2 2]", 1, "gpu02"),
    ]

    assert read(lines) == [None, [1, 2]]


def test_only_the_last_attempt_counts() -> None:
    """A run that was restarted has results of its last attempt alone."""
    lines = [
        line(f"{MARK}json 0 1 2 1", 0),
        line(f"{MARK}json 0 1 1 2", 0, attempt=2),
        line(f"{MARK}json 0 1 2 3", 1),
    ]

    assert read(lines) == [2]


HOSTILE = [
    ([], "rank 0 has returned nothing"),
    ([line(f"{MARK}json 0 1 3 1")], "rank 1 has returned nothing"),
    (
        [line(f'{MARK}unwritable 0 1 1 "Tensor"')],
        "rank 0 on gpu01: the result cannot be written as JSON: Tensor",
    ),
    ([line(f"{MARK}large 0 1 1 2000000")], "rank 0 on gpu01: the result has 2000000 characters"),
    (
        [line(f"{MARK}json 0 1 1 1"), line(f"{MARK}json 0 1 1 2", 0, "gpu02")],
        "rank 0 on gpu01, gpu02: more than one",
    ),
    ([line(f"{MARK}json 0 1 1 1"), line(f"{MARK}json 0 1 1 1")], "is not as a rank writes it"),
    ([line(f"{MARK}json 1 2 1 1")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 2 1 1")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 1 {{")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 1 1e999")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 1 " + "[" * 100_000)], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 1 [" + "0," * 600_000 + "0]")], "is not as a rank writes it"),
    ([line(f"{MARK}shell 0 1 1 1")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 0 1")], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 1 1"), line(f"{MARK}json 0 1 1 1", 7)], "is not as a rank writes it"),
    ([line(f"{MARK}json 0 1 999999 1")], "rank 1 has returned nothing"),
]


def test_a_node_cannot_name_the_attempt() -> None:
    """Results of an attempt that the run did not have replace none."""
    results = Results()
    for entry in (line(f"{MARK}json 0 1 1 1"), line(f"{MARK}json 0 1 1 6", 0, "gpu02", attempt=7)):
        results.feed(entry)
    assert results.values("run-1", 1) == [1]


def test_ranks_share_the_number_of_values() -> None:
    """One may return more than its part; all together may not."""
    large = "[" + "0," * 400_000 + "0]"
    assert len(read([line(f"{MARK}json 0 1 2 {large}"), line(f"{MARK}json 0 1 2 1", 1)])[0]) == 400_001
    with pytest.raises(ClusterctlError, match="more than 1000000 values"):
        read([line(f"{MARK}json 0 1 3 {large}", rank) for rank in range(3)])


@pytest.mark.parametrize(("lines", "text"), HOSTILE)
def test_what_no_rank_of_ours_writes_is_an_error(lines: list[LogLine], text: str) -> None:
    """It names the rank and the node, and no value of it is returned."""
    with pytest.raises(ClusterctlError) as raised:
        read(lines)
    assert (raised.value.code, text in raised.value.message) == ("CC-RUN-061", True), raised.value.message


def test_all_results_together_are_bounded() -> None:
    """Nodes that send without end cost no memory beyond the limit."""
    results, text = Results(), "x" * 60_000
    for rank in range(MAX_TOTAL // len(text) + 2):
        results.feed(line(f"{MARK}json 0 2 2000 {text}", rank))

    with pytest.raises(ClusterctlError, match="more than 64 MiB"):
        results.values("run-1", 1)
