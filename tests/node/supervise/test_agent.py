"""When the agent's beats come, and in which order it takes events."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.lifecycle import ending, starting
from clusterctl.node.lifecycle.run import Phase
from clusterctl.node.supervise import agent, events
from clusterctl.node.supervise.agent import Agent, next_beat
from clusterctl.node.supervise.events import Events
from clusterctl.protocol.messages.gang import StopOrder
from clusterctl.protocol.ranks import Rank

pytestmark = pytest.mark.unit


class Followed(Events):
    """Events of which only the order is looked at: their rules are not followed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, phase: Phase, outside_stop: object) -> None:
        self.timers: list[Callable[[], None]] = []
        loop: Any = SimpleNamespace(after=lambda _seconds, _name, work: self.timers.append(work))
        spec: Any = {"outside_stop": outside_stop}
        super().__init__(loop, spec)
        self.run: Any = SimpleNamespace(phase=phase, replace=lambda **_: None)
        self.followed: list[object] = []
        monkeypatch.setattr(events, "counts", lambda event, _: self.followed.append(event))


WORKER_ENDED = partial(
    ending.on_rank_exited, rank=Rank(1), pid=7, exit_code=None, signal=15, failure="killed by SIGTERM"
)
PREPARED = partial(starting.on_prepared)
ORDER = StopOrder("stopped by Slurm", 1.0)


@pytest.mark.parametrize("outside_stop", [None, {"reason": "stopped by Slurm"}])
@pytest.mark.parametrize("rule", [ending.on_stop_requested, ending.on_stop_ordered])
def test_a_stop_from_outside_comes_before_the_end_that_it_caused(
    rule: Any, outside_stop: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two is seen first: else the end of a login session, or scancel, would blame a rank."""
    own, stop = Followed(monkeypatch, Phase.RUNNING, outside_stop), partial(rule, order=ORDER)
    own.post(WORKER_ENDED, ended_by=signal.SIGTERM)
    own.post(PREPARED)
    assert own.followed == []
    own.post_stop(stop)
    assert own.followed == [stop, WORKER_ENDED, PREPARED]
    own.timers[0]()
    assert len(own.followed) == 3 and len(own.timers) == 1


@pytest.mark.parametrize("outside_stop", [None, {"reason": "stopped by Slurm"}])
def test_a_sigterm_to_one_worker_is_a_failure_after_a_moment(
    outside_stop: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That worker alone was signalled."""
    own = Followed(monkeypatch, Phase.RUNNING, outside_stop)
    own.post(WORKER_ENDED, ended_by=signal.SIGTERM)
    own.timers[0]()
    assert own.followed == [WORKER_ENDED]


@pytest.mark.parametrize(
    ("phase", "outside_stop", "number"),
    [
        (Phase.ENDING, None, signal.SIGTERM),
        (Phase.RUNNING, None, signal.SIGKILL),
    ],
)
def test_other_ends_are_taken_at_once(
    phase: Phase, outside_stop: object, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an end of ours, and by another signal."""
    own = Followed(monkeypatch, phase, outside_stop)
    own.post(WORKER_ENDED, ended_by=number)
    assert own.followed == [WORKER_ENDED] and own.timers == []


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
        gang=SimpleNamespace(beat=lambda: beats.append("gang")),
        processes=SimpleNamespace(scan_output=lambda: None),
        _record=SimpleNamespace(flush=lambda: None),
        _halted=SimpleNamespace(scan=lambda: None),
        _is_removed=True,
    )
    Agent._beat(own)
    assert waits == [pytest.approx(0.7)] and own._beat_due == 11.0 and beats == ["gang"]
