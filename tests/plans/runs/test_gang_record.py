"""The nodes' record of a run's end: read with distrust, put together, judged as a watcher would judge."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.plans.runs.gang_record import choose_record, find_given_up_nodes, with_losses
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import judge_recorded, name_state
from clusterctl.protocol.end_record import parse_record
from clusterctl.protocol.root_cause import Failure, find_cause, restart_reason
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

RAISED = {
    "rank": 1,
    "exit": 1,
    "signal": None,
    "time": 12.6,
    "last_at": 12.5,
    "suspended": False,
    "tracebacks": [{"at": 10.0, "lines": ["Traceback (most recent call last):", "ValueError: bad loss"]}],
    "tail": ["ValueError: bad loss", "cleaning up"],
}
CLOSED = {
    "rank": 0,
    "exit": 1,
    "signal": None,
    "time": 10.2,
    "last_at": 10.2,
    "tracebacks": [
        {
            "at": 10.1,
            "lines": ["Traceback (most recent call last):", "RuntimeError: Connection closed by peer"],
        }
    ],
    "tail": ["RuntimeError: Connection closed by peer"],
}


def part(node: str, rank: int, state: str, *failures: dict[str, Any], reason: str = "") -> dict[str, Any]:
    """Write one node's part."""
    about = {"node": node, "node_rank": rank, "state": state, "reason": reason, "time": 13.0}
    return {**about, "stopped_at": None, "failures": list(failures)}


def record(*parts: dict[str, Any], whole: bool = True) -> dict[str, Any]:
    """Write a record."""
    return {"run": "a-1", "hub": "gpu01", "whole": whole, "stop": {"time": 10.3}, "parts": list(parts)}


def state(node: str, rank: int, word: str, gang: Any = True) -> NodeState:
    """Read a node's state."""
    return parse_state(
        Untrusted({"run": "a-1", "node": node, "node_rank": rank, "nnodes": 2, "state": word, "gang": gang})
    )


def test_the_cause_is_what_was_reported_first() -> None:
    """The rank that raised and died last is the cause, also when only the other node still answers."""
    told = record(part("gpu01", 0, "FAILED", CLOSED), part("gpu02", 1, "FAILED", RAISED))
    parts = {"gpu01": state("gpu01", 0, "FAILED", told), "gpu02": None}
    verdict = judge_recorded("a-1", parts)

    assert verdict is not None
    assert (verdict.state, verdict.node_states) == ("FAILED", {"gpu01": "FAILED", "gpu02": "FAILED"})
    assert verdict.cause is not None
    failure = verdict.cause.failure
    assert (failure.node, failure.rank, failure.exception) == ("gpu02", 1, "ValueError: bad loss")
    assert (failure.raised_at, failure.tail[-1]) == (10.0, "cleaning up")


def test_a_lost_hub_leaves_what_the_others_know() -> None:
    """Each of the others has only its own part: they are put together, and node 0 is lost."""
    lost = part("gpu01", 0, "LOST", reason="the connection ended")
    ones = [
        parse_record(Untrusted(record(lost, part(f"gpu0{rank + 1}", rank, "CANCELLED"), whole=False)))
        for rank in (1, 2)
    ]
    best = choose_record(ones, {"gpu01", "gpu02", "gpu03"})

    assert best is not None
    assert {one.node: one.state for one in best.parts} == {
        "gpu01": "LOST",
        "gpu02": "CANCELLED",
        "gpu03": "CANCELLED",
    }
    assert [(failure.node, failure.lost) for failure in best.failures] == [("gpu01", True)]
    assert best.shift_to_clock(2.0).failures[0].time == 11.0


def test_a_live_run_has_no_verdict() -> None:
    """One part has ended and recorded it, the other lives."""
    own = record(part("gpu01", 0, "SUCCEEDED"), whole=False)
    assert (
        judge_recorded(
            "a-1", {"gpu01": state("gpu01", 0, "SUCCEEDED", own), "gpu02": state("gpu02", 1, "RUNNING")}
        )
        is None
    )


@pytest.mark.parametrize(
    "raw",
    [
        None, True, [], {}, {"parts": {}}, {"parts": [1, None, []]}, {"parts": [{}], "stop": 3},
        {"parts": [{"failures": 7}]}, {"parts": [{"failures": [{"tracebacks": {"a": 1}, "tail": 3}]}]},
        {"parts": [{"failures": [{"tracebacks": [{"lines": [1, "x"], "at": "y"}], "time": "z", "rank": True}]}]},
        {"parts": [{"time": float("nan"), "failures": [{"time": 10**400, "last_at": float("inf")}]}]},
    ],
)  # fmt: skip
def test_nonsense_is_no_error(raw: object) -> None:
    """A node may write anything."""
    found = parse_record(Untrusted(raw))
    assert found is None or all(isinstance(part.node, str) for part in found.parts)


