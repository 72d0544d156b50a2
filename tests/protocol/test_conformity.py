"""The comparison that every frame of a node goes through in the tests (support/conformity.py) refuses what differs."""

from __future__ import annotations

from typing import Any

import pytest
from conformity import frame_problems

LISTED = {"listed": 3, "more": False, "mark": "m", "workdir_id": "p", "outside": None}
RECORD = {"run": "r", "hub": "gpu01", "attempt": 1, "whole": True, "state": "", "stop": None, "parts": []}
ENTRY: dict[str, Any] = {"pid": 7, "starttime": 9, "exit": None, "signal": None}


@pytest.mark.parametrize(
    ("verb", "header"),
    [
        ("files", LISTED),
        ("follow", {"positions": {"a": 1}}),
        ("stop", {"event": {"time": 1, "event": "ended", "left": [{"pid": 7, "name": "x", "state": "D"}]}}),
        ("follow", {"state": {"torchrun": ENTRY, "gang": RECORD, "cluster": None}}),
        ("probe", {"listening": {"ports": {"": 40000}}}),
    ],
)
def test_what_is_defined_passes(verb: str, header: dict[str, Any]) -> None:
    """A missing key may be one of those that can be missing."""
    assert frame_problems(verb, header) == []


@pytest.mark.parametrize(
    ("verb", "header"),
    [
        ("files", {key: value for key, value in LISTED.items() if key != "mark"}),
        ("files", {**LISTED, "marks": 1}),
        ("files", {**LISTED, "listed": True}),
        ("files", {**LISTED, "outside": {"files": 1}}),
        ("follow", {"positions": {"a": "1"}}),
        ("stop", {"event": {"time": 1.0, "event": "end"}}),
        ("stop", {"event": {"time": 1.0, "event": "ended", "left": [{"pid": 7, "name": "x"}]}}),
        ("follow", {"state": {"torchrun": {**ENTRY, "pid": "7"}}}),
        ("follow", {"state": {"gang": {**RECORD, "words": 1}}}),
        ("ps", {"runs": [{"attempts": [{"attempt": "1"}]}], "time": 1.0}),
        ("probe", {"listening": []}),
        ("probe", {"facts": {"torch": {"versions": "2.9"}}}),
    ],
)
def test_what_differs_is_named(verb: str, header: dict[str, Any]) -> None:
    """A key too many or too few, and a value of another type, however deep."""
    assert frame_problems(verb, header) != []


def test_lines_of_the_journal_are_compared() -> None:
    """They are in the body of a frame of `follow`."""
    assert frame_problems("follow", {"events": 1}, b'{"time": 1.0, "event": "ended"}\n') == []
    assert frame_problems("follow", {"events": 1}, b'{"time": 1.0, "event": "ended", "pids": 1}\n') != []
