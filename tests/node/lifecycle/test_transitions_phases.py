"""What ends a run in each phase, and the events that come in several phases, as plain values."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from recorded_effects import Call, call, transition

from clusterctl.node.lifecycle import ending, starting
from clusterctl.node.lifecycle.run import Phase, RunState, new_attempt
from clusterctl.node.runtime.processes import Stat
from clusterctl.protocol.messages.gang import StopOrder
from clusterctl.protocol.reasons import FAILURE, STOP

pytestmark = pytest.mark.unit

SPEC: dict[str, Any] = {
    "attempt": 1,
    "node_rank": 1,
    "module": "torch.distributed.run",
    "processes": 1,
    "world_size": 2,
    "master_addr": "10.0.0.1",
    "python": "/venv/bin/python",
    "grace": 5.0,
    "time_limit": 60.0,
}
SETUP = {"kind": "venv", "content": "0" * 64}
TORCHRUN = {"pid": 7, "starttime": 1, "exit": None, "signal": None}
FACTS = {"text": "boom", "code": "CC-SETUP-001"}
GOING_AND_GONE: tuple[Call, ...] = (call.send_client("go_received", {}), call.close_client())


def run_of(phase: Phase, *, restartable: bool = False, spec: Any = None, **attempt: Any) -> RunState:
    """Make a state in a phase, as it usually is; one that is ending was cancelled before GO."""
    idle = phase in (Phase.IDLE, Phase.SPARE)
    state = RunState(new_attempt({**SPEC, **(spec or {})}, idle=idle), restartable, now=100.0, time=1000.0)
    started = phase not in (Phase.IDLE, Phase.PREPARING, Phase.READY)
    runs = phase in (Phase.READY, Phase.RUNNING, Phase.ENDING)
    return state.change(phase=phase, **{"torchrun_runs": runs, "started": started, **attempt})


def summarize(state: RunState, actions: tuple[Call, ...]) -> str:
    """Name the phase, what is written into the journal, what is killed when, and what the gang is told."""
    words = [state.phase.name]
    named = {
        "gang.report": "gang",
        "gang.leave": "leave",
        "kill_below": "kill",
        "terminate_torchrun": "term",
    }
    for one in actions:
        if one.name == "journal":
            words.append(one.arguments["event"])
        elif one.name == "start_timer" and one.arguments["name"] == "end":
            words.append("soon")
        elif one.name in named:
            words.append(named[one.name])
    return " ".join(words)


ORDER = StopOrder("stopped by ann@laptop", 5.0, STOP)
WHAT_ENDS: dict[str, Any] = {
    "cancelled": partial(ending.on_cancelled, reason="no GO arrived"),
    "client left": partial(ending.on_client_left),
    "person's stop": partial(ending.on_stop_requested, order=ORDER),
    "gang's stop": partial(ending.on_stop_ordered, order=ORDER._replace(kind=FAILURE)),
    "time is up": partial(ending.on_time_is_up),
    "no guardian": partial(ending.on_guardian_lost),
    "own error": partial(ending.on_agent_failed, reason="the agent failed: E"),
}
NOW, SOON = (
    "ENDING stopping kill",
    "ENDING stopping kill soon",
)  # soon: torchrun, or the gate, may still report
LOST = ["ENDING guardian_lost gang kill"] * 3 + ["ENDING guardian_lost gang kill soon"] * 3
FAILED = [text.replace("guardian_lost", "agent_failed") for text in LOST]


def after_gang(summary: str) -> str:
    """Put the order to the others before what is done here."""
    phase, _, rest = summary.partition(" ")
    return f"{phase} gang {rest}"


# what ends it: what follows in IDLE, SPARE, PREPARING, READY, RUNNING, ENDING, AFTER, ENDED
OF_ANY_RUN: dict[str, list[str]] = {
    "cancelled": [NOW, NOW, NOW, SOON, SOON, SOON, "AFTER stopping", "ENDED stopping"],
    "client left": [NOW, "SPARE", NOW, SOON, "RUNNING", "ENDING", "AFTER", "ENDED"],
    "person's stop": [
        *(after_gang(NOW), "SPARE gang stopping", after_gang(NOW), after_gang(SOON)),
        *["ENDING gang stopping term soon"] * 2,
        *("AFTER gang stopping", "ENDED gang stopping"),
    ],
    "gang's stop": [
        *(NOW, "SPARE", NOW, SOON),
        *["ENDING stopping term soon"] * 2,
        *("AFTER stopping", "ENDED stopping"),
    ],
}
OF_A_RUN_WITHOUT_RESTARTS = {
    "no guardian": [*LOST, "AFTER guardian_lost gang", "ENDED guardian_lost gang"],
    "own error": [*FAILED, "AFTER agent_failed gang", "ENDED agent_failed gang"],
}
OF_A_RUN_WITH_RESTARTS = {
    # a spare, and a node between two attempts, leave the gang, which goes on without them
    "no guardian": [
        *("IDLE guardian_lost ended leave", "SPARE guardian_lost ended leave", *LOST[2:]),
        *("AFTER guardian_lost ended leave", "ENDED guardian_lost ended leave"),
    ],
    "own error": [
        *("IDLE agent_failed ended leave", "SPARE agent_failed ended leave", *FAILED[2:]),
        *("AFTER agent_failed ended leave", "ENDED agent_failed ended leave"),
    ],
}
OF_ANY_RUN["time is up"] = OF_ANY_RUN["person's stop"]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("name", WHAT_ENDS)
def test_what_ends_a_run_in_each_phase(name: str, phase: Phase) -> None:
    """Nothing that ends a run is ignored in any phase, but where it does not concern this node."""
    for restartable, more in ((False, OF_A_RUN_WITHOUT_RESTARTS), (True, OF_A_RUN_WITH_RESTARTS)):
        expected = {**OF_ANY_RUN, **more}[name][list(Phase).index(phase)]
        assert summarize(*transition(run_of(phase, restartable=restartable), WHAT_ENDS[name])) == expected


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.SPARE, Phase.PREPARING])
def test_an_environment_is_made_before_and_after_go(phase: Phase) -> None:
    """A spare makes it too, and starts no gate in it."""
    state, actions = transition(run_of(phase, spec={"setup": SETUP}), partial(starting.on_setup_ordered))
    assert actions == (
        call.journal("setup", {}),
        call.set_state({"reason": "setup"}),
        call.start_helper("setup"),
    )
    state, actions = transition(state, partial(starting.on_setup_made))
    made: tuple[Call, ...] = (
        call.set_state({"reason": ""}),
        call.journal("setup_done", {}),
        call.send_client("environment", {}),
    )
    assert actions == (made if phase is not Phase.PREPARING else (*made, call.start_gate()))
    assert (state.phase, state.attempt.has_environment) == (phase, True)


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.SPARE, Phase.PREPARING, Phase.READY])
@pytest.mark.parametrize(
    ("event", "journal"),
    [
        (
            partial(starting.on_helper_failed, reason="setup: boom", facts=FACTS),
            call.journal("setup_failed", FACTS),
        ),
        (
            partial(
                starting.on_step_failed, reason="boom", text="boom", code="CC-SETUP-001", in_environment=False
            ),
            call.journal("gate_failed", FACTS),
        ),
    ],
)
def test_a_start_that_fails_ends_the_run_here(phase: Phase, event: Any, journal: Call) -> None:
    """Also a spare's: the port to listen at is taken, or its environment cannot be made."""
    state, actions = transition(run_of(phase), event)
    assert state.phase is Phase.ENDING
    assert actions[:2] == (journal, call.send_client(journal.arguments["event"], FACTS))
    assert state.attempt.gate_failed == event.keywords["reason"]


