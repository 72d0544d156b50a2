"""What nodes have kept of a run that stalled or was ended: one sentence, and nothing hostile gets through."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.plans.diagnose.kept import (
    STALL,
    TIME_LIMIT,
    judge_kept,
    kept_to_json,
    parse_kept,
    render_kept,
)
from clusterctl.protocol.untrusted import Untrusted

WAITS = 'Current thread 0x1 (most recent call first):\n  File "/w/train.py", line 12 in <module>\n'
LOADS = (
    'Thread 0x1 (most recent call first):\n  File "/w/train.py", line 4 in load_batch\n'
    '  File "/w/train.py", line 9 in <module>\n'
)


def kept(rank: int, stack: str, entries: list[list[Any]], **more: Any) -> Any:
    """Write what a node with one rank has kept."""
    group = {"name": "0", "about": "default_pg", "members": "", "entries": entries}
    row = {"rank": rank, "pid": 7, "problem": "", "process": "S", "stack": 0, "groups": [group]}
    diagnosis = {"ranks": [row], "stacks": [stack], "code": "/w/", "took": 0.1, "time": 1000.0}
    return {"why": STALL, "time": 1000.0, "since": 400.0, "diagnosis": diagnosis, **more}


def entry(number: int, age: float, *, over: bool) -> list[Any]:
    """Write a collective."""
    return [number, None, "gloo:all_reduce", "[[1]]", "Float", over, age]


NODES = {
    "gpu01": kept(0, WAITS, [entry(3, 602.0, over=True), entry(4, 601.0, over=False)]),
    "gpu02": kept(1, LOADS, [entry(3, 602.0, over=True)]),
}


def test_it_names_who_was_where() -> None:
    """The rank that the others waited for, and since when nothing moved."""
    parsed = [parse_kept(Untrusted(raw), name) for name, raw in NODES.items()]
    found = judge_kept([each for each in parsed if each is not None], [], 2)
    assert found is not None
    when, where = found.summary.split(", ")
    assert when == "when no rank had made progress for 10m"
    assert where == "rank 1 (gpu02) was at train.py:4 in load_batch()"
    first, sentence, fix = render_kept(found)
    assert first == found.summary and sentence.endswith("(CC-HANG-004)") and fix.startswith("next: ")
    document = kept_to_json(found)
    assert (document["why"], document["seconds"], document["suspects"]) == (STALL, 600.0, [1])


@pytest.mark.parametrize(("since", "code"), [(998.0, "CC-HANG-004"), (None, "CC-HANG-009")])
def test_a_short_stall_is_one_where_the_job_says_so(since: float | None, code: str) -> None:
    """A job with a limit of 2 s is not called healthy 3 s after its last collective; before a stop it is."""
    nodes = {
        "gpu01": kept(0, WAITS, [entry(3, 3.1, over=True), entry(4, 3.0, over=False)], since=since),
        "gpu02": kept(1, LOADS, [entry(3, 3.1, over=True)], since=since),
    }
    parsed = [parse_kept(Untrusted(raw), name) for name, raw in nodes.items()]
    found = judge_kept([each for each in parsed if each is not None], [], 2)
    assert found is not None and found.judgement.code == code


def test_before_a_time_limit_progress_is_no_news() -> None:
    """A run that got on until its time was up has no cause but the limit."""
    raw = kept(0, WAITS, [entry(4, 0.1, over=True)], why=TIME_LIMIT, since=None)
    parsed = parse_kept(Untrusted(raw), "gpu01")
    assert parsed is not None and parsed.seconds is None
    found = judge_kept([parsed], [], 1)
    assert found is not None and not found.judgement.hangs
    assert render_kept(found) == []


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        {"why": "because", "time": 1.0},
        {"why": STALL, "time": "now"},
        {"why": [STALL], "time": 1.0},
        {"why": STALL, "time": -1e30},
    ],
)
def test_what_is_no_evidence_is_none(raw: Any) -> None:
    """So it is where nothing was kept."""
    assert parse_kept(Untrusted(raw if raw is not None else {}), "gpu01") is None
    assert judge_kept([], ["gpu01"], 2) is None


def test_hostile_evidence_is_bounded() -> None:
    """A moment before time began, and a diagnosis that is none."""
    parsed = parse_kept(Untrusted({"why": STALL, "time": 5.0, "since": 9.0, "diagnosis": [1]}), "gpu01")
    assert parsed is not None and (parsed.seconds, parsed.evidence.ranks) == (0.0, ())
    found = judge_kept([parsed], [], None)
    assert found is not None and "an unknown line" in found.summary


@pytest.mark.parametrize(("why", "code"), [(STALL, "CC-HANG-007"), (TIME_LIMIT, "CC-HANG-010")])
def test_only_a_stall_is_judged_by_one_look_at_stacks(why: str, code: str) -> None:
    """A run that was ended while it worked has ranks at different lines, too."""
    raw = [kept(number, LOADS if number else WAITS, [], why=why) for number in range(4)]
    for each in raw:
        each["diagnosis"]["ranks"][0].update(groups=[], silent=60.0)
    parsed = [parse_kept(Untrusted(each), f"gpu{number}") for number, each in enumerate(raw)]
    found = judge_kept([each for each in parsed if each is not None], [], 4)
    assert found is not None and found.judgement.code == code
