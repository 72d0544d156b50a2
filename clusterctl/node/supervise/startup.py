"""Environment, gate, master port, GO."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable, Dict, Optional, Protocol, Sequence

from ..runtime.event_loop import Loop
from ..runtime.exit_status import Seen
from ..runtime.sockets import hold_port, owns_listener, port_of
from ..runtime.stream import describe_failure
from ..state.workdir import tail_of
from .agent_api import Host
from .evidence import Evidence
from .shutdown import Deadline
from .spawn import make_places
from .stages import Facts, Provision
from .torchrun import Torchrun, Worker

LOOK = 0.02
PATIENCE = 120.0  # seconds in which torchrun must listen


class Listener:
    """Holds a port, then waits until exactly one process listens there."""

    def __init__(self, loop: Loop, ports: Optional[Sequence[int]]) -> None:
        self._loop = loop
        self._holder: Optional[socket.socket] = hold_port(ports)
        self.port = port_of(self._holder)
        self.waiting = False

    def wait_for(self, pid: int, port: int, done: Callable[[bool], None]) -> None:
        """Call `done` once the process listens on the port, or with False if it does not come to that."""
        self.waiting = True
        deadline = time.monotonic() + PATIENCE

        def look() -> None:
            if owns_listener(pid, port):
                self.finish()
                done(True)
            elif time.monotonic() > deadline:
                self.finish()
                done(False)
            else:
                self._loop.after(LOOK, "listen", look)

        self._loop.after(0, "listen", look)

    def finish(self) -> None:
        """Let go of the port."""
        self.waiting = False
        self._loop.drop("listen")
        if self._holder is not None:
            self._holder.close()
            self._holder = None


PORT_TRIES = 3  # ports that torchrun may find taken by somebody else before the run fails


class Departing(Protocol):
    """The attempt, as its departure sees it."""

    agent: Host
    spec: Dict[str, Any]
    first: bool
    idle: bool
    seen: Seen
    torchrun: Optional[Torchrun]
    deadline: Deadline
    evidence: Evidence

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
        self._gate_ready: Optional[Facts] = None
        self._ready = False
        self._provision = Provision(attempt, self._unprovided)
        self._address = str(attempt.spec["master_addr"])
        self._port: Optional[int] = None
        self._ports_tried = 0
        self._secrets: Dict[str, str] = {}

    def prepare(self, secrets: Dict[str, str]) -> None:
        """Hold a port and open the hub on node 0, and start the gate, unless its environment has to be made first."""
        self._secrets = secrets
        made = self._provision.is_made()
        if not self._try(self._open) or (made and not self._try(self._start_gate)):
            return
        torchrun = self._attempt.torchrun
        self._tell_setup(made=made)
        self._attempt.tell("started", **((torchrun.as_dict() or {}) if torchrun is not None else {}))
        if self._listener is not None:
            self._attempt.tell("port", port=self._listener.port)
        if not self._attempt.first:  # no client has to bring anything
            (self.run_before if made else self.set_up)()

    def stand_by(self) -> None:
        """Be ready to be called in, with nothing started."""
        if not self._try(self._agent.gang.open):
            return
        if self._agent.claim.held:
            self._agent.record.set(state="WAITING", reason="spare")
        self._tell_setup(made=self._provision.is_made())
        self._attempt.tell("started")

    def _tell_setup(self, *, made: bool) -> None:
        if self._provision.wanted:
            self._attempt.tell("setup", made=made)

    def set_up(self) -> None:
        """Make the environment: what goes into it is in the store."""
        self._try(lambda: self._provision.make(self._secrets, self._set_up))

    def _set_up(self) -> None:
        self._attempt.tell("environment")
        if not self._attempt.idle and self._try(self._start_gate) and not self._attempt.first:
            self.run_before()

    def run_before(self) -> None:
        """Run the commands of `before`: the code is there."""
        self._try(lambda: self._provision.run_before(self._secrets, self._tell_ready))

    @property
    def begun(self) -> bool:
        """Whether anything of the job itself has been started."""
        return self._attempt.seen.went or self._provision.begun

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self._provision.reaped(pid, status)

    def _unprovided(self, reason: str, facts: Facts) -> None:
        """Give up, unless whatever went wrong was our own killing of it."""
        seen = self._attempt.seen
        if seen.cancelled is None and seen.lost is None and seen.gate_failed is None:
            self._give_up("setup_failed", reason, **facts)

    def go(self, port: int, address: Optional[str] = None) -> None:
        """GO came, with the master's port, and its address where that is not the first node's."""
        self._port = port
        self._address = address or self._address
        self._go_if_ready()

    def ready(self, facts: Dict[str, Any]) -> None:
        """The gate has torchrun imported."""
        self._gate_ready = facts
        self._tell_ready()

    def _tell_ready(self) -> None:
        """Nothing more has to be waited for but GO."""
        if self._gate_ready is None or self._provision.awaits_before or self._ready:
            return
        self._ready = True
        self._agent.record.note("ready", **self._gate_ready)
        self._attempt.tell("ready", **self._gate_ready)
        self._go_if_ready()

    def _open(self) -> None:
        """On node 0 hold a port; the first attempt opens what the nodes meet by."""
        if self._spec["node_rank"] == 0:
            self._listener = Listener(self._agent.loop, self._spec["ports"])
        if self._attempt.first:
            self._agent.gang.open()

    def _start_gate(self) -> None:
        """Start a gate, with the Python of the environment if there is one."""
        agent, attempt, spec = self._agent, self._attempt, self._provision.spec
        self._ready, self._gate_ready = False, None
        attempt.torchrun = Torchrun(agent.loop, spec, make_places(agent.rundir, spec), attempt.hear)
        attempt.torchrun.start(os.environ, self._secrets)
        agent.record.set(torchrun=attempt.torchrun.as_dict())

    def _try(self, step: Callable[[], None]) -> bool:
        """Take a step; a failure is told, and ends the run."""
        try:
            step()
        except Exception as error:  # noqa: BLE001, RUF100 - the client is to hear of whatever it is
            failure = describe_failure(error)
            self.fail(failure["message"], failure["traceback"] or failure["message"], failure["code"])
            return False
        return True

    def fail(self, reason: str, text: str, code: str = "") -> None:
        """Say why there will be no run."""
        made = bool(self._provision.spec.get("environment"))
        self._give_up("gate_failed", reason, text=text, code=code, **({"environment": True} if made else {}))

    def _give_up(self, event: str, reason: str, **facts: Any) -> None:
        attempt = self._attempt
        attempt.seen = attempt.seen._replace(gate_failed=reason)
        self._agent.record.note(event, **facts)
        attempt.tell(event, **facts)
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
        if self._try(self._begin_anew):
            self._port = self._listener.port if self._listener is not None else None
        return True

    def _begin_anew(self) -> None:
        self._listener = Listener(self._agent.loop, self._spec["ports"])
        self._start_gate()

    def close(self) -> None:
        """Let go of a port that is held for a GO that will not come; the environment was used until now."""
        self._provision.is_made()
        if self._listener is not None:
            self._listener.finish()

    def end(self, code: Optional[int]) -> None:
        """Torchrun has ended: nobody will listen any more.

        One that has started workers has listened, however short: their end is how the run went, not a failed start.
        """
        if self._listener is not None and self._listener.waiting:
            self._listener.finish()
            self._tell_listening(code == 0 or bool(self._attempt.workers()))
