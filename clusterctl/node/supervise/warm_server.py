"""The agent's side of a warm server: gates that it forks, and its stay beyond the run."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Mapping, Optional, Sequence, Set

from ...protocol.untrusted import MalformedError, Untrusted
from ..fork.warm_client import LIMIT, connect, pack_variables, receive, send
from ..runtime.children import open_output
from ..runtime.event_loop import Loop
from ..runtime.processes import Identity, identify, interpreter_options
from ..state.run_record import Record
from .spawn import AttemptPaths, Gate, gate_command, open_gate_pipes

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec, WarmRecord
    from ...protocol.messages.local import ForkGate, Stay

TORCHRUN = "torch.distributed.run"
GATE_LIMIT = 5.0  # seconds for a gate: the agent sends no beats meanwhile, and 20 s without one end the run


def make_warm_record(server: Identity) -> WarmRecord:
    """Render a server of a run that goes on."""
    return {"pid": server.pid, "starttime": server.starttime}


class WarmServer:
    """The warm server of one run, if it has one; `refusal` is why the one of an earlier run was not used."""

    def __init__(self, loop: Loop, record: Record, spec: Spec, descriptor: Optional[int]) -> None:
        self._loop = loop
        self._record = record
        self._spec = spec
        self._connection: Optional[socket.socket] = None
        self._greeted = False
        self.spared: Set[int] = set()  # with the process that samples the GPUs
        self._pid = 0
        self.refusal = ""
        if descriptor is not None:
            self._watch(socket.socket(fileno=descriptor))

    @property
    def is_needed(self) -> bool:
        """Whether later gates, of this run or of another, are to be forked."""
        start = self._spec.get("start")
        is_torchrun = self._spec["module"] == TORCHRUN
        return bool(start and is_torchrun and (start.get("keep_warm") or self._spec.get("restart")))

    def _watch(self, connection: socket.socket) -> None:
        self._connection, self._greeted = connection, False
        connection.settimeout(GATE_LIMIT)
        self._loop.watch(connection.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        """Take the first message, or the end; an earlier callback of the same turn may have taken it."""
        connection = self._connection
        if connection is not None and select.select([connection], [], [], 0)[0]:
            self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        """Take the server's first message, or its end."""
        pid = None
        with suppress(OSError, MalformedError):
            greeting, _ = receive(connection)
            pid = greeting.integer("pid", 1) if greeting is not None else None
        if pid is None or self._greeted:
            self.close()
            return
        self._greeted = True
        with suppress(ProcessLookupError):
            self._record.set({"warm": make_warm_record(identify(pid))})
            self.spared.add(pid)
            self._pid = pid

    def expect(self) -> Optional[int]:
        """Give the end of a connection for a gate that is to fork a server; None if none is wanted."""
        self.close()
        if not self.is_needed:
            return None
        own_end, gate_end = socket.socketpair()
        self._watch(own_end)
        return gate_end.detach()

    def fork_gate(self, spec: Spec, env: Mapping[str, str], paths: AttemptPaths) -> Optional[Gate]:
        """Let the server fork the gate; None if there is no server, or the gate must be started as a new process."""
        deadline = time.monotonic() + GATE_LIMIT
        if self._connection is not None and not self._greeted:
            self._greet(self._connection)
        connection = self._connection
        if connection is None:
            return None
        pipes, log = open_gate_pipes(), open_output(paths.torchrun_log)
        argv = gate_command(spec, pipes, None)
        descriptors = (pipes.go_read, pipes.report_write, log)
        request: ForkGate = {"do": "gate", "argv": argv, "env": pack_variables(env), "cwd": paths.rundir}
        try:
            answer = exchange(connection, request, descriptors, deadline)
        finally:
            os.close(log)
        pid = answer.integer("pid", 1)
        if pid is not None:
            self.refusal = ""
            return pipes.parent_side(pid)
        pipes.close()
        self.refusal = answer.text("refused", 300) or "it does not answer"
        self.close()
        send_end(self._workdir(), spec["node"])
        return None

    def stay(self) -> None:
        """Let the server outlive this run, if the job says so."""
        start = self._spec.get("start")
        connection, seconds = self._connection, start.get("keep_warm") if start else None
        if connection is None or not self._greeted or not seconds:
            self.close()
            return
        answer = None
        connection.settimeout(LIMIT)
        with suppress(OSError, MalformedError):
            send(connection, self._make_stay(seconds))
            answer, _ = receive(connection)
        facts = answer or Untrusted({})
        pid, until = facts.integer("pid", 1), facts.moment("until")
        if pid is not None and until is not None:
            self._record.set({"warm": {"pid": pid, "starttime": facts.count("starttime"), "until": until}})
        self.close()

    def _make_stay(self, seconds: float) -> Stay:
        """Ask it to stay, and to have guardian and agent of the next run wait, as they are here."""
        return {
            "do": "stay",
            "workdir": self._workdir(),
            "node": self._spec["node"],
            "seconds": seconds,
            "argv": [sys.executable, *interpreter_options(), sys.argv[0]],
            "env": pack_variables(os.environ),
        }

    def close(self) -> None:
        """Leave the server, which ends unless it stays."""
        if self._connection is not None:
            self._loop.unwatch(self._connection.fileno())
            self._connection.close()
            self._connection = None
            self.spared.discard(self._pid)  # another process may get its pid

    def _workdir(self) -> str:
        return os.path.dirname(os.path.dirname(os.path.dirname(self._record.rundir)))


def exchange(
    connection: socket.socket, request: ForkGate, descriptors: Sequence[int], deadline: float
) -> Untrusted:
    """Have a gate forked; an empty answer if there is none by the deadline."""
    answer = None
    with suppress(OSError, MalformedError):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        send(connection, request, descriptors)
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        answer, _ = receive(connection)
    return answer or Untrusted({})


def send_end(workdir: str, node: str) -> None:
    """Ask the server at the node's socket to end, if there is one; this waits for nothing."""
    connection = connect(workdir, node, 0.0)
    if connection is not None:
        with connection, suppress(OSError):
            send(connection, {"do": "end"})
