"""What a node reports of files outside the output directory is read with distrust."""

from __future__ import annotations

from typing import Any

import pytest
from ends import judge

from clusterctl.plans.runs.state import parse_state
from clusterctl.plans.runs.verdict import verdict_to_json
from clusterctl.plans.sync.listed_files import OutsideFiles, parse_outside, with_outside_files
from clusterctl.protocol.untrusted import Untrusted

RAW = {"files": 2, "bytes": 13, "names": ["0.ckpt", "1.ckpt"], "more": False}


def test_a_record_is_read() -> None:
    """Its numbers and names."""
    assert parse_outside(Untrusted(RAW)) == OutsideFiles(2, 13, ("0.ckpt", "1.ckpt"))


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        {**RAW, "files": -1},
        {**RAW, "files": True},
        {**RAW, "bytes": 1 << 70},
        {**RAW, "bytes": float("nan")},
        {**RAW, "names": "0.ckpt"},
    ],
)
def test_nonsense_is_nothing(raw: Any) -> None:
    """Never an error."""
    assert parse_outside(Untrusted(raw)) is None


def test_names_are_few_and_short() -> None:
    """However many a node sends, and whatever stands in them."""
    found = parse_outside(Untrusted({**RAW, "names": [7, "x" * 9999, "\udc80", *map(str, range(99))]}))
    assert found is not None
    assert len(found.names) <= 5
    assert max(map(len, found.names)) == 200
    assert "?" in found.names


def test_the_verdict_has_it_of_the_nodes_that_have_some() -> None:
    """Also as JSON; a node of an older version reports nothing, which is no error."""
    raw = {"run": "r", "state": "SUCCEEDED", "nnodes": 3}
    outside = {"gpu01": RAW, "gpu02": {**RAW, "files": 0, "bytes": 0, "names": []}, "gpu03": None}
    parts = {
        name: parse_state(Untrusted({**raw, "node": name, "node_rank": rank, "outside": one}))
        for rank, (name, one) in enumerate(outside.items())
    }
    verdict = judge("r", parts, [])
    assert verdict.state == "SUCCEEDED"
    assert verdict_to_json(verdict)["outside"] == {"gpu01": {**RAW, "names": tuple(RAW["names"])}}


def test_more_than_can_be_counted_is_some() -> None:
    """A walk that came to its end before it found a file."""
    assert with_outside_files(
        {"a": OutsideFiles(0, 0, (), more=True), "b": OutsideFiles(0, 0, ())}
    ).keys() == {"a"}