SILENT = "it was silent for 20 s"


def test_a_node_that_only_its_peers_lost_is_the_cause() -> None:
    """SSH receives it, and it reports nothing but its own end; one with trouble of its own is left alone."""
    told = parse_record(
        Untrusted(
            record(
                part("gpu01", 0, "CANCELLED"),
                part("gpu02", 1, "LOST", reason=SILENT),
                part("gpu03", 2, "CANCELLED"),
            )
        )
    )
    assert told is not None
    stopped = Failure("gpu02", 1, None, 9, 12.0)

    assert [(one.node, one.reason) for one in find_given_up_nodes(told, [stopped], 10.3)] == [
        ("gpu02", f"lost: {SILENT}")
    ]
    assert (
        find_given_up_nodes(
            told, [Failure("gpu02", None, None, None, 9.0, reason="the agent was killed")], 10.3
        )
        == []
    )


def test_a_hub_that_lost_all_others_is_itself_cut_off() -> None:
    """Two of three nodes are not cut off at once."""
    told = parse_record(
        Untrusted(
            record(
                part("gpu01", 0, "CANCELLED"),
                *(part(f"gpu0{n + 1}", n, "LOST", reason=SILENT) for n in (1, 2)),
            )
        )
    )
    assert told is not None

    assert [one.node for one in find_given_up_nodes(told, [], 10.3)] == ["gpu01"]


def test_what_the_kernel_killed_for_memory_is_on_record() -> None:
    """And whether a rank ended after its node was ordered to: both are read from the record as they were seen."""
    oom_killed = {"rank": 0, "exit": None, "signal": 9, "time": 9.0, "oom_killed": True}
    leaves = {"rank": 1, "exit": 143, "signal": None, "time": 11.0}
    told = parse_record(
        Untrusted(record({**part("gpu01", 0, "FAILED", oom_killed, leaves), "stopped_at": 10.0}))
    )
    assert told is not None
    assert [(one.oom_killed, one.after_stop) for one in told.failures] == [(True, False), (False, True)]


def test_a_record_that_one_node_alone_keeps_decides_nothing() -> None:
    """Of different records the one counts that most nodes have; a liar's comes with a million attempts."""
    honest = parse_record(Untrusted(record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "CANCELLED"))))
    lie = record(*(part(f"x{number}", number, "SUCCEEDED") for number in range(50)))
    liar = parse_record(Untrusted({**lie, "attempts": [{}] * 9999}))
    for records in ([honest, honest, liar], [liar, honest, honest]):
        assert choose_record(records, {"gpu01", "gpu02", *(f"x{number}" for number in range(50))}) == honest


def test_a_node_that_answers_us_but_not_its_peers_is_lost_to_them() -> None:
    """What it reports itself is shown, and it goes before an exception that another rank raised over it."""
    agent = Failure("gpu02", None, None, None, 9.0, reason="the agent was killed")
    raised = Failure(
        "gpu01", 0, 1, None, 10.2, exception="KeyError: 'x'", message="KeyError: 'x'", raised_at=10.0
    )
    lost = {**part("gpu02", 1, "LOST", reason="the connection ended"), "time": 9.1, "last_seen": 9.1}
    told = parse_record(Untrusted(record(part("gpu01", 0, "FAILED"), lost)))
    assert told is not None
    cause = find_cause(with_losses(told, [agent, raised], 10.3), 10.3)

    assert cause is not None
    assert (cause.failure.reason, restart_reason(cause)) == ("the agent was killed", "node_lost")
    assert told.shift_to_clock(2.0).failures[-1].last_seen == 7.1


def test_a_record_of_an_older_version_has_no_last_sign_of_life() -> None:
    """The moment at which the loss was noticed is taken for it."""
    lost = part("gpu02", 1, "LOST", reason=SILENT)
    for moment, shown in ((13.5, "gpu02"), (12.0, "gpu01")):
        raised = {
            **RAISED,
            "tracebacks": [{**RAISED["tracebacks"][0], "at": moment}],
            "last_at": moment,
            "rank": 0,
        }
        told = parse_record(Untrusted({**record(part("gpu01", 0, "FAILED", raised), lost), "stop": None}))
        assert told is not None
        cause = find_cause(told.failures, told.stopped_at)
        assert cause is not None
        assert cause.failure.node == shown