@pytest.mark.parametrize("phase", Phase)
def test_a_command_that_runs_is_reported(phase: Phase) -> None:
    """Whatever else happens meanwhile."""
    assert transition(run_of(phase), partial(starting.on_doing, text="pip")) == (
        run_of(phase),
        (call.send_client("doing", {"text": "pip"}),),
    )


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.IDLE])
def test_the_clients_go_of_a_node_that_the_gang_has_called_in_sends_the_client_away(phase: Phase) -> None:
    """It comes late, and the attempt that it is for is over."""
    state = run_of(phase, is_first=False)
    assert transition(state, partial(starting.on_client_go, port=29500)) == (state, GOING_AND_GONE)


def test_the_gangs_go_names_the_master() -> None:
    """Which need not be the first node; one that comes before the gate is ready waits for it."""
    go = partial(starting.on_gang_go, address="10.0.0.3", port=29501)
    early, nothing = transition(run_of(Phase.PREPARING, is_first=False), go)
    assert (early.phase, nothing) == (Phase.PREPARING, ())
    waited, later = transition(early, partial(starting.on_gate_ready, torch=""))
    ready, actions = transition(run_of(Phase.READY, is_first=False), go)
    assert waited.phase is ready.phase is Phase.RUNNING
    assert call.send_go("10.0.0.3", 29501) in actions
    assert later[2:] == actions


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.ENDING])
def test_what_torchrun_reports_while_it_runs(phase: Phase) -> None:
    """Listening, workers, and the size of their world, also of an attempt that ends already."""
    listens = transition(
        run_of(phase, port=29500, awaits_listener=True), partial(starting.on_listened, listens=True, text="")
    )
    assert not listens[0].attempt.awaits_listener
    assert call.send_client("listening", {"port": 29500}) in listens[1]
    workers = partial(ending.on_workers_started, ranks=[0, 1])  # type: ignore[list-item]  # ranks by value
    assert transition(run_of(phase), workers)[1] == (
        call.start_logs(),
        call.record_workers(),
        call.journal("workers", {"ranks": [0, 1]}),
        call.watch_ranks(None),
    )
    program = run_of(phase, spec={"module": ""})
    assert transition(program, workers)[1][-1] == call.watch_nested()
    assert transition(program, partial(ending.on_world_seen, size=2))[1] == (call.record_workers(),)
    unplanned = call.journal("world_size", {"seen": 4, "planned": 2})
    assert transition(program, partial(ending.on_world_seen, size=4))[1] == (unplanned, call.record_workers())


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.READY, Phase.ENDING, Phase.AFTER, Phase.ENDED])
def test_torchruns_end_is_recorded_in_every_phase(phase: Phase) -> None:
    """Before GO it is the gate's, and ends the start; one that could not be killed may end late."""
    event = partial(
        starting.on_torchrun_exited,
        entry={**TORCHRUN, "exit": 1},  # type: ignore[arg-type]  # a record by value
        text="no torch",
        has_workers=False,
        unseen_failure="",
        in_environment=False,
    )
    state = run_of(phase)
    if phase is Phase.ENDING:
        state = state.change(started=False, cancelled="no GO arrived")
    after, actions = transition(state, event)
    assert actions[0] == call.set_state({"torchrun": {**TORCHRUN, "exit": 1}})
    assert (after.attempt.torchrun_runs, after.attempt.exit) == (False, 1)
    if phase in (Phase.PREPARING, Phase.READY):
        assert (after.phase, after.attempt.gate_failed) == (Phase.ENDING, "no torch")


