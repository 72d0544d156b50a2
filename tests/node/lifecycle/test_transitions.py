"""The table of the agent, as plain values: which state and which actions follow an event."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from recorded_effects import Call, call, transition

from clusterctl.node.lifecycle import ending, starting
from clusterctl.node.lifecycle.ending import judge
from clusterctl.node.lifecycle.run import AttemptState, KillTimes, Phase, RunState, new_attempt
from clusterctl.node.lifecycle.transitions import PHASES
from clusterctl.node.runtime.processes import UNKILLABLE_AFTER, Stat
from clusterctl.node.supervise.agent import can_end_in_order
from clusterctl.protocol.messages.gang import Failed, StopOrder
from clusterctl.protocol.reasons import DONE, FAILURE, STOP, TIME

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
        started=started,
        torchrun_runs=phase in (Phase.READY, Phase.RUNNING, Phase.ENDING),
    )
    return RunState(base._replace(**attempt), restartable, now=NOW, time=TIME_NOW)


def exited(code: int | None, signal: int | None = None, **facts: Any) -> Any:
    """Torchrun's end."""
    entry: Any = {**TORCHRUN, "exit": code, "signal": signal}
    usual = {"text": "", "has_workers": True, "unseen_failure": "", "in_environment": False}
    return partial(starting.on_torchrun_exited, entry=entry, **{**usual, **facts})


def failed_rank(rank: int = 0, **facts: Any) -> Any:
    """A worker that exits with 3."""
    usual = {"pid": 8, "exit_code": 3, "signal": None, "failure": f"rank {rank} exited with 3"}
    return partial(ending.on_rank_exited, rank=rank, **{**usual, **facts})


def tick_after(seconds: float) -> Call:
    """The next moment of the kill schedule."""
    return call.start_timer("end", seconds, partial(ending.on_tick))


def stopping(reason: str, grace: float) -> tuple[Call, ...]:
    """What is recorded of a stop."""
    return call.scan_output(), call.journal("stopping", {"reason": reason, "grace": grace})


MPIRUN = {"module": None, "mpi": {"slots": [2, 2]}}
SERVED = {"ends_with": "node 0", "module": None, "world_size": 2}
KILL_ALL = call.kill_below(spare_torchrun=False)
EXIT_3 = {"rank": 0, "pid": 8, "exit": 3, "signal": None}
GATE_FAILED = {"text": "no torch", "code": ""}