def test_a_record_takes_no_success_from_nodes_that_all_report_one() -> None:
    """One node's record reports that another failed, or is lost: only the node itself reports how it ended."""
    crashed = {"rank": 0, "exit": None, "signal": 11, "time": 9.0}
    for invented in (part("gpu01", 0, "LOST", reason=SILENT), part("gpu01", 0, "FAILED", crashed)):
        lie = record(invented, part("gpu02", 1, "SUCCEEDED"))
        parts = {
            "gpu01": state("gpu01", 0, "SUCCEEDED"),
            "gpu02": state("gpu02", 1, "SUCCEEDED", {**lie, "hub": "gpu02"}),
        }
        verdict = judge_recorded("a-1", parts)
        assert verdict is not None
        assert (verdict.state, verdict.exit_code, verdict.cause) == ("SUCCEEDED", 0, None)


@pytest.mark.parametrize(
    ("answering", "state_name"),
    [(("gpu01",), "UNKNOWN"), (("gpu01", "gpu02"), "SUCCEEDED"), (("gpu01", "gpu02", "gpu03"), "SUCCEEDED")],
)
def test_one_node_of_three_makes_no_success(answering: tuple[str, ...], state_name: str) -> None:
    """Its record reports that all succeeded; the two others, which alone could confirm it, do not answer."""
    names = ("gpu01", "gpu02", "gpu03")
    succeeded = record(*(part(name, rank, "SUCCEEDED") for rank, name in enumerate(names)))
    parts = {
        name: state(name, rank, "SUCCEEDED", succeeded) if name in answering else None
        for rank, name in enumerate(names)
    }
    assert name_state(RunId("a-1"), parts) == state_name


def test_a_record_hides_no_failure_that_a_node_reports_itself() -> None:
    """The hub leaves out a node's failure and reports that a person stopped the run; all nodes keep its record."""
    by_hand = "stopped by ann@laptop"
    lie = record(part("gpu01", 0, "CANCELLED", reason=by_hand), part("gpu02", 1, "FAILED"))
    about = {"run": "a-1", "nnodes": 2, "since": 12.0, "gang": lie}
    ranks = {"1": {"local_rank": 0, "pid": 7, "exit": 1, "signal": None}}
    hub = parse_state(Untrusted({**about, "node": "gpu01", "state": "CANCELLED", "reason": by_hand}))
    failed = parse_state(
        Untrusted({**about, "node": "gpu02", "node_rank": 1, "state": "FAILED", "ranks": ranks})
    )
    verdict = judge_recorded("a-1", {"gpu01": hub, "gpu02": failed})

    assert verdict is not None
    assert verdict.state == "FAILED"
    assert verdict.cause is not None
    assert (verdict.cause.failure.node, verdict.cause.failure.rank) == ("gpu02", 1)


def test_records_of_different_attempts_are_different() -> None:
    """A node that kept an earlier attempt's is outvoted; what a node kept of itself goes before its loss."""
    kept = record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "FAILED"))
    earlier, latest = (parse_record(Untrusted({**kept, "attempts": [{}] * count})) for count in (1, 2))
    names = {"gpu01", "gpu02"}

    assert choose_record([earlier, latest, latest], names) == latest
    ones = [
        record(part("gpu01", 0, "LOST", reason=SILENT), part("gpu02", 1, "CANCELLED"), whole=False),
        record(part("gpu01", 0, "FAILED", RAISED), whole=False),
    ]
    best = choose_record([parse_record(Untrusted(one)) for one in ones], names)
    assert best is not None
    assert [(one.node, one.state) for one in best.parts] == [("gpu01", "FAILED"), ("gpu02", "CANCELLED")]


