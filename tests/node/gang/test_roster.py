"""The roster of a run: who has which rank, who is lost, and which other agents are believed; by plain values."""

from __future__ import annotations

import json

import pytest

from clusterctl.node.gang.membership import read_bounds
from clusterctl.node.gang.roster import Roster
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


def test_one_liar_decides_nothing() -> None:
    """Alone it declares no node lost, gives no rank, skips no number and writes no history; two of three may."""
    honest, liar, here = roster_of(2, 3), roster_of(2, 3), roster_of(2, 3)
    for slot in (1, 2, 3):
        liar.mark_lost(slot, "so I say")
    liar.assign({4})
    liar.attempt = 6
    liar.add_attempt({"attempt": 1, "reason": "code", "node": "n1", "text": "", "progress": False})
    before = json.dumps(here.view())
    here.reconcile([seen_from(liar), seen_from(honest), seen_from(honest)])
    assert json.dumps(here.view()) == before

    honest.mark_lost(1, "silent")
    honest.assign({0, 2})
    here.reconcile([seen_from(liar), seen_from(honest)])
    assert (here.attempt, here.lost, here.node_ranks) == (2, {1}, {0: 0, 1: 1}), (
        "one ahead, and both name slot 1"
    )
    here.reconcile([seen_from(honest), seen_from(honest), seen_from(liar)])
    assert here.lost == {1}


def test_what_most_tell_alike_is_taken() -> None:
    """An order that the lost hub sent to all but the one that leads now is not lost with it."""
    others, here = roster_of(2, 2), roster_of(2, 2)
    others.add_attempt({"attempt": 1, "reason": "gpu", "node": "n1", "text": "", "progress": None})
    others.mark_unfit(1, "its GPU")
    others.assign({0, 2, 3})
    here.reconcile([seen_from(others), seen_from(others)])

    assert (here.attempt, here.node_ranks, here.unfit) == (2, {0: 0, 2: 1}, {1})
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
    assert not roster.can_continue(lost) or roster.in_minority
