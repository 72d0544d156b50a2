"""What follows an event: the next state and actions. An event that is in no row for a phase changes nothing.

| from | to | when |
|---|---|---|
| PREPARING | READY | environment, gate and `before` are done |
| READY | RUNNING | GO |
| RUNNING | PREPARING | another process took the master port before torchrun did |
| PREPARING, READY, RUNNING, a spare | ENDING | a cause of the end is known; what runs is killed, at once or in time |
| RUNNING, ENDING | AFTER | nothing runs any more, or what runs cannot be ended |
| AFTER | ENDED | `after` has run; the end was handed over |
| IDLE | SPARE | the client's GO |
| ENDED, a spare | PREPARING, SPARE | the gang begins another attempt |
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence, Tuple, Type, Union

from . import ending, events, starting
from .actions import Act
from .ending import Step
from .events import Event, Notice
from .state import Phase, RunState

Transition = Callable[[RunState, Any], Step]

ANY = tuple(Phase)
SPARES = (Phase.IDLE, Phase.SPARE)
START = (Phase.PREPARING,)
STARTS = (*SPARES, *START)  # of a spare only the environment
WAITS = (Phase.PREPARING, Phase.READY)
RUNS = (Phase.RUNNING, Phase.ENDING)
OVER = (Phase.AFTER, Phase.ENDED)


def on_gang_done(state: RunState, _: Notice) -> Step:
    """Nothing of the gang is left to wait for."""
    return state, (Act.LEAVE,)


EventKind = Union[Type[Any], Notice]

ROWS: Sequence[Tuple[EventKind, Tuple[Phase, ...], Transition]] = [
    # event                 in these phases                    what follows
    # the start
    (Notice.PREPARED, (*SPARES, *START), starting.on_prepared),
    (events.PortsOpened, START, starting.on_ports_opened),
    (events.PortsOpened, SPARES, starting.on_spare_listens),
    (events.GateStarted, START, starting.on_gate_started),
    (events.GateStarted, (Phase.ENDING,), starting.on_gate_too_late),
    (Notice.SETUP_ORDERED, STARTS, starting.on_setup_ordered),
    (Notice.BEFORE_ORDERED, START, starting.on_before_ordered),
    (events.Doing, ANY, starting.on_doing),
    (Notice.SETUP_MADE, STARTS, starting.on_setup_made),
    (Notice.BEFORE_DONE, START, starting.on_before_done),
    (events.HelperFailed, (*STARTS, Phase.READY), starting.on_helper_failed),
    (events.StepFailed, (*STARTS, Phase.READY), starting.on_step_failed),
    (events.GateReady, START, starting.on_gate_ready),
    # GO
    (events.ClientGo, (Phase.IDLE,), starting.on_spare_go),
    (events.ClientGo, (*WAITS, *RUNS, *OVER, Phase.SPARE), starting.on_client_go),
    (events.GangGo, WAITS, starting.on_gang_go),
    (events.Listened, RUNS, starting.on_listened),
    # the job
    (events.StartMethodChosen, RUNS, ending.on_start_method),
    (events.WorkersStarted, RUNS, ending.on_workers_started),
    (events.WorldSeen, RUNS, ending.on_world_seen),
    (events.NestedFound, RUNS, ending.on_nested_found),
    (events.NestedExited, RUNS, ending.on_nested_exited),
    (events.RankExited, (*RUNS, *OVER), ending.on_rank_exited),
    (events.RankStuck, (Phase.RUNNING,), ending.on_rank_stuck),
    (events.Stalled, (Phase.RUNNING,), ending.on_stalled),
    (events.TorchrunExited, (*WAITS, *RUNS, *OVER), starting.on_torchrun_exited),
    # why it ends
    (events.Cancelled, ANY, ending.on_cancelled),
    (Notice.CLIENT_LEFT, ANY, ending.on_client_left),
    (events.StopRequested, ANY, ending.on_stop_requested),
    (events.StopOrdered, ANY, ending.on_stop_ordered),
    (Notice.HELD_OVER, RUNS, ending.on_held_over),
    (Notice.TIME_IS_UP, ANY, ending.on_time_is_up),
    (Notice.GUARDIAN_LOST, ANY, ending.on_guardian_lost),
    (events.AgentFailed, ANY, ending.on_agent_failed),
    # its processes are ended
    (Notice.TICK, RUNS, ending.on_tick),
    (events.Remaining, RUNS, ending.on_remaining),
    (events.AllEnded, (Phase.AFTER,), ending.on_all_ended),
    (events.PartBuilt, (Phase.AFTER,), ending.on_part_built),
    (events.AfterEnded, (Phase.AFTER,), ending.on_after_ended),
    (events.OutsideRead, (Phase.AFTER,), ending.on_outside_read),
    # what the gang decides then
    (Notice.GANG_REPORTED, (Phase.ENDED,), ending.on_gang_reported),
    (events.Cleared, (Phase.ENDED,), ending.on_cleared),
    (events.Paused, ANY, ending.on_paused),
    (events.AttemptCalled, ANY, starting.on_attempt_called),
    (events.Concluded, ANY, ending.on_concluded),
    (Notice.GANG_DONE, ANY, on_gang_done),
]
TABLE: Dict[Tuple[Phase, EventKind], Transition] = {
    (phase, event): transition for event, phases, transition in ROWS for phase in phases
}


def transition(state: RunState, event: Event) -> Step:
    """Return the next state and what is to be done."""
    follow = TABLE.get((state.phase, event if isinstance(event, Notice) else type(event)))
    return follow(state, event) if follow is not None else (state, ())
