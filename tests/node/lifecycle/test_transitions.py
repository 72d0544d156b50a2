"""The table of the agent, as plain values: which state and which actions follow an event."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pytest
from variants import first

from clusterctl.node.lifecycle import actions as action_values
from clusterctl.node.lifecycle import events
from clusterctl.node.lifecycle.actions import (
    Act,
    Action,
    AwaitListener,
    BeginAttempt,
    BuildPart,
    CancelTimer,
    CloseAttempt,
    GangCleared,
    GangEnd,
    GangFailure,
    GangStop,
    Journal,
    KillBelow,
    OpenPorts,
    RecordWorkers,
    Report,
    SaveRecord,
    SendClient,
    SendGo,
    SetState,
    SignalAll,
    StartAfter,
    StartGate,
    StartHelper,
    StartTimer,
)
from clusterctl.node.lifecycle.ending import judge
from clusterctl.node.lifecycle.state import AttemptState, KillTimes, Phase, RunState, new_attempt
from clusterctl.node.lifecycle.transitions import TABLE, transition
from clusterctl.node.runtime.processes import UNKILLABLE_AFTER, Stat
from clusterctl.node.supervise.agent import can_end_in_order
from clusterctl.node.supervise.executor import Executor
from clusterctl.protocol.messages.gang import StopOrder
from clusterctl.protocol.messages.stop_kinds import DONE, FAILURE, STOP, TIME

pytestmark = pytest.mark.unit

SPEC: dict[str, Any] = {
    "attempt": 1,
    "node_rank": 0,
    "module": "torch.distributed.run",
    "processes": 1,
    "world_size": 1,
    "master_addr": "10.0.0.1",
    "python": "/venv/bin/python",
    "grace": 5.0,
}
NOW, TIME_NOW = 100.0, 1790000000.0
PORT = 29500
TORCHRUN = {"pid": 7, "starttime": 1, "exit": None, "signal": None}
SLEEP = Stat(9, "sleep", "S", 1, 1, 1, 0)
STOPPED = StopOrder("stopped by ann@laptop", 5.0, STOP)
PART = {"state": "FAILED", "reason": "rank 0 exited with 3", "node_rank": 0}
TORCH = "2.9.0"
READY = {"torch": TORCH}


def run_of(phase: Phase, *, restartable: bool = False, spec: Any = None, **attempt: Any) -> RunState:
    """Make a state in a phase, as it usually is."""
    idle = phase in (Phase.IDLE, Phase.SPARE)
    base = new_attempt({**SPEC, **(spec or {})}, idle=idle)._replace(phase=phase)
    started = phase not in (Phase.IDLE, Phase.PREPARING, Phase.READY)
    base = base._replace(
        observed=base.observed._replace(started=started),
        torchrun_runs=phase in (Phase.READY, Phase.RUNNING, Phase.ENDING),
    )
    return RunState(base._replace(**attempt), restartable, now=NOW, time=TIME_NOW)


def observed(state: RunState, **values: Any) -> RunState:
    """Change what was observed."""
    return state.observe(**values)


def exited(code: int | None, signal: int | None = None, **changes: Any) -> events.TorchrunExited:
    """Torchrun's end."""
    ending = "was killed by SIGKILL" if signal else f"exited with {code}"
    base = events.TorchrunExited({**TORCHRUN, "exit": code}, code, signal, ending, "", True, "", False)
    return base._replace(**changes)


def failed_rank(rank: int = 0) -> events.RankExited:
    """A worker that exits with 3."""
    return events.RankExited(rank, 8, 3, None, f"rank {rank} exited with 3")  # type: ignore[arg-type]  # a rank by value


def tick_after(seconds: float) -> StartTimer:
    """The next moment of the kill schedule."""
    return StartTimer("end", seconds, events.Notice.TICK)


def stopping(reason: str, grace: float) -> tuple[Action, ...]:
    """What is recorded of a stop."""
    return Act.SCAN_OUTPUT, Journal("stopping", {"reason": reason, "grace": grace})


