"""The rules of a start that goes on from a checkpoint, and of one whose checkpoints are kept, as plain values."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from recorded_effects import Call, call, transition

from clusterctl.node.lifecycle import ending, starting
from clusterctl.node.lifecycle.run import Phase, RunState, new_attempt
from clusterctl.protocol.messages.checkpoints import KeeperReport, Part, Restore, Seal
from clusterctl.protocol.messages.gang import StopOrder
from clusterctl.protocol.reasons import DONE, STOP

pytestmark = pytest.mark.unit

SPEC: Any = {
    "attempt": 2,
    "node_rank": 1,
    "module": "torch.distributed.run",
    "processes": 1,
    "world_size": 2,
    "master_addr": "10.0.0.1",
    "python": "/venv/bin/python",
    "grace": 5.0,
    "checkpoints": {"path": "/out/step-*"},
    "resume": "step-300",
    "before": {"time_limit": 60.0},
}
SEAL = Seal(name="step-300", number=3, nodes=2, parts=(Part(files=1, bytes=4 * 10**9, manifest="a" * 64),))
RESTORED = KeeperReport(event="restored", name="step-300", files=7, bytes=90, seconds=2.04, serial=2)
READY = {"torch": "2.9.0"}


def called(**changes: Any) -> tuple[RunState, tuple[Call, ...]]:
    """Begin an attempt that goes on from a checkpoint."""
    state = RunState(new_attempt({**SPEC, "attempt": 1}, idle=False)._replace(phase=Phase.ENDED), True)
    spec = {**SPEC, **changes}
    event = partial(
        starting.on_attempt_called, spec=spec, node_rank=1, time_left=None, resume=Restore(seal=SEAL)
    )
    return transition(state, event)


def follow(state: RunState, *events: partial[None]) -> tuple[RunState, tuple[Call, ...]]:
    """Follow several events; returns the last state and all calls."""
    calls: tuple[Call, ...] = ()
    for event in events:
        state, more = transition(state, event)
        calls += more
    return state, calls


GATE = partial(starting.on_gate_started, entry=None)
PORTS = partial(starting.on_ports_opened, has_environment=True, port=None, locked=True)
TORCH = partial(starting.on_gate_ready, torch="2.9.0")
PLACED = partial(starting.on_restored, report=RESTORED)
WATCHED = partial(starting.on_watched, attempt=2)


def test_files_are_fetched_beside_the_import_of_torch() -> None:
    """It begins before the gate is started, is recorded, and the start has more time for it."""
    state, calls = called()
    assert call.restore(Restore(seal=SEAL)) in calls
    assert call.start_timer("go", 1520.0, partial(ending.on_cancelled, reason="no GO arrived")) in calls
    recorded = next(each for each in calls if each.name == "set_state")
    assert recorded.arguments["values"]["resumed"] == "step-300"
    assert state.attempt.restoring


def test_before_runs_when_the_files_are_in_their_place() -> None:
    """Its commands may read them."""
    state, calls = follow(called()[0], PORTS, GATE, TORCH)
    assert call.start_helper("before") not in calls
    state, calls = follow(state, PLACED)
    facts = {"name": "step-300", "files": 7, "bytes": 90, "seconds": 2.0}
    assert calls == (
        call.journal("resume", facts),
        call.journal("before", {}),
        call.start_helper("before"),
    )


def test_a_node_is_ready_when_what_its_ranks_write_will_be_seen() -> None:
    """Restored files are not taken for new ones: they are there before it is looked, and before GO."""
    state, calls = follow(called(before=None)[0], PORTS, GATE, PLACED, TORCH)
    assert call.watch_checkpoints() in calls
    assert state.phase is Phase.PREPARING
    state, calls = follow(state, partial(starting.on_watched, attempt=1))
    assert (state.phase, calls) == (Phase.PREPARING, ())
    state, calls = follow(state, WATCHED)
    assert state.phase is Phase.READY
    assert calls[:3] == (
        call.cancel_timer("watch"),
        call.journal("ready", READY),
        call.gang.on_startup_event("ready", READY),
    )


def test_torch_may_be_there_before_the_files() -> None:
    """The later of the two counts."""
    state, calls = follow(called(before=None)[0], PORTS, GATE, TORCH)
    assert call.watch_checkpoints() not in calls
    state, calls = follow(state, PLACED)
    assert call.watch_checkpoints() in calls


def test_a_file_system_that_does_not_answer_holds_up_no_start() -> None:
    """After a while the node is ready all the same."""
    _, calls = follow(called(before=None)[0], PORTS, GATE, PLACED, TORCH)
    assert call.start_timer("watch", starting.WATCH_LIMIT, WATCHED) in calls


def test_a_node_that_cannot_have_the_files_abandons_the_start() -> None:
    """The reason and the code go to the gang; what runs is ended."""
    why = RESTORED.replace(code="CC-DISK-001", why="No space left on device")
    state, calls = follow(called()[0], PORTS, GATE, partial(starting.on_restored, report=why))
    reason = "the checkpoint step-300 cannot be restored: No space left on device"
    facts = {"text": reason, "code": "CC-DISK-001"}
    assert state.attempt.gate_failed == reason
    assert state.phase is Phase.ENDING
    assert call.gang.on_startup_event("setup_failed", facts) in calls
    assert call.pause_checkpoints() in calls


STOPS = {
    "cancelled": partial(ending.on_cancelled, reason="stopped by ann@laptop"),
    "stop": partial(ending.on_stop_requested, order=StopOrder("stopped by ann@laptop", 5.0)),
    "time limit": partial(ending.on_time_is_up),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_gives_a_restore_up(stop: str) -> None:
    """What comes of it afterwards changes nothing."""
    state, calls = follow(called(time_limit=60.0)[0], PORTS, STOPS[stop])
    assert call.pause_checkpoints() in calls
    assert follow(state, PLACED) == (state, ())


@pytest.mark.parametrize("why", ["", "no node gives the files"])
def test_the_late_answer_to_an_earlier_attempt_releases_no_start(why: str) -> None:
    """The files of this attempt may still be on their way."""
    state = follow(called()[0], PORTS, GATE)[0]
    late = RESTORED.replace(serial=1, why=why)
    assert follow(state, partial(starting.on_restored, report=late)) == (state, ())


def test_nothing_counts_as_complete_from_the_first_cause_of_an_end_on() -> None:
    """A rank may have died while it wrote."""
    state = RunState(new_attempt(SPEC, idle=False)._replace(phase=Phase.RUNNING, started=True), True)
    failed = partial(
        ending.on_rank_exited, rank=0, pid=8, exit_code=None, signal=9, failure="killed by SIGKILL"
    )
    _, calls = transition(state, failed)
    names = [each.name for each in calls]
    assert names.index("pause_checkpoints") < names.index("gang.report")


def test_a_spare_takes_copies_from_the_first_moment_on() -> None:
    """It has no rank, and looks for nothing."""
    spare = RunState(new_attempt({**SPEC, "attempt": 1}, idle=True), True)
    assert call.watch_checkpoints() in transition(spare, PORTS)[1]


def ended(state: str = "SUCCEEDED", **changes: Any) -> RunState:
    """Return a run whose ranks have ended so, and whose part of the record is built."""
    attempt = new_attempt({**SPEC, "time_limit": 60.0, **changes}, idle=False)
    part: Any = {"state": state, "reason": ""}
    return RunState(attempt._replace(phase=Phase.AFTER, started=True), True)._replace(part=part)


READ = partial(ending.on_outside_read, summary=None)
FINISHED = partial(ending.on_checkpoints_finished)


def test_the_end_waits_until_the_last_checkpoint_is_sealed() -> None:
    """For a while: a node that does not answer ends all the same, and once."""
    state, calls = follow(ended(), READ)
    assert calls == (
        call.start_timer("checkpoints", ending.FINISH_LIMIT, FINISHED),
        call.finish_checkpoints(),
    )
    state, calls = follow(state, FINISHED)
    assert calls[0] == call.cancel_timer("checkpoints")
    assert calls[-1].name == "report_end"
    assert state.phase is Phase.ENDED
    assert follow(state, FINISHED) == (state, ())


def test_only_what_ranks_wrote_that_ended_well_is_waited_for() -> None:
    """Others may have died while they wrote; and most jobs keep no checkpoints."""
    without = ended()
    spec = {key: value for key, value in SPEC.items() if key != "checkpoints"}
    without = without._replace(attempt=without.attempt._replace(spec=spec))
    for state in (ended("FAILED"), ended("STOPPED"), without):
        after, calls = follow(state, READ)
        assert after.phase is Phase.ENDED
        assert call.finish_checkpoints() not in calls


@pytest.mark.parametrize("stop", [name for name in STOPS if name != "cancelled"])
def test_a_stop_does_not_wait_for_the_last_checkpoint(stop: str) -> None:
    """The ranks had ended well before: so did this node's part."""
    state, calls = follow(follow(ended(), READ)[0], STOPS[stop])
    assert state.phase is Phase.ENDED
    ends = [one.arguments["part"]["state"] for one in calls if one.name == "report_end"]
    assert ends == ["SUCCEEDED"]
    assert follow(state, FINISHED) == (state, ())


