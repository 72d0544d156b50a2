"""The tables of hub and peer: every event has its place in every phase, and what is sent is read."""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from clusterctl.node.gang import checkpoints, hub, limits, membership, node_check, peer, role
from clusterctl.node.lifecycle import ending
from clusterctl.protocol.messages.gang import TO_HUB, TO_PEER, Form

pytestmark = pytest.mark.unit

Table = dict[tuple[Any, str], str]
IGNORED = "-"


def read_table(kind: Any, phases: type[Enum]) -> Table:
    """Read a role's table into names: of the method that an event calls in a phase, or `-`."""
    events = {event for _, event in kind.table}
    return {
        (phase, event if isinstance(event, str) else event.__name__): (
            kind.table[phase, event].__name__.lstrip("_") if (phase, event) in kind.table else IGNORED
        )
        for phase in phases
        for event in events
    }


def timers(table: Table) -> set[str]:
    """Name what is waited for: in small letters."""
    return {event for _, event in table if event.islower()}


HUB, PEER = hub.Phase, peer.Phase
HUB_TABLE, PEER_TABLE = read_table(hub.Hub, HUB), read_table(peer.Peer, PEER)
SIDES: list[tuple[Table, dict[str, Form], set[str]]] = [
    (HUB_TABLE, TO_HUB, {"GO", "Closed", *timers(HUB_TABLE)}),
    # its own part's end, and its own check of the hub's node, are events of a peer too
    (
        PEER_TABLE,
        TO_PEER,
        {"GO", "Closed", "Ended", "Unreachable", "NodeChecked", *timers(PEER_TABLE)},
    ),
]


def names(forms: dict[str, Form]) -> set[str]:
    """Name the classes of messages."""
    return {form.type.__name__ for form in forms.values()}


@pytest.mark.parametrize(("table", "forms", "others"), SIDES)
def test_every_event_has_a_row(table: Table, forms: dict[str, Form], others: set[str]) -> None:
    """One without a row would change nothing in any phase."""
    assert {event for _, event in table} == names(forms) | others


@pytest.mark.parametrize("rows", [{"a": {print: tuple(HUB), repr: (HUB.OVER,)}}])
def test_an_event_has_one_method_in_a_phase(rows: Any) -> None:
    """Two would leave it to the order of the rows."""
    with pytest.raises(ValueError, match="OVER"):
        role.make_table(rows)


@pytest.mark.parametrize(
    ("senders", "forms"),
    [([hub, limits, membership, node_check, checkpoints], TO_PEER), ([peer, role, ending], TO_HUB)],
)
def test_every_message_that_is_read_is_sent(senders: list[Any], forms: dict[str, Form]) -> None:
    """The other side makes a value of each class; what it makes and sends has a row, or `render_message` fails."""
    tree = ast.parse(
        "\n".join(Path(sender.__file__).read_text() for sender in senders).replace(
            "from __future__ import annotations", ""
        )
    )
    calls = {
        ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)
    }
    assert names(forms) <= calls


# What happens, read off the tables: phase, event, method.
HUB_DOES = [
    (HUB.JOINING, "Closed", "closed_early"),
    (HUB.RUNNING, "Closed", "lost"),
    (HUB.CLEARING, "Closed", "lost_between"),
    (HUB.PAUSING, "Closed", "lost_between"),
    (HUB.PAUSING, "pause_over", "start_next"),
    (HUB.PAUSING, "StopOrder", "stop_between"),
    # a stop while the next hub waits for the others: they come, and have the record
    (HUB.GATHERING, "StopOrder", "stop_gathering"),
    (HUB.GATHERING, "Hello", "hello"),
    (HUB.GATHERING, "gather", "judge_gathered"),
    (HUB.STARTING, "Ready", "ready"),
    (HUB.RUNNING, "Ready", IGNORED),
    (HUB.STOPPING, "Ready", IGNORED),
    (HUB.STOPPING, "Listening", IGNORED),
    (HUB.CLEARING, "Ended", IGNORED),
    (HUB.RUNNING, "Hello", IGNORED),
    (HUB.RUNNING, "Ack", IGNORED),
    (HUB.OVER, "StopOrder", IGNORED),
]
PEER_DOES = [
    (PEER.CONNECTING, "StopOrder", "stop"),  # of a hub that has had its GO, and has not welcomed us
    (PEER.CONNECTING, "Closed", "lost_early"),  # proven and not welcomed: no other try
    (PEER.JOINED, "Closed", "lost_early"),
    (PEER.JOINED, "Verdict", "verdict"),  # a spare's, to which the client's GO has not come yet,
    (PEER.JOINED, "SlotLost", "mark_lost"),
    (PEER.JOINED, "NextAttempt", "start_next"),
    (PEER.IDLE, "SlotLost", "mark_lost"),  # a spare may have to lead
    (PEER.REJOINING, "SlotLost", "mark_lost"),
    (PEER.REJOINING, "Closed", "lost"),  # the next hub has let nobody in, or is lost as well
    (PEER.RUNNING, "Closed", "lost_running"),  # our part ends first,
    (PEER.ORPHANED, "Ended", "follow"),  # then whoever follows is looked for
    (PEER.ENDED, "Closed", "lost"),  # node 0 is lost in the pause: look who follows at once,
    (PEER.IDLE, "Closed", "lost"),  # so does a spare;
    (PEER.REJOINING, "Welcome", "rejoined"),  # the next hub is told what is known,
    (PEER.REJOINING, "Unreachable", "lost"),  # or is lost as well
    (PEER.REJOINING, "Pause", "catch_up"),  # it has decided before it could welcome us,
    (PEER.REJOINING, "NextAttempt", "catch_up"),  # or has even begun
    (PEER.RUNNING, "NextAttempt", "refuse_next"),
    (
        PEER.REJOINING,
        "Verdict",
        "verdict",
    ),  # somebody stopped the run there before the next hub could welcome us
    (PEER.RUNNING, "Verdict", IGNORED),
    (PEER.OVER, "Closed", "gone"),
]


