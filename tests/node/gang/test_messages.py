"""What the members of a gang send each other, read by plain values: in bounds, or refused with the kind's name."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

import pytest

from clusterctl.node.gang.attempts import make_record
from clusterctl.node.gang.channel import MAX_MESSAGE, Handshake, SignedLines
from clusterctl.node.gang.limits import limit_grace, read_bounds
from clusterctl.node.gang.membership import Member
from clusterctl.node.runtime.connections import ChannelError
from clusterctl.node.supervise import evidence
from clusterctl.protocol.messages import gang as messages
from clusterctl.protocol.messages.checkpoints import (
    Address,
    Held,
    KeeperOrder,
    KeeperReport,
    Part,
    PartSources,
    Restore,
    Seal,
)
from clusterctl.protocol.messages.gang import (
    MAX_RECORD,
    TO_HUB,
    TO_PEER,
    Ack,
    BeatReply,
    Bounds,
    CheckNode,
    CheckpointOrder,
    CheckpointReport,
    Cleared,
    Ended,
    Failed,
    Go,
    Hello,
    HubBeat,
    Listening,
    NextAttempt,
    NodeChecked,
    Pause,
    Ready,
    RosterView,
    SlotLost,
    StopOrder,
    Verdict,
    Welcome,
    read_message,
    render_message,
)
from clusterctl.protocol.messages.record import to_json
from clusterctl.protocol.ranks import NodeRank, Slot
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_object

pytestmark = pytest.mark.unit

NODES = ("gpu01", "gpu02", "gpu03")
ROSTER: list[dict[str, Any]] = [
    {"slot": seat, "node": node, "node_rank": seat if seat < 2 else None} for seat, node in enumerate(NODES)
]
SPEC = {
    "run": "job-20261120T110000-0123",
    "nnodes": 2,
    "slots": 3,
    "world_size": 4,
    "grace": 30.0,
    "roster": ROSTER,
    "restart": {"max": 3, "on": ["gpu"]},
}
BOUNDS = read_bounds(SPEC)
FAILURE = {
    "rank": 3, "exit": 1, "signal": None, "time": 10.0, "last_at": 9.0, "suspended": False,
    "tracebacks": [{"at": 9.5, "lines": ["Traceback (most recent call last):", "ValueError: x"]}],
    "tail": ["ValueError: x"],
}  # fmt: skip
PART = {
    "address": "10.0.0.2", "state": "FAILED", "reason": "rank 3", "time": 11.0, "stopped_at": 10.5,
    "stop_kind": "time", "failures": [FAILURE], "node": "", "node_rank": None,  # which the hub fills in
}  # fmt: skip
ENTRY = {
    "attempt": 1, "reason": "gpu", "node": "gpu02", "text": "ECC", "began": 1.0, "ended": 2.0, "progress": True
}  # fmt: skip
COURSE = {"attempt": 2, "entries": ROSTER, "history": [ENTRY]}
RECORDED = {**PART, "node": "gpu02", "node_rank": 1}
STORY = {"attempts": [ENTRY], "roster": ROSTER, "gave_up": "max", "reason": ""}
STOPPED = {"node": "gpu02", "reason": "r", "time": 10.0, "kind": "failure"}
RECORD = {
    "run": SPEC["run"], "hub": "gpu01", "attempt": 2, "whole": True, "state": "FAILED", "stop": STOPPED,
    "parts": [RECORDED], **STORY,
}  # fmt: skip
END = {"gave_up": "max", "state": "", "reason": ""}
STOP = {"reason": "stopped", "grace": 30.0, "occasion": "stop"}
TOLD = RosterView(2, ROSTER, [ENTRY])
PARTS = tuple(Part(node_rank=NodeRank(rank), manifest="a" * 64, size=80, files=3, bytes=9) for rank in (0, 1))
SEAL = Seal(name="step-300", attempt=2, number=3, nodes=2, parts=PARTS)
SOURCES = (Address(address="10.0.0.2", port=40000),)
RESTORE = Restore(seal=SEAL, parts=(PartSources(node_rank=NodeRank(1), sources=SOURCES),))
ORDER = KeeperOrder(do="take", attempt=2, name="step-300", part=PARTS[1], sources=SOURCES)
REPORT = KeeperReport(event="kept", held=(Held(seal=SEAL, parts=(NodeRank(0),)),), port=40000, serial=7)
WHOLE: list[tuple[str, dict[str, Any], Any]] = [
    ("hub", {"kind": "beat", "at": 5.0, "time": 6.0}, BeatReply(5.0, 6.0)),
    ("hub", {"kind": "beat", "at": 5.0, "time": 6.0, "quiet": 7.5}, BeatReply(5.0, 6.0, 7.5)),
    ("hub", {"kind": "failed", "attempt": 2, "reason": "boom"}, Failed(2, "boom")),
    ("hub", {"kind": "failed", "reason": "boom"}, Failed(1, "boom")),
    ("hub", {"kind": "stop", **STOP}, StopOrder("stopped", 30.0, "stop")),
    ("hub", {"kind": "ended", "attempt": 1, "part": PART}, Ended(1, PART)),
    ("hub", {"kind": "hello", "part": PART, "roster": COURSE}, Hello(PART, TOLD)),
    ("hub", {"kind": "hello", "part": None, "roster": COURSE}, Hello(None, TOLD)),
    ("hub", {"kind": "clear", "unfit": "", "progress": None}, Cleared("", None)),
    ("hub", {"kind": "ready", "attempt": 2, "port": None, "address": "10.0.0.1"}, Ready(2, None, "10.0.0.1")),
    ("hub", {"kind": "ready", "attempt": 2, "port": 7, "address": "fe80::1"}, Ready(2, 7, "fe80::1")),
    ("hub", {"kind": "listening", "attempt": 2, "port": 65535}, Listening(2, 65535)),
    ("hub", {"kind": "checkpoint", "report": to_json(REPORT)}, CheckpointReport(REPORT)),
    ("hub", {"kind": "ack"}, Ack()),
    ("hub", {"kind": "node_checked", "slot": 2, "answers": False}, NodeChecked(Slot(2), answers=False)),
    ("peer", {"kind": "welcome"}, Welcome()),
    ("peer", {"kind": "beat", "at": 5.0}, HubBeat(5.0)),
    ("peer", {"kind": "beat", "at": 5.0, "quiet": 600.0}, HubBeat(5.0, 600.0)),
    ("peer", {"kind": "check_node", "slot": 2}, CheckNode(Slot(2))),
    ("peer", {"kind": "stop", **STOP, "grace": 0}, StopOrder("stopped", 0.0, "stop")),
    ("peer", {"kind": "verdict", "record": RECORD, "end": END}, Verdict(RECORD, END)),
    ("peer", {"kind": "lost", "slot": 2, "why": "silent"}, SlotLost(2, "silent")),
    ("peer", {"kind": "pause", "entry": ENTRY, "seconds": 1.5, "roster": COURSE}, Pause(ENTRY, 1.5, TOLD)),
    ("peer", {"kind": "next_attempt", "time_left": None, "roster": COURSE}, NextAttempt(None, TOLD)),
    ("peer", {"kind": "next_attempt", "time_left": 60, "roster": COURSE}, NextAttempt(60.0, TOLD)),
    (
        "peer",
        {"kind": "next_attempt", "time_left": 60, "roster": COURSE, "resume": to_json(RESTORE)},
        NextAttempt(60.0, TOLD, RESTORE),
    ),
    ("peer", {"kind": "keep", "order": to_json(ORDER)}, CheckpointOrder(ORDER)),
    ("peer", {"kind": "go", "master_addr": "10.0.0.1", "master_port": 1}, Go("10.0.0.1", 1)),
]


def read(side: str, message: Any, bounds: Bounds = BOUNDS) -> Any:
    """Read a message as a channel does."""
    parsed = parse_object(json.dumps(message).encode(), MAX_MESSAGE)
    return read_message(parsed, TO_HUB if side == "hub" else TO_PEER, bounds)


@pytest.mark.parametrize(("side", "message", "value"), WHOLE)
def test_what_an_agent_sends_is_read_whole(side: str, message: Any, value: Any) -> None:
    """Nothing of an honest message is lost."""
    assert read(side, message) == value


@pytest.mark.parametrize(("side", "message", "value"), WHOLE)
def test_what_is_written_is_what_is_read(side: str, message: Any, value: Any) -> None:
    """The same row writes and reads a message: nothing that is sent is unknown to its receiver, key by key."""
    text = render_message(value, message.get("attempt"))
    written = {key: field for key, field in json.loads(text).items() if key in message}
    assert written == message
    assert read(side, json.loads(text)) == value


def test_every_kind_is_covered() -> None:
    """The table above has them all."""
    assert {message["kind"] for side, message, _ in WHOLE if side == "hub"} == TO_HUB.keys()
    assert {message["kind"] for side, message, _ in WHOLE if side == "peer"} == TO_PEER.keys()


def test_a_run_that_never_restarts_names_no_attempt_and_no_end() -> None:
    """Agents of earlier versions wrote it like that."""
    assert render_message(Failed(1, "boom")) == '{"kind": "failed", "reason": "boom"}'
    assert render_message(Verdict({}, None)) == '{"kind": "verdict", "record": {}}'


def test_a_part_may_hold_what_an_agent_puts_into_it() -> None:
    """The limits of what is read are those of what is written."""
    for name in ("TAIL_LINES", "TRACEBACKS", "BLOCK_LINES", "MAX_LINE"):
        assert getattr(messages, name) == getattr(evidence, name)


def spoilt(**change: Any) -> list[dict[str, Any]]:
    """Change the last seat of the roster."""
    return [*ROSTER[:2], {**ROSTER[2], **change}]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("hub", {"kind": "beat", "at": -1.0, "time": 6.0}, "beat"),
    ("hub", {"kind": "beat", "at": True, "time": 6.0}, "beat"),
    ("hub", {"kind": "failed", "attempt": 10**6, "reason": ""}, "failed"),
    ("hub", {"kind": "failed", "attempt": "2", "reason": ""}, "failed"),
    ("hub", {"kind": "stop", **STOP, "grace": 1e308}, "stop"),
    ("hub", {"kind": "stop", **STOP, "grace": -0.1}, "stop"),
    ("hub", {"kind": "stop", **STOP, "occasion": "whim"}, "stop"),
    ("hub", {"kind": "ended", "part": {**PART, "state": "RUNNING"}}, "ended"),
    ("hub", {"kind": "ended", "part": {**PART, "time": None}}, "ended"),
    ("hub", {"kind": "ended", "part": {**PART, "state": "LOST"}}, "ended"),
    ("hub", {"kind": "ended", "part": {**PART, "failures": "none"}}, "ended"),
    ("hub", {"kind": "ended", "part": [PART]}, "ended"),
    ("hub", {"kind": "ended"}, "ended"),
    ("hub", {"kind": "beat", "at": 5.0, "time": 1e15}, "beat"),
    ("hub", {"kind": "beat", "at": "soon", "time": 5.0}, "beat"),
    ("hub", {"kind": "stop"}, "stop"),
    ("hub", {"kind": "ready", "attempt": 2, "port": 0, "address": "10.0.0.1"}, "ready"),
    ("hub", {"kind": "ready", "attempt": 2, "port": 70000, "address": "10.0.0.1"}, "ready"),
    ("hub", {"kind": "ready", "attempt": 2, "port": 7, "address": "$(reboot)"}, "ready"),
    ("hub", {"kind": "listening", "attempt": 2, "port": None}, "listening"),
    ("hub", {"kind": "hello", "part": 5, "roster": COURSE}, "hello"),
    ("hub", {"kind": "hello", "part": None}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "attempt": 99}}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "entries": ROSTER[:2]}}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "entries": [*ROSTER, ROSTER[0]]}}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "entries": spoilt(node="x")}}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "entries": spoilt(node_rank=1)}}, "hello"),
    ("hub", {"kind": "hello", "part": None, "roster": {**COURSE, "entries": spoilt(node_rank=2)}}, "hello"),
    ("peer", {"kind": "verdict", "record": {**RECORD, "run": "other"}, "end": END}, "verdict"),
    ("peer", {"kind": "verdict", "record": {**RECORD, "parts": [{**RECORDED, "node": "gpu99"}]}}, "verdict"),
    ("peer", {"kind": "verdict", "record": {**RECORD, "parts": [{**RECORDED, "node_rank": 3}]}}, "verdict"),
    ("peer", {"kind": "lost", "slot": 3, "why": ""}, "lost"),
    ("peer", {"kind": "pause", "entry": ENTRY, "seconds": 31.0, "roster": COURSE}, "pause"),
    ("peer", {"kind": "pause", "entry": {}, "seconds": 1.0, "roster": COURSE}, "pause"),
    ("peer", {"kind": "next_attempt", "time_left": -1, "roster": COURSE}, "next_attempt"),
    ("peer", {"kind": "next_attempt", "time_left": 1, "roster": COURSE, "resume": []}, "next_attempt"),
    ("peer", {"kind": "keep", "order": "take"}, "keep"),
    ("hub", {"kind": "checkpoint"}, "checkpoint"),
    ("peer", {"kind": "go", "master_addr": "", "master_port": 1}, "go"),
    ("peer", {"kind": "go", "master_addr": "10.0.0.1", "master_port": 10**5}, "go"),
    ("peer", {"kind": "ended", "part": PART}, "of no known kind"),
    ("hub", {"kind": "verdict", "record": RECORD}, "of no known kind"),
    ("hub", {"kind": ["beat"]}, "of no known kind"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "message", "kind"), BAD)
def test_what_no_agent_sends_is_refused(side: str, message: Any, kind: str) -> None:
    """The error names the kind, and nothing that was sent."""
    with pytest.raises(MalformedError, match=rf"^it sent a malformed message \({kind}"):
        read(side, message)


@pytest.mark.parametrize(
    "odd",
    [{"rank": 3}, {**FAILURE, "time": "soon", "tail": None, "tracebacks": "x" * 9000}],
    ids=["bare", "odd"],
)
def test_an_odd_failure_can_be_recorded(odd: dict[str, Any]) -> None:
    """A failure without a time or a tail goes into the record, and does not end who writes it."""
    message = {"kind": "ended", "part": {**PART, "reason": "r" * 9000, "failures": [odd]}}
    part = read("hub", message).part
    recorded = make_record({"run": "r"}, [part], None, whole=True)["parts"][0]["failures"]
    assert [failure["rank"] for failure in recorded] == [3]


def test_a_stop_is_sent_with_a_grace_that_is_taken() -> None:
    """A person may wait for a day on one node; the others are asked for no more than they would grant."""
    for bounds, grace in ((BOUNDS, 3600.0), (read_bounds({**SPEC, "grace": 7200.0}), 7200.0)):
        text = render_message(limit_grace(StopOrder("r", 86400.0, "stop"), bounds))
        assert read("hub", json.loads(text), bounds).grace == bounds.grace == grace


def test_names_without_a_list_of_them_are_names() -> None:
    """A gang whose spec does not name the nodes takes what can be a node's name, and nothing else."""
    bounds = read_bounds({"run": "r", "nnodes": 3})
    assert bounds.is_name_of(2, "gpu-03.lab")
    assert not any(
        bounds.is_name_of(2, name) for name in ("", "-x", "a b", "a\n", "x" * 65, "a;reboot", "../a")
    )
    named = read_bounds({"run": "r", "nnodes": 3, "nodes": NODES})
    assert named.is_name_of(2, "gpu03")
    assert not named.is_name_of(1, "gpu03")


