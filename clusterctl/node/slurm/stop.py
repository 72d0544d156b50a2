"""Stops one node's part from the login node: by the file that the part's task looks for."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ...protocol.run_paths import RunPaths
from ...protocol.states import FINAL
from ..logs.lines import LineReader
from ..runtime.stream import Stream
from ..state.ended import list_ended, read_ended
from ..state.run_record import read_spec, read_state
from ..state.workdir import write_atomically
from .states import find_job, part_of, query_jobs, resolve

POLL_INTERVAL = 0.1
BEAT_INTERVAL = 2.0
SPARE_TIME = 15.0  # seconds beyond the grace: files arrive late, and memory is released


def stop(request: Any, stream: Stream) -> None:
    """Leave the order, wait for the end of the part, and report what its agent ended."""
    job = find_job(request["workdir"], request["run"])
    rundir = part_of(job, request["node"])
    if rundir is None:
        stream.answer({"stopped": {"ended": [], "left": [], "state": None}})
        return
    paths, state, spec = RunPaths(rundir), read_state(rundir), read_spec(rundir)
    reader = LineReader(paths.events, os.path.getsize(paths.events) if os.path.exists(paths.events) else 0)
    lived = state is not None and state["state"] not in FINAL
    if lived:
        order = {"grace": request.get("grace"), "reason": request.get("reason")}
        write_atomically(paths.stop_request, json.dumps(order).encode("utf-8"))
    grace = float(spec["grace"] if spec else 0.0) if request.get("grace") is None else request["grace"]
    deadline, beat = time.monotonic() + grace + SPARE_TIME, time.monotonic()
    while lived and time.monotonic() < deadline:
        state = read_state(rundir)
        if state is None or state["state"] in FINAL:
            break
        if time.monotonic() - beat > BEAT_INTERVAL:
            beat = time.monotonic()
            stream.answer({"beat": int(beat)})
            if query_jobs([job])[0].over:
                break
        time.sleep(POLL_INTERVAL)
    ended = [one for line in reader.read()[1].splitlines() for one in read_ended(_parse(line))]
    final = resolve(rundir, query_jobs([job])[0])
    if final is not None:
        ended = list_ended(final, {}, ended, [], "torchrun" if spec and spec.get("module") else "launcher")
    stream.answer({"stopped": {"ended": ended, "left": [], "state": final}})


def _parse(line: bytes) -> Any:
    from ..state.workdir import parse_dict

    return parse_dict(line) or {}