def test_a_spare_that_is_called_in_waits_for_no_client() -> None:
    """The time that a client has for its GO is over."""
    called = partial(
        starting.on_attempt_called,
        spec={**SPEC, "attempt": 2, "node_rank": 0},
        node_rank=None,
        time_left=None,
    )
    assert call.cancel_timer("go") in transition(run_of(Phase.IDLE, restartable=True), called)[1]


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.AFTER, Phase.ENDED])
@pytest.mark.parametrize(
    "event",
    [
        partial(starting.on_prepared),
        partial(starting.on_ports_opened, has_environment=True, port=29500, locked=True),
        partial(starting.on_setup_ordered),
        partial(starting.on_setup_made),
        partial(starting.on_before_ordered),
        partial(starting.on_before_done),
        partial(starting.on_helper_failed, reason="setup: boom", facts=FACTS),
        partial(starting.on_step_failed, reason="boom", text="boom", code="", in_environment=False),
        partial(starting.on_gate_ready, torch=""),
        partial(starting.on_gang_go, address="10.0.0.3", port=29501),
    ],
)
def test_nothing_of_the_start_counts_once_it_ends(phase: Phase, event: Any) -> None:
    """Nothing new is started, and what fails then is no second cause."""
    state = run_of(phase, spec={"setup": SETUP, "before": {"steps": []}})
    assert transition(state, event) == (state, ())


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.RUNNING, Phase.ENDING)])
@pytest.mark.parametrize("event", [partial(ending.on_tick), partial(ending.on_remaining, processes=[])])
def test_nothing_is_killed_before_a_cause_or_once_no_process_is_left(phase: Phase, event: Any) -> None:
    """A moment of the attempt before does not end the next one; what runs in the end are the commands of `after`."""
    assert transition(run_of(phase), event) == (run_of(phase), ())


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.SPARE])
def test_a_spare_runs_no_commands_before_go(phase: Phase) -> None:
    """They belong to an attempt in which it has a rank."""
    state = run_of(phase, spec={"before": {"steps": []}})
    assert transition(state, partial(starting.on_before_ordered)) == (state, ())


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.ENDING])
def test_what_outlives_torchrun_is_looked_for_again(phase: Phase) -> None:
    """Also after a torchrun that ended well."""
    sleep = Stat(9, "sleep", "S", 1, 1, 1, 0)
    state, actions = transition(
        run_of(phase, torchrun_runs=False), partial(ending.on_remaining, processes=[sleep])
    )
    assert call.start_timer("end", 0.02, partial(ending.on_tick)) in actions
    assert transition(state, partial(ending.on_tick))[1] == (call.find_remaining(),)