def test_lists_and_texts_are_cut() -> None:
    """More failures than ranks, and more or longer lines than are ever read, are left out; the record stays small."""
    failure = {
        **FAILURE,
        "tail": ["t" * 9000] * 100,
        "tracebacks": [{"at": 1.0, "lines": ["s" * 9000] * 100}] * 9,
    }
    parsed = Untrusted({"kind": "ended", "part": {**PART, "reason": "r" * 9000, "failures": [failure] * 500}})
    part = read_message(parsed, TO_HUB, BOUNDS).part
    assert len(part["failures"]) == 6
    assert {len(line) for one in part["failures"] for line in one["tail"]} == {400}
    assert {
        (len(one["tail"]), len(one["tracebacks"]), len(one["tracebacks"][0]["lines"]))
        for one in part["failures"]
    } == {(20, 4, 16)}
    wide = read_bounds({**SPEC, "world_size": 4000})
    same_time = {**failure, "tail": ["t" * 400] * 20, "tracebacks": []}
    parsed = Untrusted({"kind": "ended", "part": {**PART, "failures": [same_time] * 4000}})
    part = read_message(parsed, TO_HUB, wide).part
    assert len(json.dumps(part)) < 2 * MAX_RECORD
    assert len(json.dumps(make_record({"run": "r"}, [part] * 3, None, whole=True))) < MAX_MESSAGE