@pytest.mark.parametrize("stop", [name for name in STOPS if name != "cancelled"])
def test_what_a_stop_has_ended_elsewhere_is_not_waited_for(stop: str) -> None:
    """It came while `after` ran: the nodes that failed report no part of any checkpoint."""
    state, calls = follow(ended(), STOPS[stop], READ)
    assert state.phase is Phase.ENDED
    assert [one.arguments["part"]["state"] for one in calls if one.name == "report_end"] == ["SUCCEEDED"]


def test_the_end_of_node_0_stops_no_copies() -> None:
    """What serves its program is ended: a pause would give a copy up, and what is collected after it would wait."""
    attempt = new_attempt({**SPEC, "ends_with": "node 0"}, idle=False)
    running = attempt._replace(phase=Phase.RUNNING, started=True, torchrun_runs=True)
    for kind in (DONE, STOP):
        order = partial(ending.on_stop_ordered, order=StopOrder("node 0 has ended", 5.0, kind))
        state, calls = transition(RunState(running, True), order)
        assert state.phase is Phase.ENDING
        assert (call.pause_checkpoints() in calls) == (kind == STOP)
    served = ended()
    served = served._replace(attempt=served.attempt._replace(stopped_at=1.0, stop_kind=DONE))
    assert follow(served, READ)[0].phase is Phase.AFTER


def test_an_end_that_is_recorded_does_not_go_on() -> None:
    """Its guardian was lost: the run is no longer WAITING for others, whatever its keeper reports."""
    state, _ = follow(ended(), READ, partial(ending.on_guardian_lost))
    assert state.final
    assert follow(state, FINISHED) == (state, ())
