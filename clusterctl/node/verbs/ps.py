"""The verb `ps`: the runs that this node knows, newest first."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, List, Optional

from ...protocol.run_paths import WorkdirPaths, part_name
from ...protocol.states import NOT_SUCCEEDED
from ..logs.activity import ActivityReader
from ..runtime.stream import Stream
from ..state.run_record import (
    record_size,
    resolve_state,
    run_dirs,
    with_leftovers,
    with_record,
    with_stop,
)
from ..state.watchers import mark_halted

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.verbs import PsRequest

MOST_RECORDS = 8  # runs sent with the record of their end, up to 512 KiB each, where runs are named
LISTED_RECORDS = 256 << 10  # bytes of records in a list of all runs: of the newest that did not succeed


def run(request: PsRequest, stream: Stream) -> None:
    """Answer with one frame of states; where runs are named, with what is known of their whole end."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    states = list_runs(workdir, request.get("node"), request.get("run"), request.get("limit"))
    if request.get("activity"):
        states = [_with_activity(workdir, state) for state in states]
    stream.answer({"runs": states, "time": time.time()})


def list_runs(workdir: str, node: Optional[str], run_id: Optional[str], limit: Optional[int]) -> List[State]:
    """Return the states of runs whose id begins with `run_id`, newest first."""
    candidates = ((path, resolve_state(path)) for path in run_dirs(workdir, run_id, node))
    runs = [(path, state) for path, state in candidates if state is not None]
    runs.sort(key=lambda pair: (pair[1]["submitted"] or 0.0, pair[1]["run"]), reverse=True)
    states: List[State] = []
    room = LISTED_RECORDS
    for rundir, found in runs[:limit]:
        state = with_stop(rundir, found)
        if run_id:
            named = len(states) < MOST_RECORDS
            states.append(with_record(rundir, with_leftovers(state)) if named else state)
        elif state["state"] in NOT_SUCCEEDED:
            room -= record_size(rundir)
            states.append(with_record(rundir, state) if room >= 0 else state)
        else:
            states.append(state)
    return [mark_halted(state) for state in states]


def _with_activity(workdir: str, state: State) -> State:
    slot = state.get("slot")
    part = part_name(state["node_rank"] if slot is None else slot, state["node"])
    return ActivityReader(WorkdirPaths(workdir).run(state["run"], part), 0.0).add_to(state)
