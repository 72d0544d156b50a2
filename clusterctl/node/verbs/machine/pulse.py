"""The verb `pulse`: what `ps` answers, with signs of life of the runs that live, and how far they are."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, List, Optional

from ....protocol.states import FINAL
from ...history.progress import read_progress
from ...runtime.stream import Stream
from ...state.run_files import find_run_or_none, read_spec
from ..ps import list_runs

if TYPE_CHECKING:
    from ....protocol.messages.files import State
    from ....protocol.messages.verbs import PsRequest

MAX_ENDED = 8  # runs that have ended, of which it is still read how far they came


def run(request: PsRequest, stream: Stream) -> None:
    """Answer with one frame of states."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    states = list_runs(workdir, request["node"], request["run"], request["limit"], 0.0)
    stream.answer({"runs": add_progress(workdir, states), "time": time.time()})


def add_progress(workdir: str, states: List[State], node_rank: Optional[int] = None) -> List[State]:
    """Add how far the live runs are, and the newest of those that have ended; the newest come first.

    With `node_rank` only to the parts of that node.
    """
    answer: List[State] = []
    ended = 0
    for state in states:
        is_over = state["state"] in FINAL
        ended += is_over and node_rank in (None, state["node_rank"])
        found = None
        is_chosen = state["ranks"] and node_rank in (None, state["node_rank"])
        if is_chosen and (not is_over or ended <= MAX_ENDED):
            rundir = find_run_or_none(workdir, state["run"], state["node"])
            spec = read_spec(rundir) if rundir else None
            found = read_progress(rundir, state, spec) if rundir and spec else None
        answer.append(state if found is None else {**state, "progress": found})
    return answer
