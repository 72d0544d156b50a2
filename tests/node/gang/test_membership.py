"""How a hub measures the clocks of its peers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.gang import membership
from clusterctl.node.gang.limits import beat_interval
from clusterctl.node.gang.membership import Member
from clusterctl.protocol.messages.gang import BeatReply

pytestmark = pytest.mark.unit


def test_a_quick_answer_measures_a_clock_for_sixteen_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy peer answers late for a while; whose rank failed first is judged by its clock, to within 0.2 s."""
    now = 1000.0
    monkeypatch.setattr(membership, "time", SimpleNamespace(time=lambda: now))
    channel: Any = SimpleNamespace(unanswered_beats=0, send=lambda _: None)
    member, known = Member(channel), []
    spec: Any = {}
    for delay in (0.0, *([0.9] * 15)):
        member.send_beat()
        asked, now = now, now + delay
        member.on_reply(BeatReply(asked, asked + delay + 5.0, 0.0))
        now = asked + beat_interval(spec)
        known.append(member.has_clock)
    assert now == 1016.0 and member.offset == 5.0
    assert known.index(True) == 7