def test_a_beat_is_answered_once_asked() -> None:
    """An answer to what was never asked is refused, so that nobody sets his clock by inventing the question."""
    said: list[float] = []

    class Channel:
        unanswered_beats = 0

        def send(self, beat: str) -> None:
            said.append(json.loads(beat)["at"])

    member = Member(Channel())  # type: ignore[arg-type]  # stands for a channel
    member.send_beat()
    member.on_reply(BeatReply(said[0], said[0] + 100.0, 7.5))
    assert member.quiet == 7.5
    assert 99 < member.offset < 101
    with pytest.raises(ChannelError, match="not sent"):
        member.on_reply(BeatReply(said[0] - 1e-3, 5.0))


def test_a_seal_takes_no_message_without_end() -> None:
    """Pieces that are empty, or more than a message may have, end the connection before they fill anything."""
    meeting = Handshake("r", 1, "gpu02", "0" * 32, "1" * 32)
    key = meeting.prove(b"token", "the peer speaks")
    out, into = SignedLines(key), SignedLines(key)
    for line in out.sign("[" * (MAX_MESSAGE + 1)):
        try:
            into.verify(line.rstrip(b"\n"))
        except ChannelError as error:
            assert "endless" in str(error)
            break
    else:
        raise AssertionError("it was taken")
    empty = SignedLines(key)
    rest = "+ "
    with pytest.raises(ChannelError, match="endless"):
        SignedLines(key).verify(f"0 {empty._hmac(rest)} {rest}".encode())


