"""The verb `ps`: the runs that this node knows, newest first."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, List, Optional

from ...protocol.states import NOT_SUCCEEDED
from ..logs.activity import ActivityReader
from ..runtime.stream import Stream
from ..state.run_files import run_dirs
from ..state.run_record import record_size, resolve_state, with_leftovers, with_record, with_stop
from ..state.watchers import mark_halted

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.verbs import PsRequest

MAX_RECORDS = 8  # runs sent with the record of their end, up to 512 KiB each, where runs are named
LISTED_RECORDS = 256 << 10  # bytes of records in a list of all runs: of the newest that did not succeed


def run(request: PsRequest, stream: Stream) -> None:
    """Answer with one frame of states; where runs are named, with what is known of their whole end."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    interval = 0.0 if request.get("activity") else None
    states = list_runs(workdir, request.get("node"), request.get("run"), request.get("limit"), interval)
    stream.answer({"runs": states, "time": time.time()})


def list_runs(
    workdir: str,
    node: Optional[str],
    run_id: Optional[str],
    limit: Optional[int],
    interval: Optional[float] = None,
) -> List[State]:
    """Return the states of runs whose id begins with `run_id`, newest first; with an interval with their activity."""
    candidates = ((path, resolve_state(path)) for path in run_dirs(workdir, run_id, node))
    runs = [(path, state) for path, state in candidates if state is not None]
    runs.sort(key=lambda pair: (pair[1]["submitted"] or 0.0, pair[1]["run"]), reverse=True)
    states: List[State] = []
    room = LISTED_RECORDS
    for rundir, found in runs[:limit]:
        state = with_stop(rundir, found)
        if run_id and len(states) < MAX_RECORDS:
            state = with_record(rundir, with_leftovers(state))
        elif not run_id and state["state"] in NOT_SUCCEEDED:
            room -= record_size(rundir)
            state = with_record(rundir, state) if room >= 0 else state
        states.append(ActivityReader(rundir, interval).add_to(mark_halted(state)))
    return states
