"""The way to GO: the gate, on node 0 the master's port, the gang, and at last torchrun."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Protocol

from .client import tail_of
from .deadline import Deadline
from .host import Host
from .launcher import make_places
from .listener import Listener
from .torchrun import Torchrun
from .verdict import Seen
from .wire import describe_failure
from .workers import Worker

PORT_TRIES = 3  # ports that torchrun may find taken by somebody else before the run fails


class Departing(Protocol):
    """The attempt, as its departure sees it."""

    agent: Host
    spec: Dict[str, Any]
    first: bool
    seen: Seen
    torchrun: Optional[Torchrun]
    deadline: Deadline

    def hear(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""

    def workers(self) -> Dict[int, Worker]:
        """Return the workers announced so far."""

    def tell(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens."""

    def hang_up(self) -> None:
        """The client has no more to wait for."""


class Departure:
    """What an attempt does until its torchrun runs, and on node 0 listens."""

    def __init__(self, attempt: Departing) -> None:
        self._attempt = attempt
        self._agent = attempt.agent
        self._spec = attempt.spec
        self._listener: Optional[Listener] = None
        self._ready = False
        self._address = str(attempt.spec["master_addr"])
        self._port: Optional[int] = None
        self._ports_tried = 0
        self._secrets: Dict[str, str] = {}

    def prepare(self, secrets: Dict[str, str]) -> None:
        """Start the gate, and on node 0 hold a port and open the hub."""
        self._secrets = secrets
        torchrun = self._attempt.torchrun if self._start_gate() else None
        if torchrun is not None:
            self._attempt.tell("started", **(torchrun.as_dict() or {}))
            if self._listener is not None:
                self._attempt.tell("port", port=self._listener.port)

    def stand_by(self) -> None:
        """Be ready to be called in, with nothing started."""
        agent = self._agent
        try:
            agent.gang.open()
        except Exception as error:  # noqa: BLE001, RUF100 - the client is to hear of whatever it is
            failure = describe_failure(error)
            self.fail(failure["message"], failure["traceback"] or failure["message"], failure["code"])
            return
        if agent.claim.held:
            agent.record.set(state="WAITING", reason="spare")
        self._attempt.tell("started")

    def go(self, port: int, address: Optional[str] = None) -> None:
        """GO came, with the master's port, and its address where that is not the first node's."""
        self._port = port
        self._address = address or self._address
        self._go_if_ready()

    def ready(self, facts: Dict[str, Any]) -> None:
        """The gate has torchrun imported."""
        self._ready = True
        self._agent.record.note("ready", **facts)
        self._attempt.tell("ready", **facts)
        self._go_if_ready()

    def _start_gate(self) -> bool:
        """Start a gate, and on node 0 hold a port; a failure is told, and ends the run."""
        self._ready = False
        agent, attempt, spec = self._agent, self._attempt, self._spec
        try:
            attempt.torchrun = Torchrun(agent.loop, spec, make_places(agent.rundir, spec), attempt.hear)
            if spec["node_rank"] == 0:
                self._listener = Listener(agent.loop, spec["ports"])
            if self._ports_tried == 0 and attempt.first:
                agent.gang.open()
            attempt.torchrun.start(os.environ, self._secrets)
        except Exception as error:  # noqa: BLE001, RUF100 - the client is to hear of whatever it is
            failure = describe_failure(error)
            self.fail(failure["message"], failure["traceback"] or failure["message"], failure["code"])
            return False
        agent.record.set(torchrun=attempt.torchrun.as_dict())
        return True

    def fail(self, reason: str, text: str, code: str = "") -> None:
        """Say why there will be no run."""
        attempt = self._attempt
        attempt.seen = attempt.seen._replace(gate_failed=reason)
        self._agent.record.note("gate_failed", text=text, code=code)
        attempt.tell("gate_failed", text=text, code=code)
        attempt.deadline.now()

    def _go_if_ready(self) -> None:
        """Let the gate become torchrun, once."""
        agent, attempt = self._agent, self._attempt
        if self._port is None or not self._ready or attempt.torchrun is None or attempt.seen.went:
            return
        attempt.seen = attempt.seen._replace(went=True)
        agent.loop.drop("go")
        if self._listener is not None and not self._spec["module"]:
            self._listener.finish()  # the program may bind the port in a way that allows no other holder
            self._listener = None
        attempt.torchrun.go(self._address, self._port)
        master = f"{self._address}:{self._port}"
        agent.record.set(state="RUNNING", reason="", master=master)
        agent.record.note("going", master=master)
        attempt.tell("going")
        agent.gang.went()
        if self._listener is None:
            agent.count_time()
            attempt.hang_up()
        elif attempt.torchrun.pid is not None:
            self._listener.wait_for(attempt.torchrun.pid, self._port, self._tell_listening)

    def _tell_listening(self, listens: bool) -> None:
        """Tell what became of the master port; the client has no more to wait for."""
        attempt = self._attempt
        self._agent.count_time()
        if listens:
            self._agent.record.note("listening", port=self._port)
            attempt.tell("listening", port=self._port)
        else:
            text = tail_of(attempt.torchrun.log) if attempt.torchrun is not None else ""
            attempt.tell("failed", text=text, port_taken="EADDRINUSE" in text)
        attempt.hang_up()

    def take_another_port(self) -> bool:
        """Start anew if somebody took the master port between our holding it and torchrun's use of it.

        The other nodes have not been let go yet, so nobody has heard of the port.
        """
        attempt, listener = self._attempt, self._listener
        if listener is None or attempt.torchrun is None or not listener.waiting or attempt.workers():
            return False
        first = attempt.seen.first_failure or attempt.seen.cancelled or attempt.seen.lost
        if first or self._ports_tried >= PORT_TRIES or "EADDRINUSE" not in tail_of(attempt.torchrun.log):
            return False
        listener.finish()
        self._ports_tried += 1
        self._agent.record.note("port_taken", port=self._port)
        attempt.seen = attempt.seen._replace(went=False)
        self._agent.record.set(state="PREPARING")
        attempt.torchrun.close()
        if self._start_gate():
            self._port = self._listener.port if self._listener is not None else None
        return True

    def close(self) -> None:
        """Let go of a port that is held for a GO that will not come."""
        if self._listener is not None:
            self._listener.finish()

    def end(self, code: Optional[int]) -> None:
        """Torchrun has ended: nobody will listen any more."""
        if self._listener is not None and self._listener.waiting:
            self._listener.finish()
            self._tell_listening(code == 0)
