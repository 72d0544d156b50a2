"""Gates that import torch before there is an attempt for them: for a run that starts again, and for the next run.

The agent starts one once its ranks run, if the run may start again. One for the next run comes with the agent, whose
process has started it and waited beside it (`node/fork/standby.py`). Such a gate gets its attempt by a line before GO,
and becomes a new interpreter by itself if it would have imported something else (`gate.await_run`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Mapping, Optional, Set

from ..fork.imports import TORCHRUN
from ..runtime.processes import find_process
from ..state.run_record import Record
from .spawn import AttemptPaths, Gate, gate_start, start_gate

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.local import GateRun, GateStart

PIPE_BYTES = 64 << 10  # what a pipe takes at once; more would hold up the agent while the gate imports
WITHOUT_ATTEMPT = AttemptPaths(rundir="/", attempt="", torchrun_log=os.devnull, output="", values={})


def start_waiting(spec: Spec, env: Mapping[str, str]) -> Gate:
    """Start a gate that waits for its attempt; what its imports print is lost."""
    start: GateStart = {**gate_start(spec), "waits": True}
    return start_gate(spec, env, WITHOUT_ATTEMPT, start)


def is_waiting(gate: Gate) -> bool:
    """Return whether a gate has not ended; what it reports before it has an attempt is read."""
    os.set_blocking(gate.report, False)
    try:
        while os.read(gate.report, 1 << 16):
            pass
    except BlockingIOError:
        stat = find_process(gate.identity)
        return stat is not None and stat.running
    return False


class SpareGate:
    """The gate of one agent that waits, if there is one."""

    def __init__(self, record: Record, gate: Optional[Gate]) -> None:
        self._record = record
        self._gate = gate
        self.spared: Set[int] = set()  # what must not be signalled when an attempt ends
        if gate is not None:
            self._keep(gate)

    def _keep(self, gate: Gate) -> None:
        self._gate = gate
        self.spared.add(gate.identity.pid)
        self._record.set({"warm": {"pid": gate.identity.pid, "starttime": gate.identity.starttime}})

    def pop(self, spec: Spec) -> Optional[Gate]:
        """Return the gate, for the attempt of this spec; None if there is none that lives or could be used."""
        gate, self._gate = self._gate, None
        self.spared.clear()
        if gate is not None and "start" in spec and spec["module"] == TORCHRUN and is_waiting(gate):
            return gate
        if gate is not None:
            close_gate(gate)
        return None

    def start_next(self, spec: Spec, env: Mapping[str, str]) -> None:
        """Start the gate of the next attempt, if there may be one, beside the ranks of this one."""
        if self._gate is None and "start" in spec and spec["module"] == TORCHRUN and spec.get("restart"):
            self._keep(start_waiting(spec, env))

    def on_child_exit(self, pid: int) -> None:
        """Forget the gate if it has ended: another process may get its pid."""
        if self._gate is not None and pid == self._gate.identity.pid:
            close_gate(self._gate)
            self._gate = None
            self.spared.clear()

    def stay(self, spec: Spec) -> None:
        """Record until when the node waits for the next run, with `keep_warm`; the guardian starts what waits."""
        start = spec.get("start")
        seconds = start.get("keep_warm") if start and spec["module"] == TORCHRUN else None
        if seconds:
            self._record.set({"warm": {"until": time.time() + seconds}})


def close_gate(gate: Gate) -> None:
    """Close the pipes of a gate that waits, which ends it."""
    os.close(gate.go)
    os.close(gate.report)


def send_attempt(gate: Gate, spec: Spec, env: Mapping[str, str], paths: AttemptPaths) -> bool:
    """Send a gate that waits its attempt; returns False, the gate closed, if it cannot take it."""
    order: GateRun = {
        "argv": [spec["python"], sys.argv[0]],
        "start": gate_start(spec),
        "env": dict(env),
        "cwd": paths.rundir,
        "log": paths.torchrun_log,
    }
    content = json.dumps(order).encode("utf-8") + b"\n"
    with suppress(BrokenPipeError):
        if len(content) <= PIPE_BYTES:
            os.write(gate.go, content)
            return True
    close_gate(gate)
    return False
