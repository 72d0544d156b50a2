"""The roster of a run: who has which rank, who is lost, and what is taken of other agents; by plain values."""

from __future__ import annotations

import json

import pytest

from clusterctl.node.gang.attempts import Roster
from clusterctl.node.gang.limits import read_bounds
from clusterctl.protocol.messages.gang import TO_PEER, NextAttempt, RosterView, read_message, render_message
from clusterctl.protocol.untrusted import Untrusted


def roster_of(nnodes: int, spares: int) -> Roster:
    """Begin a run's roster as slot 0 sees it."""
    ranks = [*range(nnodes), *[None] * spares]
    entries = [{"slot": slot, "node": f"n{slot}", "node_rank": rank} for slot, rank in enumerate(ranks)]
    return Roster({"slot": 0, "slots": len(ranks), "nnodes": nnodes, "attempt": 1, "roster": entries})


def test_ranks_stay_where_they_are() -> None:
    """A spare takes the rank of the node that it replaces; the others keep theirs, in later attempts too."""
    roster = roster_of(3, 2)

    assert roster.assign({0, 2, 3, 4})
    assert roster.node_ranks == {0: 0, 3: 1, 2: 2}
    assert roster.assign({0, 3, 4})
    assert (roster.node_ranks, roster.attempt) == ({0: 0, 3: 1, 4: 2}, 3)
    assert not roster.assign({0, 3})
    assert roster.attempt == 3


def seen_from(roster: Roster) -> RosterView:
    """Read what a roster sends to others, as a member of the same run does."""
    entries = [{**entry, "lost": None, "unfit": None} for entry in roster.entries]
    spec = {
        "run": "j-1",
        "nnodes": roster.nnodes,
        "slots": roster.slot_count,
        "roster": entries,
        "restart": {"max": 9},
    }
    text = render_message(NextAttempt(None, roster.view()))
    view: RosterView = read_message(Untrusted(json.loads(text)), TO_PEER, read_bounds(spec)).roster
    return view


def test_the_hub_is_believed_but_the_lost_stay_lost() -> None:
    """A node that any peer has given up is not taken back by a later message of the hub."""
    here, there = roster_of(2, 2), roster_of(2, 2)
    here.mark_lost(3, "gone")
    there.mark_lost(1, "gone")
    there.assign({0, 2})
    here.apply(seen_from(there))

    assert (here.attempt, here.lost, here.node_ranks) == (2, {1, 3}, {0: 0, 2: 1})
    there.mark_lost(0, "the hub")
    here.apply(seen_from(there))
    assert 0 not in here.lost, "we are here ourselves"


def test_the_newest_counts() -> None:
    """An order that the lost hub sent to only one of the others is not lost with it."""
    behind, ahead, here = roster_of(2, 2), roster_of(2, 2), roster_of(2, 2)
    ahead.add_attempt({"attempt": 1, "reason": "gpu", "node": "n1", "text": "", "progress": None})
    ahead.mark_unfit(1, "its GPU")
    ahead.assign({0, 2, 3})
    behind.mark_lost(3, "silent")
    for view in (behind, ahead, behind):
        here.apply(seen_from(view))

    assert (here.attempt, here.node_ranks, here.unfit) == (2, {0: 0, 2: 1}, {1})
    assert here.view().lost == {3: "silent"}, "a lost node stays lost, whichever node reports it"
    assert [entry["reason"] for entry in here.history] == ["gpu"]


@pytest.mark.parametrize(
    ("nnodes", "spares", "lost", "outnumbered"),
    [(2, 1, 2, True), (1, 1, 1, False), (2, 3, 2, False), (2, 3, 3, True)],
)
def test_outnumbered(nnodes: int, spares: int, lost: int, outnumbered: bool) -> None:
    """Only more than half of all could go on without us."""
    roster = roster_of(nnodes, spares)
    for slot in range(1, 1 + lost):
        roster.mark_lost(slot, "gone")

    assert roster.in_minority is outnumbered
    assert not roster.can_continue(roster.lost) or roster.in_minority