@pytest.mark.parametrize(("phase", "event", "method"), HUB_DOES)
def test_what_a_hub_does(phase: Any, event: str, method: str) -> None:
    """The hub's side."""
    assert HUB_TABLE[phase, event] == method


@pytest.mark.parametrize(("phase", "event", "method"), PEER_DOES)
def test_what_a_peer_does(phase: Any, event: str, method: str) -> None:
    """A peer's side."""
    assert PEER_TABLE[phase, event] == method


def test_beats_are_answered_in_every_phase() -> None:
    """But by a node that has no connection: whoever does not answer is lost."""
    assert {HUB_TABLE[phase, "BeatReply"] for phase in HUB} == {"answered"}
    assert {phase for phase in PEER if PEER_TABLE[phase, "HubBeat"] != "answer"} == {PEER.ORPHANED}


def test_what_counts_once_the_record_is_kept() -> None:
    """Nothing that would begin, stop or record anything."""
    left = {event for (phase, event), method in HUB_TABLE.items() if phase is HUB.OVER and method != IGNORED}
    assert left == {"BeatReply", "Ack", "Closed", "final_grace"}
    left = {
        event for (phase, event), method in PEER_TABLE.items() if phase is PEER.OVER and method != IGNORED
    }
    assert left == {"HubBeat", "Closed", "final_grace"}


ATTEMPT = {HUB.STARTING, HUB.RUNNING, HUB.STOPPING}
WITH_A_CONNECTION = {PEER.JOINED, PEER.IDLE, PEER.ENDED}
# in which phases a message counts; in any other it is late, or of somebody who should not send it
HUB_HEARS = {
    "Failed": ATTEMPT,
    "Ended": {HUB.JOINING, *ATTEMPT},
    "Ready": {HUB.STARTING},
    "Listening": {HUB.STARTING},
    "Cleared": set(HUB) - {HUB.JOINING, HUB.STARTING, HUB.OVER},
    "Hello": {HUB.GATHERING},
    "Ack": {HUB.OVER},
}
PEER_HEARS = {
    "Welcome": {PEER.CONNECTING, PEER.REJOINING},
    "StopOrder": {PEER.CONNECTING, PEER.RUNNING, *WITH_A_CONNECTION},
    "Verdict": {PEER.REJOINING, PEER.LEAVING, *WITH_A_CONNECTION},
    "SlotLost": {PEER.REJOINING, PEER.RUNNING, *WITH_A_CONNECTION},
    "Pause": {PEER.REJOINING, *WITH_A_CONNECTION},
    "NextAttempt": {PEER.REJOINING, PEER.RUNNING, *WITH_A_CONNECTION},
    "Go": {PEER.RUNNING, PEER.IDLE},
    "Unreachable": {PEER.CONNECTING, PEER.REJOINING},
    "Ended": set(PEER) - {PEER.ENDED, PEER.REJOINING, PEER.OVER},
}


@pytest.mark.parametrize(
    ("table", "event", "phases"),
    [
        *((HUB_TABLE, event, phases) for event, phases in HUB_HEARS.items()),
        *((PEER_TABLE, event, phases) for event, phases in PEER_HEARS.items()),
    ],
)
def test_when_a_message_counts(table: Table, event: str, phases: set[Enum]) -> None:
    """A late one begins, ends and records nothing."""
    found = {phase for (phase, name), method in table.items() if name == event and method != IGNORED}
    assert found == phases


def test_go_counts_once() -> None:
    """The client's, in the phase before it."""
    assert {phase for phase in HUB if HUB_TABLE[phase, "GO"] != IGNORED} == {HUB.JOINING}
    assert {phase for phase in PEER if PEER_TABLE[phase, "GO"] != IGNORED} == {PEER.JOINED}


def test_a_phase_ends_the_waits_that_the_next_one_does_not_have() -> None:
    """Each moment that is waited for belongs to one phase of the hub, and of a peer to those that wait for the hub."""
    for timer in timers(HUB_TABLE):
        assert len([phase for phase in HUB if HUB_TABLE[phase, timer] != IGNORED]) == 1, timer
    waits = {
        timer: {phase for phase in PEER if PEER_TABLE[phase, timer] != IGNORED}
        for timer in timers(PEER_TABLE)
    }
    assert waits == {"hub": {PEER.IDLE, PEER.ENDED}, "final_grace": {PEER.LEAVING, PEER.OVER}}


def test_no_role_overrides_another() -> None:
    """Hub and peer have what both share above them and nothing below."""
    for kind in (hub.Hub, peer.Peer):
        assert not kind.__subclasses__()
        assert [base.__name__ for base in kind.__mro__[1:]] == ["Role", "Gang", "Generic", "object"]
