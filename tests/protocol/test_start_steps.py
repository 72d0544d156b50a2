"""What starts an agent does up to the gate, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.protocol.messages.start_steps import list_start_steps

BEFORE: Any = {"steps": [], "time_limit": 1.0}
RESTART: Any = {"max": 1, "on": [], "progress": "**"}


@pytest.mark.parametrize(
    ("spec", "is_hub", "makes_environment", "steps"),
    [
        ({}, True, False, [("", "ready")]),
        ({"before": BEFORE}, True, True, [("", "environment"), ("before", "ready")]),
        ({"gang": True}, True, False, [("", "ready")]),
        ({"gang": True}, False, True, [("join", "joined"), ("", "environment"), ("", "ready")]),
        ({"gang": True, "restart": RESTART}, True, False, [("listeners", ""), ("", "ready")]),
        (
            {"gang": True, "restart": RESTART, "spare": True, "before": BEFORE},
            False,
            False,
            [("join", "joined")],
        ),
        ({"restart": RESTART}, True, False, [("", "ready")]),
    ],
)
def test_the_steps_to_the_gate(
    spec: Any, is_hub: bool, makes_environment: bool, steps: list[tuple[str, str]]
) -> None:
    """A node joins before its environment is there; a spare has no gate yet, and nothing of `before`."""
    assert list_start_steps(spec, is_hub=is_hub, makes_environment=makes_environment) == steps