SERVED = {"ends_with": "node 0", "module": None, "world_size": 2}
KILL_ALL = KillBelow(spare_torchrun=False)
EXIT_3 = {"rank": 0, "pid": 8, "exit": 3, "signal": None}
GATE_FAILED = {"text": "no torch", "code": ""}

# name: state, event, the phase that follows, the actions
CASES: dict[str, tuple[RunState, Any, Phase, tuple[Action, ...]]] = {
    "the start holds a port and opens the gang": (
        run_of(Phase.PREPARING), events.Notice.PREPARED, Phase.PREPARING, (OpenPorts(True, True),),
    ),
    "a spare holds no port": (run_of(Phase.IDLE), events.Notice.PREPARED, Phase.IDLE, (OpenPorts(False, True),)),
    "a spare is ready to be called in": (
        run_of(Phase.IDLE), events.PortsOpened(True, None, True), Phase.IDLE,
        (SetState({"state": "WAITING", "reason": "spare"}), Report("started", {})),
    ),
    "a spare that waits for a lock is not": (
        run_of(Phase.IDLE), events.PortsOpened(True, None, False), Phase.IDLE, (Report("started", {}),),
    ),
    "with its environment there the gate is started": (
        run_of(Phase.PREPARING), events.PortsOpened(True, PORT, True), Phase.PREPARING, (StartGate(),),
    ),
    "without its environment the client is asked for it": (
        run_of(Phase.PREPARING, spec={"setup": {"kind": "venv"}}),
        events.PortsOpened(False, PORT, True), Phase.PREPARING,
        (Report("setup", {"made": False}), Report("started", {}), Report("port", {"port": PORT})),
    ),
    "the gate's start is recorded, then reported": (
        run_of(Phase.PREPARING, held_port=PORT), events.GateStarted(TORCHRUN), Phase.PREPARING,
        (SetState({"torchrun": TORCHRUN}), Report("started", TORCHRUN), Report("port", {"port": PORT})),
    ),
    "a gate that starts while a stop waits its turn is ended": (
        run_of(Phase.ENDING, torchrun_runs=False, kill=KillTimes(NOW, NOW)), events.GateStarted(TORCHRUN),
        Phase.ENDING, (SetState({"torchrun": TORCHRUN}), KILL_ALL, tick_after(0.02)),
    ),
    "setup runs once": (
        run_of(Phase.PREPARING, helper="setup", spec={"setup": {"kind": ""}}), events.Notice.SETUP_ORDERED,
        Phase.PREPARING, (),
    ),
    "the environment is made, and the gate starts in it": (
        run_of(Phase.PREPARING, helper="setup"), events.Notice.SETUP_MADE, Phase.PREPARING,
        (SetState({"reason": ""}), Journal("setup_done", {}), Report("environment", {}), StartGate()),
    ),
    "a gate that is ready waits for `before`": (
        run_of(Phase.PREPARING, before_pending=True), events.GateReady(TORCH), Phase.PREPARING, (),
    ),
    "`before` was what the gate waited for": (
        run_of(Phase.PREPARING, before_pending=True, gate=TORCH), events.Notice.BEFORE_DONE, Phase.READY,
        (Journal("ready", READY), Report("ready", READY)),
    ),
    "GO before the gate is ready waits for it": (
        run_of(Phase.PREPARING), events.ClientGo(PORT), Phase.PREPARING, (),
    ),
    "a node but node 0 is let go, and its client leaves": (
        run_of(Phase.READY), events.ClientGo(PORT), Phase.RUNNING,
        (
            CancelTimer("go"), SendGo("10.0.0.1", PORT),
            SetState({"state": "RUNNING", "reason": "", "master": f"10.0.0.1:{PORT}"}),
            Journal("go_received", {"master": f"10.0.0.1:{PORT}"}), Report("go_received", {}), Act.GANG_GO,
            SetState({"began": TIME_NOW}), Act.CLOSE_CLIENT,
        ),
    ),
    "node 0 waits until torchrun listens": (
        run_of(Phase.READY, held_port=PORT), events.ClientGo(PORT), Phase.RUNNING,
        (
            CancelTimer("go"), SendGo("10.0.0.1", PORT),
            SetState({"state": "RUNNING", "reason": "", "master": f"10.0.0.1:{PORT}"}),
            Journal("go_received", {"master": f"10.0.0.1:{PORT}"}), Report("go_received", {}), Act.GANG_GO,
            AwaitListener(PORT),
        ),
    ),
    "the time limit counts from then": (
        run_of(Phase.RUNNING, port=PORT, spec={"time_limit": 60.0}), events.Listened(True, ""), Phase.RUNNING,
        (
            SetState({"began": TIME_NOW}), StartTimer("time limit", 60.0, events.Notice.TIME_IS_UP),
            Journal("listening", {"port": PORT}), Report("listening", {"port": PORT}), Act.CLOSE_CLIENT,
        ),
    ),
    "a spare's GO": (
        run_of(Phase.IDLE), events.ClientGo(PORT), Phase.SPARE,
        (CancelTimer("go"), Report("go_received", {}), Act.GANG_GO, Act.CLOSE_CLIENT),
    ),
    "a client's GO after the gang's only sends it away": (
        run_of(Phase.PREPARING, is_first=False), events.ClientGo(PORT), Phase.PREPARING,
        (SendClient("go_received", {}), Act.CLOSE_CLIENT),
    ),
    "a GO after the end of an attempt is not followed": (
        run_of(Phase.ENDED, is_first=False), events.GangGo("10.0.0.2", PORT), Phase.ENDED, (),
    ),
    "a port that somebody took costs another gate": (
        run_of(Phase.RUNNING, held_port=PORT, awaits_listener=True, port=PORT),
        exited(1, text="EADDRINUSE", has_workers=False), Phase.PREPARING,
        (
            Act.RELEASE_PORT, Journal("port_taken", {"port": PORT}), SetState({"state": "PREPARING"}),
            StartGate(other_port=True),
        ),
    ),
    "but not for ever": (
        run_of(Phase.RUNNING, held_port=PORT, awaits_listener=True, port=PORT, ports_tried=3),
        exited(1, text="EADDRINUSE", has_workers=False), Phase.ENDING,
        (
            SetState({"torchrun": {**TORCHRUN, "exit": 1}}),
            Journal("torchrun_exited", {"exit": 1, "signal": None}),
            GangFailure("torchrun exited with 1"), tick_after(1.0),
            Act.RELEASE_PORT, SetState({"began": TIME_NOW}),
            Report("failed", {"text": "EADDRINUSE", "port_taken": True}), Act.CLOSE_CLIENT, Act.FIND_REMAINING,
        ),
    ),
    "a gate that fails": (
        run_of(Phase.READY), exited(1, text="Traceback\nno torch"), Phase.ENDING,
        (
            SetState({"torchrun": {**TORCHRUN, "exit": 1}}),
            Journal("gate_failed", {"text": "Traceback\nno torch", "code": ""}),
            Report("gate_failed", {"text": "Traceback\nno torch", "code": ""}), KILL_ALL, Act.FIND_REMAINING,
        ),
    ),
    "a step of the start that fails": (
        run_of(Phase.PREPARING), events.StepFailed("no torch", "no torch", "", False), Phase.ENDING,
        (Journal("gate_failed", GATE_FAILED), Report("gate_failed", GATE_FAILED), KILL_ALL, Act.FIND_REMAINING),
    ),
    "a setup that our own kill ended is no cause": (
        observed(run_of(Phase.ENDING), started=False), events.HelperFailed("setup: was killed", {}), Phase.ENDING, (),
    ),
    "a worker that ends well is recorded": (
        run_of(Phase.RUNNING), failed_rank()._replace(exit=0, failure=""), Phase.RUNNING,
        (Journal("rank_exited", {**EXIT_3, "exit": 0}), RecordWorkers(0)),  # type: ignore[arg-type]  # a rank by value
    ),
    "a worker that fails gives the others a second": (
        run_of(Phase.RUNNING), failed_rank(), Phase.ENDING,
        (
            Journal("rank_exited", EXIT_3), RecordWorkers(0),  # type: ignore[arg-type]  # a rank by value
            GangFailure("rank 0 exited with 3"), tick_after(1.0),
        ),
    ),
    "the second failure is no cause": (
        observed(run_of(Phase.ENDING), first_failure="rank 1 exited with 7"), failed_rank(), Phase.ENDING,
        (Journal("rank_exited", EXIT_3), RecordWorkers(0)),  # type: ignore[arg-type]  # a rank by value
    ),
    "torchrun that ends well leaves what outlives it": (
        run_of(Phase.RUNNING), exited(0), Phase.RUNNING,
        (
            SetState({"torchrun": {**TORCHRUN, "exit": 0}}),
            Journal("torchrun_exited", {"exit": 0, "signal": None}), Act.FIND_REMAINING,
        ),
    ),
    "a stop gives the workers the grace": (
        run_of(Phase.RUNNING), events.StopOrdered(STOPPED), Phase.ENDING,
        (*stopping(STOPPED.reason, 5.0), Act.TERMINATE_TORCHRUN, tick_after(5.0)),
    ),
    "a person's stop is one on all nodes": (
        run_of(Phase.RUNNING), events.StopRequested(STOPPED), Phase.ENDING,
        (GangStop(STOPPED), *stopping(STOPPED.reason, 5.0), Act.TERMINATE_TORCHRUN, tick_after(5.0)),
    ),
    "a stop after a failure sends no second SIGTERM": (
        observed(run_of(Phase.ENDING), first_failure="rank 0 exited with 3"), events.StopOrdered(STOPPED),
        Phase.ENDING, (*stopping(STOPPED.reason, 5.0), tick_after(5.0)),
    ),
    "a stop before GO ends everything at once": (
        run_of(Phase.READY), events.StopOrdered(STOPPED), Phase.ENDING,
        (*stopping(STOPPED.reason, 0), KILL_ALL, tick_after(0.02)),
    ),
    "a stop once nothing runs is recorded": (
        run_of(Phase.ENDED), events.StopOrdered(STOPPED), Phase.ENDED, stopping(STOPPED.reason, 5.0),
    ),
    "the end of node 0's program ends those that serve it": (
        run_of(Phase.RUNNING, spec=SERVED), exited(0), Phase.RUNNING,
        (
            SetState({"torchrun": {**TORCHRUN, "exit": 0}}),
            Journal("torchrun_exited", {"exit": 0, "signal": None}),
            GangStop(StopOrder("node 0 has ended", 5.0, DONE)), Act.FIND_REMAINING,
        ),
    ),
    "a program that serves node 0's may fail because that has ended": (
        run_of(Phase.RUNNING, spec={**SERVED, "node_rank": 1}), failed_rank(), Phase.RUNNING,
        (
            Journal("failure_held", {"reason": "rank 0 exited with 3"}),
            StartTimer("held failure", 10.0, events.Notice.HELD_OVER),
            Journal("rank_exited", EXIT_3), RecordWorkers(0),
        ),
    ),
    "its end is not the end of this node's part": (
        run_of(Phase.RUNNING, spec={**SERVED, "node_rank": 1}, held_failure="rank 1 exited with 1"),
        exited(1), Phase.RUNNING,
        (SetState({"torchrun": {**TORCHRUN, "exit": 1}}), Journal("torchrun_exited", {"exit": 1, "signal": None})),
    ),
    "node 0's program goes on: the failure counts": (
        run_of(
            Phase.RUNNING, spec={**SERVED, "node_rank": 1}, held_failure="rank 1 exited with 1",
            torchrun_runs=False,
        ),
        events.Notice.HELD_OVER, Phase.ENDING,
        (GangFailure("rank 1 exited with 1"), tick_after(1.0), Act.FIND_REMAINING),
    ),
    "a failure elsewhere is no matter of a spare": (
        run_of(Phase.SPARE), events.StopOrdered(STOPPED._replace(kind=FAILURE)), Phase.SPARE, (),
    ),
    "a second stop does not wait for `after`": (
        run_of(Phase.AFTER, after_runs=True)._replace(stops=1), events.StopRequested(STOPPED), Phase.AFTER,
        (
            Act.KILL_AFTER_HOOK,
            Journal("after_failed", {"reason": "after: was killed by a second stop", "text": ""}),
            SetState({"after": "after: was killed by a second stop"}), Act.SCAN_OUTSIDE,
            GangStop(STOPPED), *stopping(STOPPED.reason, 5.0),
        ),
    ),
    "the client leaves before GO": (
        run_of(Phase.READY), events.Notice.CLIENT_LEFT, Phase.ENDING,
        (*stopping("the client disconnected before GO", 0), KILL_ALL, tick_after(0.02)),
    ),
    "the client leaves after GO": (run_of(Phase.RUNNING), events.Notice.CLIENT_LEFT, Phase.RUNNING, ()),
    "time is up": (
        run_of(Phase.RUNNING, spec={"time_limit": 60.0}), events.Notice.TIME_IS_UP, Phase.ENDING,
        (
            GangStop(StopOrder("time limit of 1m", 5.0, TIME)),
            *stopping("time limit of 1m", 5.0), Act.TERMINATE_TORCHRUN, tick_after(5.0),
        ),
    ),
    "time is up after a failure": (
        observed(run_of(Phase.ENDING), first_failure="rank 0 exited with 3"), events.Notice.TIME_IS_UP,
        Phase.ENDING, (),
    ),
    "without its guardian a run ends at once": (
        run_of(Phase.RUNNING), events.Notice.GUARDIAN_LOST, Phase.ENDING,
        (
            Journal("guardian_lost", {}), GangFailure("the guardian was killed"), KILL_ALL, tick_after(0.02),
        ),
    ),
    "without its guardian a spare leaves": (
        run_of(Phase.SPARE, restartable=True), events.Notice.GUARDIAN_LOST, Phase.SPARE,
        (
            Journal("guardian_lost", {}),
            Journal("ended", {"state": "FAILED", "reason": "the guardian was killed", "ended": [], "left": []}),
            SetState({"state": "FAILED", "reason": "the guardian was killed", "gave_up": None}, roster=True),
            SendClient("ended", {"state": "FAILED", "reason": "the guardian was killed"}),
            Act.CLOSE_CLIENT, Act.UNLOCK, Act.GANG_LEAVE,
        ),
    ),
    "an error of our own after the recorded end": (
        run_of(Phase.ENDED)._replace(final=True), events.AgentFailed("the agent failed: E"), Phase.ENDED,
        (Journal("agent_failed", {"reason": "the agent failed: E"}), Act.GANG_LEAVE),
    ),
    "nothing remains": (
        run_of(Phase.ENDING), events.Remaining([]), Phase.AFTER, (CancelTimer("end"), CloseAttempt([])),
    ),
    "what outlives torchrun gets SIGTERM and a second": (
        run_of(Phase.RUNNING, torchrun_runs=False), events.Remaining([SLEEP]), Phase.RUNNING,
        (SignalAll([SLEEP], kill=False), tick_after(0.02)),
    ),
    "the end is judged": (
        observed(run_of(Phase.AFTER), first_failure="rank 0 exited with 3"), events.AllEnded([], [], {}),
        Phase.AFTER, (BuildPart("FAILED", "rank 0 exited with 3"),),
    ),
    "`after` runs before the end is told": (
        run_of(Phase.AFTER), events.PartBuilt(PART, True), Phase.AFTER,
        (SetState({"after": ""}), Journal("after", {}), StartAfter("FAILED", "rank 0 exited with 3")),
    ),
    "nothing of the job was started: no `after`": (
        observed(run_of(Phase.AFTER), started=False), events.PartBuilt(PART, True), Phase.ENDED,
        (
            Act.CONCLUDE_LOGS, SaveRecord(PART),
            Journal("ended", {"state": "FAILED", "reason": PART["reason"], "ended": [], "left": []}),
            SetState({"state": "FAILED", "reason": PART["reason"], "left": []}),
            SendClient("ended", {"state": "FAILED", "reason": PART["reason"]}),
            Act.CLOSE_CLIENT, Act.UNLOCK, GangEnd(PART),
        ),
    ),
    "with restarts the gang decides": (
        run_of(Phase.AFTER, restartable=True)._replace(part=PART), events.OutsideRead({"files": 1}), Phase.ENDED,
        (
            SetState({"outside": {"files": 1}}), Act.CONCLUDE_LOGS,
            Journal(
                "attempt_ended",
                {"attempt": 1, "state": "FAILED", "reason": PART["reason"], "ended": [], "left": []},
            ),
            SetState({"state": "WAITING", "reason": "waits for the other nodes", "left": []}),
            GangEnd(PART),
        ),
    ),
    "the gang is told when the node is clear": (
        run_of(Phase.ENDED, restartable=True), events.Notice.GANG_REPORTED, Phase.ENDED, (Act.AWAIT_CLEARED,),
    ),
    "a gang that has decided already is not": (
        run_of(Phase.ENDED, restartable=True)._replace(final=True), events.Notice.GANG_REPORTED, Phase.ENDED, (),
    ),
    "memory in use makes a node unfit": (
        run_of(Phase.ENDED, restartable=True), events.Cleared(True, None), Phase.ENDED,
        (GangCleared("the memory of its GPUs is still in use", None),),
    ),
    "another attempt begins": (
        run_of(Phase.ENDED, restartable=True),
        events.AttemptCalled({**SPEC, "attempt": 2, "node_rank": 1}, 1, 40.0), Phase.PREPARING,
        (
            Journal("attempt", {"attempt": 2, "node_rank": 1}), CancelTimer("go"),
            SetState({"attempt": 2, "node_rank": 1, "ranks": {}, "torchrun": None, "master": None}, roster=True),
            SetState({"began": TIME_NOW}), StartTimer("time limit", 40.0, events.Notice.TIME_IS_UP),
            BeginAttempt({**SPEC, "attempt": 2, "node_rank": 1}),
            StartTimer("go", 600.0, events.Cancelled("no GO arrived")), Act.START_PROGRESS, OpenPorts(False, False),
        ),
    ),
    "another attempt without this node": (
        run_of(Phase.SPARE, restartable=True),
        events.AttemptCalled({**SPEC, "attempt": 2, "node_rank": 2}, None, None), Phase.SPARE,
        (
            Journal("attempt", {"attempt": 2, "node_rank": None}), CancelTimer("go"),
            SetState({"attempt": 2, "node_rank": 2, "ranks": {}, "torchrun": None, "master": None}, roster=True),
            BeginAttempt({**SPEC, "attempt": 2, "node_rank": 2}), SetState({"state": "WAITING", "reason": "spare"}),
        ),
    ),
    "a spare that was not needed": (
        run_of(Phase.SPARE, restartable=True), events.Concluded({"state": "", "gave_up": None}), Phase.SPARE,
        (
            Journal("ended", {"state": "SUCCEEDED", "reason": "this spare was not needed", "ended": [], "left": []}),
            SetState(
                {"state": "SUCCEEDED", "reason": "this spare was not needed", "gave_up": None}, roster=True
            ),
            SendClient("ended", {"state": "SUCCEEDED", "reason": "this spare was not needed"}),
            Act.CLOSE_CLIENT, Act.UNLOCK,
        ),
    ),
    "the end is recorded once": (
        run_of(Phase.ENDED, restartable=True)._replace(final=True), events.Concluded({"state": "FAILED"}),
        Phase.ENDED, (),
    ),
    "nothing of the gang is left": (run_of(Phase.ENDED), events.Notice.GANG_DONE, Phase.ENDED, (Act.LEAVE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    """A state and an event give a phase and actions."""
    state, event, phase, actions = CASES[name]
    after, done = transition(state, event)

    assert (after.phase, done) == (phase, actions)


def classes_in(module: Any) -> set[type]:
    """Return the values that a module defines."""
    found = (value for _, value in inspect.getmembers(module, inspect.isclass))
    return {value for value in found if value.__module__ == module.__name__}


def test_every_event_has_a_row_and_every_action_somebody_who_performs_it() -> None:
    """What is defined is used."""
    executor = object.__new__(Executor)

    assert {event for _, event in TABLE} == classes_in(events) - {events.Notice} | set(events.Notice)
    assert set(executor._performers()) == classes_in(action_values) - {Act}
    assert set(executor._act_performers()) == set(Act)


def test_a_later_stop_does_not_prolong_an_earlier_one() -> None:
    """Whoever stops with a long grace after somebody with a short one waits for the short one."""
    state = run_of(Phase.RUNNING)
    waits = []
    for grace in (30.0, 300.0, 5.0, 60.0):
        state, actions = transition(state, events.StopOrdered(STOPPED._replace(grace=grace)))
        waits += [action.seconds for action in actions if isinstance(action, StartTimer)]

    assert waits == [30.0, 30.0, 5.0, 5.0]


def test_no_time_left_is_a_time_limit() -> None:
    """An attempt that is called in at the very end of the job's time ends at once."""
    called = events.AttemptCalled({**SPEC, "attempt": 2}, 0, 0.0)
    _, actions = transition(run_of(Phase.SPARE, restartable=True), called)

    assert StartTimer("time limit", 0.0, events.Notice.TIME_IS_UP) in actions


def test_workers_are_killed_before_torchrun_which_may_still_report() -> None:
    """It has 0.7 s for its table of failures."""
    state, _ = transition(run_of(Phase.RUNNING), failed_rank())
    at = [NOW + wait for wait in (0.5, 1.0, 1.7)]
    kills = [transition(state._replace(now=now), events.Notice.TICK)[1] for now in at]

    assert [tick[0] for tick in kills] == [
        tick_after(0.5),
        KillBelow(spare_torchrun=True),
        KillBelow(spare_torchrun=False),
    ]


def test_what_sigkill_does_not_end_is_left_in_the_end() -> None:
    """As a process in the kernel's D state."""
    state, _ = transition(run_of(Phase.RUNNING, torchrun_runs=False), events.Remaining([SLEEP]))
    killed, actions = transition(state._replace(now=NOW + 1.0), events.Remaining([SLEEP]))
    late = killed._replace(now=NOW + 1.0 + UNKILLABLE_AFTER)
    over, last = transition(late, events.Remaining([SLEEP]))

    assert actions[0] == SignalAll([SLEEP], kill=True)
    assert (over.phase, last[1]) == (Phase.AFTER, CloseAttempt([SLEEP]))


@pytest.mark.parametrize(
    ("phase", "changes", "recorded", "expected"),
    [
        (Phase.RUNNING, {}, False, True),
        (Phase.RUNNING, {"failing": True}, False, False),
        (Phase.AFTER, {}, False, False),
        (Phase.ENDED, {"final": True}, True, True),
        (Phase.ENDED, {"final": True, "failing": True}, True, False),
        (Phase.ENDED, {"final": True}, False, False),  # an action before the one that records the end failed
        (Phase.ENDED, {"final": True, "restartable": True}, False, False),
        (Phase.SPARE, {"final": True, "restartable": True}, False, False),
        (Phase.ENDED, {"restartable": True}, False, True),
    ],
)
def test_an_error_that_the_agent_can_still_record(
    phase: Phase, changes: Any, recorded: bool, expected: bool
) -> None:
    """Any other ends the agent, and the guardian does the rest."""
    assert can_end_in_order(run_of(phase)._replace(**changes), recorded=recorded) is expected


@pytest.mark.parametrize("phase", [Phase.AFTER, Phase.ENDED])
def test_a_failure_that_is_seen_after_the_last_process_sets_no_kill(phase: Phase) -> None:
    """The next attempt may have begun when it came: that has a torchrun yet to start, and would count as ended."""
    _, actions = transition(run_of(phase, restartable=True), failed_rank())
    assert GangFailure("rank 0 exited with 3") in actions
    assert not [action for action in actions if isinstance(action, StartTimer)]


# Whatever arrives when, a run ends once, and nothing is started once a cause of the end is known.

OUTSIDE: list[Any] = [
    events.ClientGo(PORT),
    events.Notice.CLIENT_LEFT,
    events.Cancelled("no GO arrived"),
    events.StopRequested(STOPPED),
    events.StopOrdered(STOPPED._replace(kind=FAILURE)),
    events.Notice.TIME_IS_UP,
    events.Notice.GUARDIAN_LOST,
    events.AgentFailed("the agent failed: E"),
    failed_rank(),
    exited(0),
    exited(1, text="EADDRINUSE", has_workers=False),
    events.Notice.SETUP_ORDERED,
    events.Notice.BEFORE_ORDERED,
]


def answers_to(action: Action, chance: random.Random) -> list[Any]:
    """Return what executors would post."""
    if isinstance(action, StartHelper):
        done = events.Notice.SETUP_MADE if action.stage == "setup" else events.Notice.BEFORE_DONE
        return [chance.choice([done, done, events.HelperFailed("before: x", {})])]
    if isinstance(action, StartTimer):
        return [action.event] if action.name == "end" else []
    answers: dict[Any, list[Any]] = {
        OpenPorts: [events.PortsOpened(chance.random() < 0.5, PORT, True)],
        StartGate: [events.GateStarted(TORCHRUN), events.GateReady(TORCH)],
        AwaitListener: [events.Listened(True, "")],
        Act.FIND_REMAINING: [events.Remaining([SLEEP] if chance.random() < 0.3 else [])],
        KillBelow: [exited(None, 9)],
        CloseAttempt: [events.AllEnded([], [], {})],
        BuildPart: [events.PartBuilt(PART, chance.random() < 0.5)],
        StartAfter: [events.AfterEnded()],
        Act.SCAN_OUTSIDE: [events.OutsideRead(None)],
    }
    return answers.get(action if isinstance(action, Act) else type(action), [])


@pytest.mark.parametrize("seed", first(60, map(str, range(300))))
def test_a_run_ends_once_whatever_comes(seed: str) -> None:
    """Random orders and losses at random moments, over a model of the executors."""
    chance = random.Random(int(seed))
    spec = {**SPEC, "setup": {"kind": "venv"}, "before": {"steps": []}, "time_limit": 60.0}
    state = RunState(new_attempt(spec, idle=False), False, now=NOW, time=TIME_NOW)
    pending: list[Any] = [events.Notice.PREPARED, events.Notice.SETUP_ORDERED, events.Notice.BEFORE_ORDERED]
    done: list[Action] = []
    for count in range(400):
        if state.phase is Phase.ENDED:
            break
        arrives = not pending or chance.random() < 0.15
        event = chance.choice(OUTSIDE) if arrives else pending.pop(0)
        before = state
        state, actions = transition(state._replace(now=NOW + count * 0.5), event)
        if before.attempt.has_cause:
            assert not {StartGate, SendGo} & {type(action) for action in actions}, (event, actions)
        assert state.attempt.kill.all_at <= before.attempt.kill.all_at
        for action in actions:
            pending += answers_to(action, chance)
        done += actions

    assert state.phase is Phase.ENDED
    assert [action.event for action in done if isinstance(action, Journal)].count("ended") == 1
    assert isinstance(done[-1], GangEnd)


def test_an_attempt_is_a_value() -> None:
    """Nobody can change it in passing."""
    attempt = new_attempt(SPEC, idle=False)
    with pytest.raises(AttributeError):
        attempt.phase = Phase.ENDED  # type: ignore[misc]  # that it fails is the point
    assert isinstance(attempt, AttemptState)


def test_a_program_that_served_node_0_has_succeeded_however_it_ended() -> None:
    """Whether it failed a moment before, is ended with SIGTERM, or is killed."""
    spec = {**SERVED, "node_rank": 1}
    order = events.StopOrdered(StopOrder("node 0 has ended", 5.0, DONE))
    running = run_of(Phase.RUNNING, spec=spec)
    held = run_of(Phase.RUNNING, spec=spec, held_failure="rank 1 exited with 1", torchrun_runs=False)
    for before, code in ((running, -15), (held, 1)):
        state, actions = transition(before, order)
        assert (Act.FIND_REMAINING in actions) == (state.attempt.torchrun_runs is False)
        observed_end = state.attempt.observed._replace(exit=code)
        assert judge(observed_end) == ("SUCCEEDED", "")
    failed = transition(running.observe(first_failure="rank 1 exited with 3"), order)[0]
    assert judge(failed.attempt.observed)[0] == "FAILED"