# name: state, event, the phase that follows, the actions
CASES: dict[str, tuple[RunState, Any, Phase, tuple[Call, ...]]] = {
    "the start holds a port and opens the gang": (
        run_of(Phase.PREPARING), partial(starting.on_prepared), Phase.PREPARING,
        (call.open_ports(hold=True, gang=True),),
    ),
    "a spare holds no port": (run_of(Phase.IDLE), partial(starting.on_prepared), Phase.IDLE,
        (call.open_ports(hold=False, gang=True),)),
    "a spare is ready to be called in": (
        run_of(Phase.IDLE), partial(starting.on_ports_opened, has_environment=True, port=None, locked=True),
        Phase.IDLE,
        (call.set_state({"state": "WAITING", "reason": "spare"}), call.send_client("started", {})),
    ),
    "a spare that waits for a lock is not": (
        run_of(Phase.IDLE), partial(starting.on_ports_opened, has_environment=True, port=None, locked=False),
        Phase.IDLE, (call.send_client("started", {}),),
    ),
    "with its environment there the gate is started": (
        run_of(Phase.PREPARING), partial(starting.on_ports_opened, has_environment=True, port=PORT, locked=True),
        Phase.PREPARING, (call.start_gate(),),
    ),
    "without its environment the client is asked for it": (
        run_of(Phase.PREPARING, spec={"setup": {"kind": "venv"}}),
        partial(starting.on_ports_opened, has_environment=False, port=PORT, locked=True), Phase.PREPARING,
        (call.send_client("setup", {"made": False}), call.send_client("started", {}),
        call.send_client("port", {"port": PORT})),
    ),
    "the gate's start is recorded, then reported": (
        run_of(Phase.PREPARING, held_port=PORT), partial(starting.on_gate_started, entry=TORCHRUN), Phase.PREPARING,
        (call.set_state({"torchrun": TORCHRUN}), call.send_client("started", TORCHRUN),
        call.send_client("port", {"port": PORT})),
    ),
    "a gate that starts while a stop waits its turn is ended": (
        run_of(Phase.ENDING, torchrun_runs=False, kill=KillTimes(NOW, NOW)),
        partial(starting.on_gate_started, entry=TORCHRUN),
        Phase.ENDING, (call.set_state({"torchrun": TORCHRUN}), KILL_ALL, tick_after(0.02)),
    ),
    "setup runs once": (
        run_of(Phase.PREPARING, helper="setup", spec={"setup": {"kind": ""}}), partial(starting.on_setup_ordered),
        Phase.PREPARING, (),
    ),
    "the environment is made, and the gate starts in it": (
        run_of(Phase.PREPARING, helper="setup"), partial(starting.on_setup_made), Phase.PREPARING,
        (call.set_state({"reason": ""}), call.journal("setup_done", {}), call.send_client("environment", {}),
        call.start_gate()),
    ),
    "a gate that is ready waits for `before`": (
        run_of(Phase.PREPARING, before_pending=True), partial(starting.on_gate_ready, torch=TORCH), Phase.PREPARING,
        (),
    ),
    "`before` was what the gate waited for": (
        run_of(Phase.PREPARING, before_pending=True, gate=TORCH), partial(starting.on_before_done), Phase.READY,
        (call.journal("ready", READY), call.send_client("ready", READY)),
    ),
    "GO before the gate is ready waits for it": (
        run_of(Phase.PREPARING), partial(starting.on_client_go, port=PORT), Phase.PREPARING, (),
    ),
    "a node but node 0 is let go, and its client leaves": (
        run_of(Phase.READY), partial(starting.on_client_go, port=PORT), Phase.RUNNING,
        (
            call.cancel_timer("go"), call.send_go("10.0.0.1", PORT),
            call.set_state({"state": "RUNNING", "reason": "", "master": f"10.0.0.1:{PORT}"}),
            call.journal("go_received", {"master": f"10.0.0.1:{PORT}"}), call.send_client("go_received", {}),
            call.gang.on_go(),
            call.set_state({"began": TIME_NOW}), call.close_client(),
        ),
    ),
    "node 0 waits until torchrun listens": (
        run_of(Phase.READY, held_port=PORT), partial(starting.on_client_go, port=PORT), Phase.RUNNING,
        (
            call.cancel_timer("go"), call.send_go("10.0.0.1", PORT),
            call.set_state({"state": "RUNNING", "reason": "", "master": f"10.0.0.1:{PORT}"}),
            call.journal("go_received", {"master": f"10.0.0.1:{PORT}"}), call.send_client("go_received", {}),
            call.gang.on_go(),
            call.await_listener(PORT),
        ),
    ),
    "the time limit counts from then": (
        run_of(Phase.RUNNING, port=PORT, spec={"time_limit": 60.0}),
        partial(starting.on_listened, listens=True, text=""), Phase.RUNNING,
        (
            call.set_state({"began": TIME_NOW}), call.start_timer("time limit", 60.0, partial(ending.on_time_is_up)),
            call.journal("listening", {"port": PORT}), call.send_client("listening", {"port": PORT}),
            call.close_client(),
        ),
    ),
    "a spare's GO": (
        run_of(Phase.IDLE), partial(starting.on_client_go, port=PORT), Phase.SPARE,
        (call.cancel_timer("go"), call.send_client("go_received", {}), call.gang.on_go(), call.close_client(),
         call.start_spare_gate()),
    ),
    "a client's GO after the gang's only sends it away": (
        run_of(Phase.PREPARING, is_first=False), partial(starting.on_client_go, port=PORT), Phase.PREPARING,
        (call.send_client("go_received", {}), call.close_client()),
    ),
    "a GO after the end of an attempt is not followed": (
        run_of(Phase.ENDED, is_first=False), partial(starting.on_gang_go, address="10.0.0.2", port=PORT), Phase.ENDED,
        (),
    ),
    "a port that somebody took costs another gate": (
        run_of(Phase.RUNNING, held_port=PORT, awaits_listener=True, port=PORT),
        exited(1, text="EADDRINUSE", has_workers=False), Phase.PREPARING,
        (
            call.release_port(), call.journal("port_taken", {"port": PORT}), call.set_state({"state": "PREPARING"}),
            call.start_gate(other_port=True),
        ),
    ),
    "but not for ever": (
        run_of(Phase.RUNNING, held_port=PORT, awaits_listener=True, port=PORT, ports_tried=3),
        exited(1, text="EADDRINUSE", has_workers=False), Phase.ENDING,
        (
            call.set_state({"torchrun": {**TORCHRUN, "exit": 1}}),
            call.journal("torchrun_exited", {"exit": 1, "signal": None, "program": "torchrun"}),
            call.gang.report(Failed(1, "torchrun exited with 1")), tick_after(1.0),
            call.release_port(), call.set_state({"began": TIME_NOW}),
            call.send_client("failed", {"text": "EADDRINUSE", "port_taken": True}), call.close_client(),
            call.find_remaining(),
        ),
    ),
    "a gate that fails": (
        run_of(Phase.READY), exited(1, text="Traceback\nno torch"), Phase.ENDING,
        (
            call.set_state({"torchrun": {**TORCHRUN, "exit": 1}}),
            call.journal("gate_failed", {"text": "Traceback\nno torch", "code": ""}),
            call.send_client("gate_failed", {"text": "Traceback\nno torch", "code": ""}), KILL_ALL,
            call.find_remaining(),
        ),
    ),
    "a step of the start that fails": (
        run_of(Phase.PREPARING),
        partial(starting.on_step_failed, reason="no torch", text="no torch", code="", in_environment=False),
        Phase.ENDING,
        (call.journal("gate_failed", GATE_FAILED), call.send_client("gate_failed", GATE_FAILED), KILL_ALL,
        call.find_remaining()),
    ),
    "a setup that our own kill ended is no cause": (
        run_of(Phase.ENDING).change(started=False),
        partial(starting.on_helper_failed, reason="setup: was killed", facts={}), Phase.ENDING, (),
    ),
    "a worker that ends well is recorded": (
        run_of(Phase.RUNNING), failed_rank(exit_code=0, failure=""), Phase.RUNNING,
        (call.journal("rank_exited", {**EXIT_3, "exit": 0}), call.record_workers(0)),
         # type: ignore[arg-type]  # a rank by value
    ),
    "a worker that fails gives the others a second": (
        run_of(Phase.RUNNING), failed_rank(), Phase.ENDING,
        (
            call.journal("rank_exited", EXIT_3), call.record_workers(0),  # type: ignore[arg-type]  # a rank by value
            call.gang.report(Failed(1, "rank 0 exited with 3")), tick_after(1.0),
        ),
    ),
    "the second failure is no cause": (
        run_of(Phase.ENDING).change(first_failure="rank 1 exited with 7"), failed_rank(), Phase.ENDING,
        (call.journal("rank_exited", EXIT_3), call.record_workers(0)),  # type: ignore[arg-type]  # a rank by value
    ),
    "torchrun that ends well leaves what outlives it": (
        run_of(Phase.RUNNING), exited(0), Phase.RUNNING,
        (
            call.set_state({"torchrun": {**TORCHRUN, "exit": 0}}),
            call.journal("torchrun_exited", {"exit": 0, "signal": None, "program": "torchrun"}), call.find_remaining(),
        ),
    ),
    "a stop gives the workers the grace": (
        run_of(Phase.RUNNING), partial(ending.on_stop_ordered, order=STOPPED), Phase.ENDING,
        (*stopping(STOPPED.reason, 5.0), call.terminate_torchrun(), tick_after(5.0)),
    ),
    "a person's stop is one on all nodes": (
        run_of(Phase.RUNNING), partial(ending.on_stop_requested, order=STOPPED), Phase.ENDING,
        (call.gang.report(STOPPED), *stopping(STOPPED.reason, 5.0), call.terminate_torchrun(), tick_after(5.0)),
    ),
    "a stop after a failure sends no second SIGTERM": (
        run_of(Phase.ENDING).change(first_failure="rank 0 exited with 3"),
        partial(ending.on_stop_ordered, order=STOPPED),
        Phase.ENDING, (*stopping(STOPPED.reason, 5.0), tick_after(5.0)),
    ),
    "a stop before GO ends everything at once": (
        run_of(Phase.READY), partial(ending.on_stop_ordered, order=STOPPED), Phase.ENDING,
        (*stopping(STOPPED.reason, 0), KILL_ALL, tick_after(0.02)),
    ),
    "a stop once nothing runs is recorded": (
        run_of(Phase.ENDED), partial(ending.on_stop_ordered, order=STOPPED), Phase.ENDED,
        stopping(STOPPED.reason, 5.0),
    ),
    "the end of node 0's program ends those that serve it": (
        run_of(Phase.RUNNING, spec=SERVED), exited(0), Phase.RUNNING,
        (
            call.set_state({"torchrun": {**TORCHRUN, "exit": 0}}),
            call.journal("torchrun_exited", {"exit": 0, "signal": None, "program": "launcher"}),
            call.gang.report(StopOrder("node 0 has ended", 5.0, DONE)), call.find_remaining(),
        ),
    ),
    "a program that serves node 0's may fail because that has ended": (
        run_of(Phase.RUNNING, spec={**SERVED, "node_rank": 1}), failed_rank(), Phase.RUNNING,
        (
            call.journal("failure_held", {"reason": "rank 0 exited with 3"}),
            call.start_timer("held failure", 10.0, partial(ending.on_held_over)),
            call.journal("rank_exited", EXIT_3), call.record_workers(0),
        ),
    ),
    "its end is not the end of this node's part": (
        run_of(Phase.RUNNING, spec={**SERVED, "node_rank": 1}, held_failure="rank 1 exited with 1"),
        exited(1), Phase.RUNNING,
        (call.set_state({"torchrun": {**TORCHRUN, "exit": 1}}),
        call.journal("torchrun_exited", {"exit": 1, "signal": None, "program": "launcher"})),
    ),
    "node 0's program goes on: the failure counts": (
        run_of(
            Phase.RUNNING, spec={**SERVED, "node_rank": 1}, held_failure="rank 1 exited with 1",
            torchrun_runs=False,
        ),
        partial(ending.on_held_over), Phase.ENDING,
        (call.gang.report(Failed(1, "rank 1 exited with 1")), tick_after(1.0), call.find_remaining()),
    ),
    "a failure elsewhere is no matter of a spare": (
        run_of(Phase.SPARE), partial(ending.on_stop_ordered, order=STOPPED._replace(kind=FAILURE)), Phase.SPARE, (),
    ),
    "a second stop does not wait for `after`": (
        run_of(Phase.AFTER, after_runs=True)._replace(stops=1), partial(ending.on_stop_requested, order=STOPPED),
        Phase.AFTER,
        (
            call.kill_after_hook(),
            call.journal("after_failed", {"reason": "after: was killed by a second stop", "text": ""}),
            call.set_state({"after": "after: was killed by a second stop"}), call.scan_outside(),
            call.gang.report(STOPPED), *stopping(STOPPED.reason, 5.0),
        ),
    ),
    "the client leaves before GO": (
        run_of(Phase.READY), partial(ending.on_client_left), Phase.ENDING,
        (*stopping("the client disconnected before GO", 0), KILL_ALL, tick_after(0.02)),
    ),
    "the client leaves after GO": (run_of(Phase.RUNNING), partial(ending.on_client_left), Phase.RUNNING, ()),
    "time is up": (
        run_of(Phase.RUNNING, spec={"time_limit": 60.0}), partial(ending.on_time_is_up), Phase.ENDING,
        (
            call.gang.report(StopOrder("time limit of 1m", 5.0, TIME)),
            *stopping("time limit of 1m", 5.0), call.terminate_torchrun(), tick_after(5.0),
        ),
    ),
    "time is up after a failure": (
        run_of(Phase.ENDING).change(first_failure="rank 0 exited with 3"), partial(ending.on_time_is_up),
        Phase.ENDING, (),
    ),
    "without its guardian a run ends at once": (
        run_of(Phase.RUNNING), partial(ending.on_guardian_lost), Phase.ENDING,
        (
            call.journal("guardian_lost", {}), call.gang.report(Failed(1, "the guardian was killed")), KILL_ALL,
            tick_after(0.02),
        ),
    ),
    "without its guardian a spare leaves": (
        run_of(Phase.SPARE, restartable=True), partial(ending.on_guardian_lost), Phase.SPARE,
        (
            call.journal("guardian_lost", {}),
            call.journal("ended", {"state": "FAILED", "reason": "the guardian was killed", "ended": [], "left": []}),
            call.set_state({"state": "FAILED", "reason": "the guardian was killed", "gave_up": None}, roster=True),
            call.send_client("ended", {"state": "FAILED", "reason": "the guardian was killed"}),
            call.close_client(), call.unlock(), call.gang.leave(),
        ),
    ),
    "an error of our own after the recorded end": (
        run_of(Phase.ENDED)._replace(final=True), partial(ending.on_agent_failed, reason="the agent failed: E"),
        Phase.ENDED,
        (call.journal("agent_failed", {"reason": "the agent failed: E"}), call.gang.leave()),
    ),
    "nothing remains": (
        run_of(Phase.ENDING), partial(ending.on_remaining, processes=[]), Phase.AFTER,
        (call.cancel_timer("end"), call.close([], started=True)),
    ),
    "what outlives torchrun gets SIGTERM and a second": (
        run_of(Phase.RUNNING, torchrun_runs=False), partial(ending.on_remaining, processes=[SLEEP]), Phase.RUNNING,
        (call.signal_all([SLEEP], kill=False), tick_after(0.02)),
    ),
    "the end is judged": (
        run_of(Phase.AFTER).change(first_failure="rank 0 exited with 3"),
        partial(ending.on_all_ended, leftovers=[], signalled=[], worlds={}),
        Phase.AFTER, (call.build_part("FAILED", "rank 0 exited with 3", alone=None),),
    ),
    "`after` runs before the end is told": (
        run_of(Phase.AFTER), partial(ending.on_part_built, part=PART, has_after=True), Phase.AFTER,
        (call.set_state({"after": ""}), call.journal("after", {}),
        call.start_after("FAILED", "rank 0 exited with 3")),
    ),
    "nothing of the job was started: no `after`": (
        run_of(Phase.AFTER).change(started=False), partial(ending.on_part_built, part=PART, has_after=True),
        Phase.ENDED,
        (
            call.conclude_logs(), call.save_record(PART),
            call.journal("ended", {"state": "FAILED", "reason": PART["reason"], "ended": [], "left": []}),
            call.set_state({"state": "FAILED", "reason": PART["reason"], "left": []}),
            call.send_client("ended", {"state": "FAILED", "reason": PART["reason"]}),
            call.close_client(), call.unlock(), call.report_end(PART),
        ),
    ),
    "with restarts the gang decides": (
        run_of(Phase.AFTER, restartable=True)._replace(part=PART),
        partial(ending.on_outside_read, summary={"files": 1}), Phase.ENDED,
        (
            call.set_state({"outside": {"files": 1}}), call.conclude_logs(),
            call.journal(
                "attempt_ended",
                {"attempt": 1, "state": "FAILED", "reason": PART["reason"], "ended": [], "left": []},
            ),
            call.set_state({"state": "WAITING", "reason": "waits for the other nodes", "left": []}),
            call.report_end(PART),
        ),
    ),
    "the gang is told when the node is clear": (
        run_of(Phase.ENDED, restartable=True), partial(ending.on_gang_reported), Phase.ENDED, (call.await_cleared(),),
    ),
    "a gang that has decided already is not": (
        run_of(Phase.ENDED, restartable=True)._replace(final=True), partial(ending.on_gang_reported), Phase.ENDED, (),
    ),
    "memory in use makes a node unfit": (
        run_of(Phase.ENDED, restartable=True), partial(ending.on_cleared, memory_held=True, progress=None),
        Phase.ENDED,
        (call.gang.on_cleared("the memory of its GPUs is still in use", None),),
    ),
    "another attempt begins": (
        run_of(Phase.ENDED, restartable=True),
        partial(starting.on_attempt_called, spec={**SPEC, "attempt": 2, "node_rank": 1}, node_rank=1, time_left=40.0),
        Phase.PREPARING,
        (
            call.journal("attempt", {"attempt": 2, "node_rank": 1}), call.cancel_timer("go"),
            call.set_state({"attempt": 2, "node_rank": 1, "ranks": {}, "torchrun": None, "master": None},
            roster=True),
            call.set_state({"began": TIME_NOW}), call.start_timer("time limit", 40.0, partial(ending.on_time_is_up)),
            call.begin_attempt({**SPEC, "attempt": 2, "node_rank": 1}),
            call.start_timer("go", 600.0, partial(ending.on_cancelled, reason="no GO arrived")),
            call.start_progress(), call.open_ports(hold=False, gang=False),
        ),
    ),
    "another attempt without this node": (
        run_of(Phase.SPARE, restartable=True),
        partial(starting.on_attempt_called, spec={**SPEC, "attempt": 2, "node_rank": 2}, node_rank=None,
        time_left=None), Phase.SPARE,
        (
            call.journal("attempt", {"attempt": 2, "node_rank": None}), call.cancel_timer("go"),
            call.set_state({"attempt": 2, "node_rank": 2, "ranks": {}, "torchrun": None, "master": None},
            roster=True),
            call.begin_attempt({**SPEC, "attempt": 2, "node_rank": 2}),
            call.set_state({"state": "WAITING", "reason": "spare"}),
        ),
    ),
    "a spare that was not needed": (
        run_of(Phase.SPARE, restartable=True), partial(ending.on_concluded, end={"state": "", "gave_up": None}),
        Phase.SPARE,
        (
            call.journal("ended",
            {"state": "SUCCEEDED", "reason": "this spare was not needed", "ended": [], "left": []}),
            call.set_state(
                {"state": "SUCCEEDED", "reason": "this spare was not needed", "gave_up": None}, roster=True
            ),
            call.send_client("ended", {"state": "SUCCEEDED", "reason": "this spare was not needed"}),
            call.close_client(), call.unlock(),
        ),
    ),
    "the end is recorded once": (
        run_of(Phase.ENDED, restartable=True)._replace(final=True),
        partial(ending.on_concluded, end={"state": "FAILED"}),
        Phase.ENDED, (),
    ),
    "nothing of the gang is left": (run_of(Phase.ENDED), partial(ending.on_gang_done), Phase.ENDED, (call.leave(),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    """A state and an event give a phase and actions."""
    state, event, phase, actions = CASES[name]
    after, done = transition(state, event)

    assert (after.phase, done) == (phase, actions)


def test_every_event_has_a_row() -> None:
    """One that is in no table would be followed in no phase."""
    rules = [*vars(starting).items(), *vars(ending).items()]
    assert set(PHASES) == {rule for name, rule in rules if name.startswith("on_")}


def test_a_later_stop_does_not_prolong_an_earlier_one() -> None:
    """Whoever stops with a long grace after somebody with a short one waits for the short one."""
    state = run_of(Phase.RUNNING)
    waits = []
    for grace in (30.0, 300.0, 5.0, 60.0):
        state, actions = transition(
            state, partial(ending.on_stop_ordered, order=STOPPED._replace(grace=grace))
        )
        waits += [one.arguments["seconds"] for one in actions if one.name == "start_timer"]

    assert waits == [30.0, 30.0, 5.0, 5.0]


def test_no_time_left_is_a_time_limit() -> None:
    """An attempt that is called in at the very end of the job's time ends at once."""
    called = partial(starting.on_attempt_called, spec={**SPEC, "attempt": 2}, node_rank=0, time_left=0.0)
    _, actions = transition(run_of(Phase.SPARE, restartable=True), called)

    assert call.start_timer("time limit", 0.0, partial(ending.on_time_is_up)) in actions


def test_workers_are_killed_before_torchrun_which_may_still_report() -> None:
    """It has 0.7 s for its table of failures."""
    state, _ = transition(run_of(Phase.RUNNING), failed_rank())
    at = [NOW + wait for wait in (0.5, 1.0, 1.7)]
    kills = [transition(state._replace(now=now), partial(ending.on_tick))[1] for now in at]

    assert [tick[0] for tick in kills] == [
        tick_after(0.5),
        call.kill_below(spare_torchrun=True),
        call.kill_below(spare_torchrun=False),
    ]


def test_what_sigkill_does_not_end_is_left_in_the_end() -> None:
    """As a process in the kernel's D state."""
    state, _ = transition(
        run_of(Phase.RUNNING, torchrun_runs=False), partial(ending.on_remaining, processes=[SLEEP])
    )
    killed, actions = transition(
        state._replace(now=NOW + 1.0), partial(ending.on_remaining, processes=[SLEEP])
    )
    late = killed._replace(now=NOW + 1.0 + UNKILLABLE_AFTER)
    over, last = transition(late, partial(ending.on_remaining, processes=[SLEEP]))

    assert actions[0] == call.signal_all([SLEEP], kill=True)
    assert (over.phase, last[1]) == (Phase.AFTER, call.close([SLEEP], started=True))


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
    assert call.gang.report(Failed(1, "rank 0 exited with 3")) in actions
    assert "start_timer" not in [one.name for one in actions]


# Whatever arrives when, a run ends once, and nothing is started once a cause of the end is known.

OUTSIDE: list[Any] = [
    partial(starting.on_client_go, port=PORT),
    partial(ending.on_client_left),
    partial(ending.on_cancelled, reason="no GO arrived"),
    partial(ending.on_stop_requested, order=STOPPED),
    partial(ending.on_stop_ordered, order=STOPPED._replace(kind=FAILURE)),
    partial(ending.on_time_is_up),
    partial(ending.on_guardian_lost),
    partial(ending.on_agent_failed, reason="the agent failed: E"),
    failed_rank(),
    exited(0),
    exited(1, text="EADDRINUSE", has_workers=False),
    partial(starting.on_setup_ordered),
    partial(starting.on_before_ordered),
]


def answers_to(done: Call, chance: random.Random) -> list[Any]:
    """Return the events that the effects would post."""
    if done.name == "start_helper":
        made = starting.on_setup_made if done.arguments["stage"] == "setup" else starting.on_before_done
        failed = partial(starting.on_helper_failed, reason="before: x", facts={})
        return [chance.choice([partial(made), partial(made), failed])]
    if done.name == "start_timer":
        return [partial(ending.on_tick)] if done.arguments["name"] == "end" else []
    has_environment, found = chance.random() < 0.5, [SLEEP] if chance.random() < 0.3 else []
    answers: dict[str, list[Any]] = {
        "open_ports": [
            partial(starting.on_ports_opened, has_environment=has_environment, port=PORT, locked=True)
        ],
        "start_gate": [
            partial(starting.on_gate_started, entry=TORCHRUN),
            partial(starting.on_gate_ready, torch=TORCH),
        ],
        "await_listener": [partial(starting.on_listened, listens=True, text="")],
        "find_remaining": [partial(ending.on_remaining, processes=found)],
        "kill_below": [exited(None, 9)],
        "close": [partial(ending.on_all_ended, leftovers=[], signalled=[], worlds={})],
        "build_part": [partial(ending.on_part_built, part=PART, has_after=chance.random() < 0.5)],
        "start_after": [partial(ending.on_after_ended)],
        "scan_outside": [partial(ending.on_outside_read, summary=None)],
    }
    return answers.get(done.name, [])


@pytest.mark.parametrize("seed", range(50))
def test_a_run_ends_once_whatever_comes(seed: int) -> None:
    """Random orders and losses at random moments, over a model of the executors."""
    chance = random.Random(seed)
    spec = {**SPEC, "setup": {"kind": "venv"}, "before": {"steps": []}, "time_limit": 60.0}
    state = RunState(new_attempt(spec, idle=False), False, now=NOW, time=TIME_NOW)
    pending: list[Any] = [
        partial(starting.on_prepared),
        partial(starting.on_setup_ordered),
        partial(starting.on_before_ordered),
    ]
    done: list[Call] = []
    for count in range(400):
        if state.phase is Phase.ENDED:
            break
        arrives = not pending or chance.random() < 0.15
        event = chance.choice(OUTSIDE) if arrives else pending.pop(0)
        before = state
        state, actions = transition(state._replace(now=NOW + count * 0.5), event)
        if before.attempt.has_cause:
            assert not {"start_gate", "send_go"} & {one.name for one in actions}, (event, actions)
        assert state.attempt.kill.all_at <= before.attempt.kill.all_at
        for action in actions:
            pending += answers_to(action, chance)
        done += actions

    assert state.phase is Phase.ENDED
    assert [one.arguments["event"] for one in done if one.name == "journal"].count("ended") == 1
    assert done[-1].name == "report_end"


def test_an_attempt_is_a_value() -> None:
    """Nobody can change it in passing."""
    attempt = new_attempt(SPEC, idle=False)
    with pytest.raises(AttributeError):
        attempt.phase = Phase.ENDED  # type: ignore[misc]  # that it fails is the point
    assert isinstance(attempt, AttemptState)


def test_a_program_that_served_node_0_has_succeeded_however_it_ended() -> None:
    """Whether it failed a moment before, is ended with SIGTERM, or is killed."""
    spec = {**SERVED, "node_rank": 1}
    order = partial(ending.on_stop_ordered, order=StopOrder("node 0 has ended", 5.0, DONE))
    running = run_of(Phase.RUNNING, spec=spec)
    held = run_of(Phase.RUNNING, spec=spec, held_failure="rank 1 exited with 1", torchrun_runs=False)
    for before, code in ((running, -15), (held, 1)):
        state, actions = transition(before, order)
        assert (call.find_remaining() in actions) == (state.attempt.torchrun_runs is False)
        assert judge(state.attempt._replace(exit=code), {}) == ("SUCCEEDED", "")
    failed = transition(running.change(first_failure="rank 1 exited with 3"), order)[0]
    assert judge(failed.attempt, {})[0] == "FAILED"


@pytest.mark.parametrize(
    ("seen", "worlds", "state", "reason"),
    [
        ({}, {0: 4, 1: 4}, "SUCCEEDED", ""),
        ({}, {0: 4}, "FAILED", "1 of 2 workers were started"),
        ({}, {0: 4, 1: 1}, "FAILED", "rank 1 saw WORLD_SIZE 1, planned were 4"),
        ({"exit": 1}, {0: 4, 1: 4}, "FAILED", "torchrun exited with 1"),
        ({"exit": None, "signal": 9}, {0: 4, 1: 4}, "FAILED", "torchrun was killed by SIGKILL"),
        ({"exit": 1, "cancelled": "stopped"}, {}, "STOPPED", "stopped"),
        (
            {"exit": 1, "cancelled": "s", "first_failure": "rank 3 exited with 7"},
            {},
            "FAILED",
            "rank 3 exited with 7",
        ),
        ({"lost": "the guardian was killed"}, {0: 4, 1: 4}, "FAILED", "the guardian was killed"),
        ({"started": False, "lost": "gone"}, {}, "FAILED_SETUP", "gone"),
        ({"started": False, "gate_failed": "no torch"}, {}, "FAILED_SETUP", "no torch"),
        ({"started": False, "cancelled": "the client left"}, {}, "STOPPED", "the client left"),
    ],
)
def test_success_needs_exit_0_every_worker_and_the_planned_world(
    seen: dict[str, Any], worlds: Any, state: str, reason: str
) -> None:
    """A failure that came before a stop counts."""
    spec: Any = {**SPEC, "processes": 2, "world_size": 4}
    attempt = new_attempt(spec, idle=False)._replace(started=True, exit=0)
    assert judge(attempt._replace(**seen), worlds) == (state, reason)


def test_a_failure_names_the_launcher_that_it_was() -> None:
    """Open MPI's, or what a job runs itself, is not called torchrun."""
    for spec, name in (({}, "torchrun"), ({"module": None}, "launcher"), (MPIRUN, "mpirun")):
        failed = run_of(Phase.ENDING, spec=spec, exit=139).attempt
        assert judge(failed, {}) == ("FAILED", f"{name} exited with 139")
