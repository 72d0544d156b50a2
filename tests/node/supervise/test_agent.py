"""When the agent's beats come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.supervise import agent
from clusterctl.node.supervise.agent import Agent, next_beat

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("lateness", [0.0, 0.2, 0.45])
def test_late_beats_do_not_put_off_the_next(lateness: float) -> None:
    """A node that is cut off counts seven beats; each may be late, yet they take seven seconds and once that."""
    due, came = 0.0, 0.0
    for _ in range(7):
        due = next_beat(due, came, 1.0)
        came = due + lateness
    assert came == pytest.approx(7.0 + lateness)


def test_after_a_halt_missed_beats_do_not_come_at_once() -> None:
    """Each of them would count as one that the others have not answered."""
    first = next_beat(1.0, 61.0, 1.0)
    assert (first, next_beat(first, first, 1.0)) == (61.5, 62.5)


def test_the_agent_waits_for_the_moment_at_which_its_next_beat_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for a whole interval from a beat that came 0.3 s late."""
    monkeypatch.setattr(agent, "time", SimpleNamespace(monotonic=lambda: 10.3))
    waits: list[float] = []
    beats: list[str] = []
    own: Any = SimpleNamespace(
        _interval=1.0,
        _beat_due=10.0,
        _beat=None,
        _loop=SimpleNamespace(after=lambda seconds, *_: waits.append(seconds)),
        _descriptors=SimpleNamespace(beats=-1),
        _executor=SimpleNamespace(
            gang=SimpleNamespace(beat=lambda: beats.append("gang")),
            attempt=SimpleNamespace(scan_output=lambda: None),
        ),
        _record=SimpleNamespace(flush=lambda: None),
    )
    Agent._beat(own)
    assert waits == [pytest.approx(0.7)] and own._beat_due == 11.0 and beats == ["gang"]
