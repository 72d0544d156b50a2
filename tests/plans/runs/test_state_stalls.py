"""What the signs of life of a run mean, and how they look."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.console.run.status import MAX_LINES, activity_to_json, render_last_lines, render_timing
from clusterctl.plans.runs.rows import list_node_rows
from clusterctl.plans.runs.state import (
    NodeState,
    RankActivity,
    find_stall,
    find_stalls,
    measure_remaining,
    measure_start_skew,
    parse_activity,
    parse_state,
)
from clusterctl.protocol.untrusted import Untrusted

NOW = 10_000.0


def part(pulses: dict[str, Any], **more: Any) -> NodeState:
    """Build a node's living part."""
    return parse_state(Untrusted({"run": "r", "state": "RUNNING", "activity": pulses, **more}))


@pytest.mark.parametrize(
    ("pulse", "why"),
    [
        (RankActivity(0, "x", NOW - 5, "S"), ""),
        (RankActivity(0, "x", NOW - 599, "R"), ""),
        (RankActivity(0, "x", NOW - 750, "R"), "no output for 12m30s"),
        (RankActivity(0, "x", NOW - 5, "D"), ""),
        (RankActivity(0, "x", NOW - 45, "D"), "waits in the kernel (state D), no output for 45 s"),
        (RankActivity(0, "", None, "S"), ""),
        (RankActivity(0, "x", NOW + 50, "S"), ""),
    ],
)
def test_a_rank_that_writes_nothing(pulse: RankActivity, why: str) -> None:
    """Ten minutes of silence, or half a minute in the kernel."""
    assert find_stall(pulse, NOW) == why


def test_clocks_are_corrected() -> None:
    """A node whose clock is an hour ahead neither stalls nor began late nor has less time left."""
    ahead = {"written": NOW + 3600 - 10, "process": "S", "line": "x", "started": NOW + 3600 - 60.02}
    there = {"written": NOW - 10, "process": "S", "line": "x", "started": NOW - 60}
    limit = {"time_limit": 3600.0}
    parts = {
        "a": part({"0": there}, began=NOW - 50, **limit),
        "b": part({"1": ahead}, began=NOW + 3600 - 50, **limit),
    }
    offsets = {"a": 0.0, "b": 3600.0}

    assert find_stalls(parts, offsets, NOW) == {}
    assert measure_start_skew(parts, offsets) == pytest.approx(0.02)
    assert measure_remaining(parts, offsets, NOW) == pytest.approx(3550.0)
    assert render_timing(parts, offsets, NOW) == "time limit 1h, 59m10s left; ranks started within 0.02 s"
    assert set(find_stalls(parts, {"b": -3600.0}, NOW)) == set()
    assert set(find_stalls(parts, {"a": 3600.0}, NOW)) == {"a"}


def test_what_is_not_known_is_not_reported() -> None:
    """No limit, one rank, a node that did not answer, a run that has ended."""
    assert render_timing({"a": part({"0": {"started": 1.0}}), "b": None}, {}, NOW) == ""
    assert measure_remaining({"a": part({}, time_limit=5.0)}, {}, NOW) is None
    ended = parse_state(Untrusted({"state": "TIMEOUT", "began": 1.0, "time_limit": 5.0}))
    assert render_timing({"a": ended}, {}, NOW) == "time limit 5 s"


def test_last_lines() -> None:
    """In the order of the ranks, without control characters, and of very many only some."""
    many = {
        "b": part({"10": {"line": "\x1b[31mloss 0.3"}}),
        "a": part({"9": {"line": "loss 0.2"}, "8": {"line": ""}}),
    }
    crowd = {"a": part({str(rank): {"line": "x"} for rank in range(MAX_LINES + 4)})}

    assert list(render_last_lines(many)) == ["a r9  | loss 0.2", "b r10 | loss 0.3"]
    assert list(render_last_lines(crowd))[-1] == "and 4 more ranks; --json has all"


def test_pulses_as_json() -> None:
    """Times by our clock; nulls where a rank is gone."""
    assert activity_to_json(RankActivity(3, "x", NOW - 700 + 60, "S", 1.0), 60.0, NOW) == {
        "process": "S",
        "last_line": "x",
        "written": NOW - 700,
        "stalled": "no output for 11m40s",
    }
    assert set(activity_to_json(None, 0.0, NOW).values()) == {None}


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "x",
        {"x": {}},
        {"1": 5},
        {"99999999999": {}},
        {"1": {"line": 5, "written": "x", "process": []}},
    ],
)
def test_a_node_may_say_anything(raw: Any) -> None:
    """Nothing raises, nothing of the wrong type stays."""
    assert parse_activity(Untrusted({"activity": raw}), 9) in ((), (RankActivity(1),))


def test_a_halted_process_is_in_the_note_of_its_node() -> None:
    """With the command that continues it, as long as the run lives; what no node of ours writes is left out."""
    facts = [
        {"process": "torchrun", "pid": 4711},
        {"process": "sh -c", "pid": 1},
        {"process": "agent", "pid": "1;"},
    ]
    living = part({}, node="gpu02", halted=facts)
    ended = parse_state(Untrusted({"run": "r", "state": "FAILED", "node": "gpu02", "halted": facts}))
    notes = [
        list_node_rows({"gpu02": each}, find_stalls({"gpu02": each}, {}, NOW), None, str)[0].note
        for each in (living, ended)
    ]

    assert [halted.process for halted in living.halted] == ["torchrun"]
    assert notes == [
        "torchrun is halted (SIGSTOP, pid 4711); to continue it: clusterctl exec --nodes gpu02 -- kill -CONT 4711",
        "",
    ]
