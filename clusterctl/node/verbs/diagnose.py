"""The verb `diagnose`: where each rank of a run is, without stopping anything; or what its agent has kept of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..diagnose.query import diagnose, kept_path
from ..runtime.stream import Stream
from ..state.run_files import find_run
from ..state.run_record import resolve_state
from ..state.workdir import component, read_json

if TYPE_CHECKING:
    from ...protocol.messages.verbs import DiagnoseRequest


def run(request: DiagnoseRequest, stream: Stream) -> None:
    """Answer with one frame."""
    rundir = find_run(request["workdir"], request["run"], request["node"])
    state = resolve_state(rundir)
    if state is None:
        stream.answer({"diagnosis": {}})
    elif request.get("kept"):
        kept: Any = read_json(kept_path(rundir, state, component(request["kept"])))
        stream.answer({"kept": kept})
    else:
        diagnosis = diagnose(rundir, state, request["ranks"], request["entries"])
        stream.answer({"diagnosis": {**diagnosis, "clocks": state.get("clocks", {})}})
