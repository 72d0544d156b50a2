"""Checkpoints that nodes report: which node's word counts, what is shown of them, and what is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.plans.runs.checkpoints import describe_checkpoints, describe_event, parse_checkpoints
from clusterctl.plans.runs.state import NodeState, find_checkpoints, find_resumed, parse_state
from clusterctl.protocol.untrusted import Untrusted

NOW = 1000.0


def entry(name: str, state: str = "safe", **facts: Any) -> dict[str, Any]:
    """Return one checkpoint as a node's state.json has it."""
    whole = {"attempt": 1, "nodes": 4, "of": 4, "copies": 2, "files": 8, "bytes": 9000, "time": NOW - 40}
    return {"name": name, "state": state, "shared": False, "note": "", **whole, **facts}


def shown(*entries: dict[str, Any]) -> str:
    """Return what is shown of what a node reports."""
    return describe_checkpoints(parse_checkpoints(Untrusted({"checkpoints": list(entries)})), NOW)


def part(*entries: dict[str, Any], **facts: Any) -> NodeState:
    """Return a node's part of a run."""
    return parse_state(Untrusted({"state": "RUNNING", "checkpoints": list(entries), **facts}))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([entry("step-300")], "step-300: 4/4 nodes, 2 copies, 40 s ago"),
        ([entry("step-200"), entry("step-300", time=NOW)], "step-300: 4/4 nodes, 2 copies, 0 s ago"),
        (
            [entry("step-200"), entry("step-300", "copying", copies=1, time=NOW - 3)],
            "step-300: 4/4 nodes, 1 copy so far, 3 s ago; step-200: 4/4 nodes, 2 copies, 40 s ago",
        ),
        (
            [entry("step-300", "collecting", nodes=1, time=0)],
            "step-300: 1/4 nodes have all of their files",
        ),
        (
            [entry("step-200"), entry("step-300", "lost")],
            "step-300 is lost; step-200: 4/4 nodes, 2 copies, 40 s ago",
        ),
        ([entry("step-200", "lost"), entry("step-300", "lost")], "step-200, step-300 are lost; none is safe"),
        (
            [entry("step-200"), entry("step-300", "skipped", note="step-200 is being copied")],
            "step-200: 4/4 nodes, 2 copies, 40 s ago; step-300 was skipped: step-200 is being copied",
        ),
        ([entry("step-300", shared=True)], "step-300: 4/4 nodes, which share its files, 40 s ago"),
        ([entry("x", "burnt"), {"state": "safe"}, 7], ""),
        ([], ""),
    ],
)
def test_the_newest_checkpoint_and_the_one_that_is_safe_are_shown(entries: list[Any], text: str) -> None:
    """One line for what a restart would resume from, and what is on its way; an entry without name or state is none."""
    assert shown(*entries) == text


def test_of_several_nodes_the_one_that_saw_the_latest_checkpoint_counts() -> None:
    """The hub has them first; its times are moved to our clock."""
    parts = {
        "gpu01": part(entry("step-200", time=500.0)),
        "gpu02": part(entry("step-200", time=500.0), entry("step-300", "copying", time=900.0)),
        "gpu03": None,
    }
    newest = find_checkpoints(parts, {"gpu02": 100.0})

    assert [(checkpoint.name, checkpoint.time) for checkpoint in newest] == [
        ("step-200", 400.0),
        ("step-300", 800.0),
    ]
    assert find_checkpoints({"gpu03": None}) == ()


def test_the_hub_is_believed_about_copies_and_no_clock_makes_a_checkpoint_newer() -> None:
    """A peer writes a seal down after the hub; one that is behind may have a clock that is ahead."""
    peer = part(
        entry("step-2", number=2, time=500.1), entry("step-3", "copying", copies=0, number=3, time=560.1)
    )
    hub = part(
        entry("step-2", number=2, time=500.0, hub=True),
        entry("step-3", "copying", copies=1, number=3, time=560.0, hub=True),
    )
    skipping = part(
        entry("step-2", number=2, time=500.0, hub=True),
        entry("step-3", "skipped", time=0.0, note="its files changed", hub=True),
    )
    behind = part(entry("step-2", number=2, time=9e6))
    for parts, text in (
        ({"gpu01": hub, "gpu02": peer}, "step-3: 4/4 nodes, 1 copy so far, 7m20s ago"),
        ({"gpu01": behind, "gpu02": skipping}, "step-3 was skipped: its files changed"),
        ({"gpu01": behind, "gpu02": peer}, "step-3: 4/4 nodes, 0 copies so far, 7m20s ago"),
    ):
        assert text in describe_checkpoints(find_checkpoints(parts), NOW)


def test_the_checkpoint_of_the_latest_attempt_is_what_it_resumed_from() -> None:
    """A node that is still at an earlier attempt does not count."""
    parts = {
        "gpu01": part(attempt=1, resumed="step-100"),
        "gpu02": part(attempt=2, resumed="step-200"),
        "gpu03": part(attempt=2),
    }
    assert find_resumed(parts) == "step-200"
    assert find_resumed({"gpu01": part()}) == ""


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"event": "checkpoint", "name": "step-3", "state": "safe", "of": 4, "copies": 2, "bytes": 12e8},
            ("checkpoint step-3 is safe: 4 nodes, 2 copies, 0 bytes", False),
        ),
        (
            {"event": "checkpoint", "name": "step-3", "state": "lost", "note": "step-2 is safe"},
            ("checkpoint step-3 is lost: step-2 is safe", True),
        ),
        (
            {"event": "checkpoint", "name": "step-3", "state": "skipped"},
            ("checkpoint step-3 was skipped", True),
        ),
        ({"event": "checkpoint", "name": "step-3", "state": "copying"}, ("", True)),
        (
            {"event": "checkpoint", "name": "step-3", "state": "copying", "copies": 1, "note": "no room"},
            ("checkpoint step-3 has 1 copy: no room", True),
        ),
        (
            {"event": "checkpoint", "name": "step-3", "note": "No space left on device"},
            ("No space left on device", True),
        ),
        (
            {"event": "resume", "name": "step-3", "files": 3, "bytes": 2_500_000, "seconds": 2.0},
            ("resumes from checkpoint step-3: 3 files (2.5 MB) in 2.0 s", False),
        ),
        (
            {"event": "resume", "name": "step-3", "files": 0},
            ("resumes from checkpoint step-3, whose files are all here", False),
        ),
        ({"event": "stopping", "name": "step-3", "note": "x"}, ("", False)),
    ],
)
def test_events_of_checkpoints_are_told_in_words(event: dict[str, Any], expected: tuple[str, bool]) -> None:
    """For `launch` and the report alike; a size that is no whole number is not believed."""
    text, bad = describe_event(Untrusted(event))

    assert (text, bad if text else expected[1]) == expected
