"""The colours of states, the same in the report and on the page of `ui`."""

from __future__ import annotations

import pytest

from clusterctl.plans.report.sections import state_chip
from clusterctl.protocol.states import STATES

COLOURED = ("preparing", "running", "stalled", "succeeded", "failed", "stopped")


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("RUNNING", "running"),
        ("STALLED", "stalled"),
        ("SUCCEEDED", "succeeded"),
        ("FAILED", "failed"),
        ("TIMEOUT", "failed"),
        ("LOST", "failed"),
        ("STOPPED", "stopped"),
        ("WAITING", "preparing"),
    ],
)
def test_a_state_has_one_colour(state: str, kind: str) -> None:
    """A chip has the state as its text and its colour as its class."""
    assert state_chip(state).markup == f'<span class="chip state-{kind}">{state}</span>'


def test_red_is_for_the_cause() -> None:
    """A failure that another one caused is grey, and what succeeded stays green."""
    assert "state-stopped" in state_chip("FAILED", is_cause=False, text="was stopped").markup
    assert "state-succeeded" in state_chip("SUCCEEDED", is_cause=False).markup


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_a_known_colour(state: str) -> None:
    """No state is without a colour of the style sheet, and its text is escaped."""
    assert any(f"state-{kind}" in state_chip(state).markup for kind in COLOURED)
    assert "<b>" not in state_chip(state, text="<b>").markup