def test_every_time_is_shown_by_our_clock() -> None:
    """The record's by the hub's, and by its own what a node has on record that the others lost."""
    honest = record(part("gpu01", 0, "CANCELLED"), part("gpu02", 1, "FAILED", RAISED))
    parts = {"gpu01": state("gpu01", 0, "CANCELLED", honest), "gpu02": None}
    verdict = judge_recorded("a-1", parts, offsets={"gpu01": 2.0, "gpu02": 7.0})
    assert verdict is not None
    assert verdict.cause is not None
    assert (round(verdict.cause.failure.time, 3), verdict.cause.failure.raised_at) == (10.6, 8.0)

    of_hub = record(part("gpu01", 0, "CANCELLED"), part("gpu02", 1, "LOST", reason=SILENT))
    of_itself = record(
        part("gpu01", 0, "LOST", reason=SILENT), part("gpu02", 1, "FAILED", RAISED), whole=False
    )
    parts = {"gpu01": state("gpu01", 0, "CANCELLED", of_hub), "gpu02": state("gpu02", 1, "FAILED", of_itself)}
    verdict = judge_recorded("a-1", parts, offsets={"gpu01": 2.0, "gpu02": 7.0})
    assert verdict is not None
    assert verdict.cause is not None
    told = {failure.node: failure for failure in (verdict.cause.failure, *verdict.cause.consequences)}
    assert (round(told["gpu02"].time, 3), told["gpu02"].raised_at) == (5.6, 3.0)

    for gang in (True, of_itself):
        about = {"run": "a-1", "node": "gpu02", "node_rank": 1, "nnodes": 2, "since": 12.0, "gang": gang}
        killed = parse_state(
            Untrusted({**about, "state": "LOST", "reason": "agent and guardian are not running"})
        )
        parts["gpu02"] = killed
        verdict = judge_recorded("a-1", parts, offsets={"gpu02": 7.0})
        assert verdict is not None
        assert verdict.cause is not None
        assert verdict.cause.failure.time == (5.0 if gang is True else 5.6)


def test_a_node_gives_its_own_account_only() -> None:
    """One that answers under another's name lays its failure on nothing else."""
    lost = record(part("gpu01", 0, "CANCELLED"), part("gpu02", 1, "LOST", reason=SILENT))
    ranks = {"1": {"local_rank": 0, "pid": 7, "exit": 1, "signal": None}}
    about = {"run": "a-1", "node": "gpu01", "node_rank": 1, "nnodes": 2, "since": 9.0, "ranks": ranks}
    posing = parse_state(Untrusted({**about, "state": "FAILED"}))
    verdict = judge_recorded("a-1", {"gpu01": state("gpu01", 0, "CANCELLED", lost), "gpu02": posing})

    assert verdict is not None
    assert verdict.cause is not None
    assert [one.node for one in (verdict.cause.failure, *verdict.cause.consequences)] == ["gpu02"]


def test_records_that_differ_in_a_state_or_the_hub_are_different() -> None:
    """Two that agree outvote the first, whatever it changes."""
    kept = record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "CANCELLED"))
    honest = parse_record(Untrusted(kept))
    for lie in ({**kept, "hub": "gpu02"}, record(part("gpu01", 0, "FAILED"), part("gpu02", 1, "FAILED"))):
        assert choose_record([parse_record(Untrusted(lie)), honest, honest], {"gpu01", "gpu02"}) == honest


def test_of_parts_put_together_the_first_stop_counts() -> None:
    """Each node without the hub keeps when it was ordered to stop itself."""
    ones = [
        {
            **record({**part(f"gpu0{rank + 1}", rank, "CANCELLED"), "stopped_at": at}, whole=False),
            "stop": None,
        }
        for rank, at in ((0, 12.0), (1, 11.0))
    ]
    best = choose_record([parse_record(Untrusted(one)) for one in ones], {"gpu01", "gpu02"})

    assert best is not None
    assert best.stopped_at == 11.0


def test_a_hub_that_failed_itself_or_lost_its_only_peer_is_not_cut_off() -> None:
    """Of two nodes either may be; and what the hub reports of itself explains why it reaches no one."""
    two = record(part("gpu01", 0, "CANCELLED"), part("gpu02", 1, "LOST", reason=SILENT))
    all_lost = [part(f"gpu0{n + 1}", n, "LOST", reason=SILENT) for n in (1, 2)]
    three = parse_record(Untrusted(record(part("gpu01", 0, "FAILED"), *all_lost)))
    told = parse_record(Untrusted(two))
    assert told is not None
    assert three is not None
    own = Failure("gpu01", None, None, None, 9.0, reason="the agent was killed")

    assert [one.node for one in find_given_up_nodes(told, [], 10.3)] == ["gpu02"]
    assert [one.node for one in find_given_up_nodes(three, [own], 10.3)] == ["gpu02", "gpu03"]


def test_a_node_that_is_cut_off_was_last_seen_when_its_peers_received_its_beat() -> None:
    """Not when it ended by itself."""
    lost = {**part("gpu02", 1, "LOST", reason=SILENT), "last_seen": 9.1}
    told = parse_record(Untrusted(record(part("gpu01", 0, "CANCELLED"), lost)))
    assert told is not None
    own = Failure("gpu02", None, None, None, 20.0, reason="the node was restarted")

    assert [(one.cut_off, one.last_seen) for one in with_losses(told, [own], 10.3)] == [(True, 9.1)]