@pytest.mark.parametrize("phase", Phase)
def test_what_the_gang_decides_counts_in_every_phase(phase: Phase) -> None:
    """Another attempt follows, or none, or this node's part in the gang is over; an end is recorded once."""
    state = run_of(phase, restartable=True)
    entry = {"attempt": 1, "reason": "node_lost", "node": "gpu02", "text": "gpu02 is lost"}
    entry.update(began=1.0, ended=2.0, progress=True)
    paused, actions = transition(
        state,
        partial(ending.on_paused, entry=entry, seconds=2.0, text="restart 1 of 3", attempts=[], ranks={}),
    )
    assert (summarize(paused, actions), paused) == (f"{phase.name} pausing", state)
    called, actions = transition(
        state, partial(starting.on_attempt_called, spec={**SPEC, "attempt": 2}, node_rank=1, time_left=None)
    )
    assert (summarize(called, actions), called.attempt.number) == ("PREPARING attempt", 2)
    ended, actions = transition(
        state, partial(ending.on_concluded, end={"state": "STOPPED", "reason": "stopped"})
    )
    assert (summarize(ended, actions), ended.final) == (f"{phase.name} ended", True)
    assert transition(ended, partial(ending.on_concluded, end={})) == (ended, ())
    assert transition(state, partial(ending.on_gang_done)) == (state, (call.leave(),))


def test_a_stop_that_ends_the_run_is_recorded_by_a_spare() -> None:
    """A failure elsewhere does not concern it."""
    assert (
        summarize(*transition(run_of(Phase.SPARE), partial(ending.on_stop_ordered, order=ORDER)))
        == "SPARE stopping"
    )