SPOILED = [
    None,
    True,
    -1,
    0,
    1e300,
    -1e300,
    10**18,
    "",
    "x" * 5000,
    "\ud800\x1b[2J",
    [],
    [[]],
    {},
    {"a": 1},
    [None] * 50,
]


def spoil(chance: random.Random, value: Any) -> Any:
    """Change one place of a message: another value, one more, one fewer, the whole."""
    copied = copy.deepcopy(value)
    place = copied
    while isinstance(place, (dict, list)) and place:
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        if chance.random() < 0.4 or not isinstance(place[key], (dict, list)) or not place[key]:
            if chance.random() < 0.2:
                del place[key]
            else:
                place[key] = chance.choice(SPOILED)
            return copied
        place = place[key]
    return copied


def test_spoiled_messages_are_read_in_bounds_or_refused() -> None:
    """Some thousand messages with a few places changed: a value that can be computed with, or MalformedError."""
    chance = random.Random(11)
    good = 0
    for _ in range(6000):
        side, message, _ = chance.choice(WHOLE)
        for _ in range(chance.choice((1, 1, 2, 4))):
            message = spoil(chance, message)
        try:
            value = read(side, {**message, "kind": message.get("kind")})
        except MalformedError as error:
            assert len(str(error)) < 300
            assert str(error).isprintable()
            continue
        good += 1
        check(value)
        assert len(json.dumps(to_json(value))) < MAX_MESSAGE
    assert 300 < good < 5500


def check(value: Any) -> None:
    """Look through everything: finite numbers, texts that can be written, nothing too long."""
    if isinstance(value, dict):
        for key, one in value.items():
            check(key)
            check(one)
    elif isinstance(value, (list, tuple)):
        assert len(value) < 100
        for one in value:
            check(one)
    elif isinstance(value, str):
        assert len(value.encode()) <= 4 * 4096
    elif isinstance(value, (int, float)):
        assert math.isfinite(value)
        assert abs(value) <= 2e11
