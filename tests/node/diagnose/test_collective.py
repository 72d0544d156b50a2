"""The parts of the deep check's job that need no torch: hearing a process out, and judging a group."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from waiting import HANG

from clusterctl.node.diagnose.collective import (
    merge_answers,
    read_answer,
    read_groups,
    read_node,
    receive_answer,
    to_result,
)

ROWS = [[8, 0.0002], [65536, 0.0005], [1048576, 0.002]]


def receive(*said: dict[str, Any], limit: float = HANG, ends: bool = True) -> dict[str, Any]:
    """Hear lines out of a pipe."""
    reader, writer = os.pipe()
    os.write(writer, b"".join(json.dumps(line).encode() + b"\n" for line in said))
    if ends:
        os.close(writer)
    answer = receive_answer(reader, limit)
    os.close(reader)
    if not ends:
        os.close(writer)
    return answer


def test_the_last_word_counts() -> None:
    """What it said on the way is forgotten."""
    assert receive({"at": "connecting", "rows": []}, {"rows": ROWS, "wrong": False})["rows"] == ROWS


def test_a_process_that_hangs_costs_its_limit() -> None:
    """It is said in what it hangs; rows that it has are kept, if they tell enough."""
    answer = receive({"at": "connecting", "rows": []}, limit=0.2, ends=False)
    assert answer["error"] == "`connecting` did not finish within 0.2 s" and answer["late"]
    assert "error" not in receive({"at": "all_reduce of 16777216 bytes", "rows": ROWS}, limit=0.1, ends=False)


def test_a_process_that_dies() -> None:
    """A crash is no result, whatever was measured before."""
    assert "exited during `all_reduce" in receive({"at": "all_reduce of 64 bytes", "rows": ROWS})["error"]
    assert "exited during `start`" in receive()["error"]


def test_a_complaint_stands_before_those_who_only_waited() -> None:
    """Who ran out of time is not blamed while somebody says what is wrong."""
    late = {"error": "Timed out waiting 9000ms", "late": True, "rows": []}
    result = merge_answers([late, {"error": "CUDA error: out of memory", "late": False, "rows": []}], [0, 1])
    assert (result.ok, result.rank, result.error) == (False, 1, "CUDA error: out of memory")
    silent = merge_answers([None, late], [4, 5])
    assert (silent.rank, silent.error) == (4, "no answer")


def test_a_wrong_sum_is_a_failure() -> None:
    """Quick and wrong is not good."""
    good = {"rows": ROWS, "wrong": False, "joined": 0.1}
    result = merge_answers([good, {**good, "wrong": True}], [0, 1])
    assert (result.ok, result.rank, result.error) == (False, 1, "got a wrong sum")
    assert not to_result(result, 2).ok
    assert to_result(merge_answers([good, good], [0, 1]), 2) == (True, 1048576 / 0.002, 0.0002)


def test_what_other_ranks_answer_is_read_in_bounds() -> None:
    """An honest answer is read whole; any other is an error of that rank, and no number of it is computed with."""
    whole = {"wrong": False, "joined": 0.1, "rows": ROWS}
    assert read_answer(json.dumps(whole).encode()) == whole
    failed = {"error": "CUDA error", "late": False, "rows": []}
    assert read_answer(json.dumps(failed).encode()) == failed
    for text in (
        b"", b"[]", b"{}", b"[" * 5000, b'{"rows": [[8, 0]], "joined": 1, "wrong": false}',
        b'{"rows": [[8, 1e999]], "joined": 1, "wrong": false}', b'{"rows": 5, "joined": 1, "wrong": false}',
        json.dumps({**whole, "joined": "soon"}).encode(), json.dumps({**whole, "rows": [[10**30, 1]]}).encode(),
        b" " * (1 << 20),
    ):  # fmt: skip
        answer = read_answer(text)
        assert answer["error"]
        assert not to_result(merge_answers([answer, whole], [0, 1]), 2).ok
    assert read_answer(json.dumps({**whole, "rows": ROWS * 50}).encode())["rows"] == (ROWS * 50)[:5]
    assert len(read_answer(json.dumps({"error": "x" * 5000}).encode())["error"]) == 300


def test_groups_that_cannot_be_are_none() -> None:
    """A rank takes part in what is a set of groups of this job's ranks; null and anything else is the end."""
    assert read_groups(b"[[0, 1], [2]]", 3) == [[0, 1], [2]]
    for text in (
        b"null",
        b"5",
        b"[[0, 0]]",
        b"[[0], [0]]",
        b"[[3]]",
        b"[[-1]]",
        b'[["0"]]',
        b"[" * 9999,
        b"[[1e99]]",
    ):
        assert not any(read_groups(text, 3))
    assert read_node(b"2", 3) == 2
    for text in (b"3", b"-1", b"x", b"", b"9" * 99):
        with pytest.raises(SystemExit):
            read_node(text, 3)
