"""The verb `ps`: the runs that this node knows, newest first."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from .pulse import Pulses
from .state import State, mark_stopped, resolve, run_dirs, with_record
from .wire import Stream


def run(request: Dict[str, Any], stream: Stream) -> None:
    """Answer with one frame of states; where runs are named, with what is known of their whole end."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    states = list_runs(workdir, request.get("node"), request.get("run"), request.get("limit"))
    if request.get("pulse"):
        states = [_with_pulses(workdir, state) for state in states]
    stream.send({"runs": states, "time": time.time()})


def list_runs(workdir: str, node: Optional[str], run_id: Optional[str], limit: Optional[int]) -> List[State]:
    """Return the states of runs whose id begins with `run_id`, newest first."""
    found = [state for state in (_look(path, run_id) for path in run_dirs(workdir, run_id, node)) if state]
    found.sort(key=lambda state: (state["submitted"] or 0.0, state["run"]), reverse=True)
    return [mark_stopped(state) for state in (found if limit is None else found[:limit])]


def _look(rundir: str, run_id: Optional[str]) -> Optional[State]:
    state = resolve(rundir)
    return with_record(rundir, state) if state is not None and run_id else state


def _with_pulses(workdir: str, state: State) -> State:
    seat = state.get("seat")
    name = f"{state['node_rank'] if seat is None else seat}-{state['node']}"
    return Pulses(os.path.join(workdir, "runs", state["run"], name), 0.0).put_into(state)
