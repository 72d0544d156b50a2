"""The WORLD_SIZE that workers saw which a job has started itself."""

from __future__ import annotations

from typing import Any

import pytest
from ends import judge

from clusterctl.plans.runs.state import parse_state
from clusterctl.plans.runs.verdict import (
    describe_world_event,
    render_unplanned,
    verdict_to_json,
)
from clusterctl.protocol.untrusted import Untrusted


@pytest.mark.parametrize("seen", [None, "2", True, 2.0, [2]])
def test_an_event_that_makes_no_sense_says_nothing(seen: Any) -> None:
    """Nodes may send anything."""
    assert describe_world_event(Untrusted({"event": "world_size", "seen": seen, "planned": 4})) == ""


def test_another_world_size_is_a_warning_of_the_verdict() -> None:
    """The run has succeeded all the same; nodes of which nothing is known are not named."""
    seen = {"gpu01": 2, "gpu02": 2, "gpu03": 4, "gpu04": None}
    parts = {
        name: parse_state(
            Untrusted(
                {"run": "r", "state": "SUCCEEDED", "nnodes": 4, "node": name, "node_rank": rank}
                | {"world_size": 4, "world_size_seen": size}
            )
        )
        for rank, (name, size) in enumerate(seen.items())
    }
    verdict = judge("r", parts, [])
    assert verdict.state == "SUCCEEDED"
    assert verdict_to_json(verdict)["world_sizes"] == {"gpu01": 2, "gpu02": 2}
    (line,) = render_unplanned(verdict.world_sizes)
    assert line.startswith("gpu[01-02]: CC-RUN-051: workers run with WORLD_SIZE 2, planned is 4")
