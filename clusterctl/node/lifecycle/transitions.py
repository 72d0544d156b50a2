"""In which phases a rule is followed. In a phase that is not in its row an event changes nothing.

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

from typing import TYPE_CHECKING, Any, Callable, Dict, Tuple

from . import ending, starting
from .ending import OVER
from .run import Phase

if TYPE_CHECKING:
    from .run import Event

ANY = tuple(Phase)
SPARES = (Phase.IDLE, Phase.SPARE)
START = (Phase.PREPARING,)
STARTS = (*SPARES, *START)  # of a spare only the environment
WAITS = (Phase.PREPARING, Phase.READY)
RUNS = (Phase.RUNNING, Phase.ENDING)

PHASES: Dict[Callable[..., Any], Tuple[Phase, ...]] = {
    # the start
    starting.on_prepared: STARTS,
    starting.on_ports_opened: STARTS,
    starting.on_gate_started: (*START, Phase.ENDING),
    starting.on_warm_gate: ANY,
    starting.on_setup_ordered: STARTS,
    starting.on_before_ordered: START,
    starting.on_doing: ANY,
    starting.on_setup_made: STARTS,
    starting.on_before_done: START,
    starting.on_restored: START,
    starting.on_watched: START,
    starting.on_helper_failed: (*STARTS, Phase.READY),
    starting.on_step_failed: (*STARTS, Phase.READY),
    starting.on_gate_ready: START,
    # GO
    starting.on_client_go: ANY,
    starting.on_gang_go: WAITS,
    starting.on_listened: RUNS,
    # the job
    ending.on_start_method: RUNS,
    ending.on_workers_started: RUNS,
    ending.on_world_seen: RUNS,
    ending.on_nested_found: RUNS,
    ending.on_nested_exited: RUNS,
    ending.on_rank_exited: (*RUNS, *OVER),
    ending.on_rank_stuck: (Phase.RUNNING,),
    ending.on_stalled: (Phase.RUNNING,),
    starting.on_torchrun_exited: (*WAITS, *RUNS, *OVER),
    # why it ends
    ending.on_cancelled: ANY,
    ending.on_client_left: ANY,
    ending.on_stop_requested: ANY,
    ending.on_stop_ordered: ANY,
    ending.on_held_over: RUNS,
    ending.on_time_is_up: ANY,
    ending.on_guardian_lost: ANY,
    ending.on_agent_failed: ANY,
    # its processes are ended
    ending.on_tick: RUNS,
    ending.on_remaining: RUNS,
    ending.on_all_ended: (Phase.AFTER,),
    ending.on_part_built: (Phase.AFTER,),
    ending.on_after_ended: (Phase.AFTER,),
    ending.on_outside_read: (Phase.AFTER,),
    ending.on_checkpoints_finished: (Phase.AFTER,),
    # what the gang decides then
    ending.on_gang_reported: (Phase.ENDED,),
    ending.on_cleared: (Phase.ENDED,),
    ending.on_paused: ANY,
    starting.on_attempt_called: ANY,
    ending.on_concluded: ANY,
    ending.on_gang_done: ANY,
}


def counts(event: Event, phase: Phase) -> bool:
    """Return whether the rule of an event is followed in a phase."""
    return phase in PHASES[event.func]
