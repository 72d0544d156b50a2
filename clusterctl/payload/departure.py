"""The way to GO: the gate, on node 0 the master's port, the gang, and at last torchrun."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from .client import tail_of
from .launcher import make_places
from .listener import Listener
from .torchrun import Torchrun
from .wire import describe_failure

if TYPE_CHECKING:
    from .agent import Agent

PORT_TRIES = 3  # ports that torchrun may find taken by somebody else before the run fails


class Departure:
    """What an agent does until its torchrun runs, and on node 0 listens."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._listener: Optional[Listener] = None
        self._ready = False
        self._port: Optional[int] = None
        self._ports_tried = 0
        self._secrets: Dict[str, str] = {}

    def prepare(self, secrets: Dict[str, str]) -> None:
        """Start the gate, and on node 0 hold a port and open the hub."""
        self._secrets = secrets
        agent = self._agent
        if self._start_gate() and agent.torchrun is not None:
            agent.client.tell("started", **(agent.torchrun.as_dict() or {}))
            if self._listener is not None:
                agent.client.tell("port", port=self._listener.port)

    def go(self, port: int) -> None:
        """GO came, with the master's port."""
        self._port = port
        self._go_if_ready()

    def ready(self, facts: Dict[str, Any]) -> None:
        """The gate has torchrun imported."""
        self._ready = True
        self._agent.record.note("ready", **facts)
        self._agent.client.tell("ready", **facts)
        self._go_if_ready()

    def _start_gate(self) -> bool:
        """Start a gate, and on node 0 hold a port; a failure is told, and ends the run."""
        self._ready = False
        agent, spec = self._agent, self._agent.spec
        try:
            agent.torchrun = Torchrun(agent.loop, spec, make_places(agent.rundir, spec), agent.hear)
            if spec["node_rank"] == 0:
                self._listener = Listener(agent.loop, spec["ports"])
            if self._ports_tried == 0:
                agent.gang.open()
            agent.torchrun.start(os.environ, self._secrets)
        except Exception as error:  # noqa: BLE001, RUF100 - the client is to hear of whatever it is
            failure = describe_failure(error)
            self.fail(failure["message"], failure["traceback"] or failure["message"], failure["code"])
            return False
        agent.record.set(torchrun=agent.torchrun.as_dict())
        return True

    def fail(self, reason: str, text: str, code: str = "") -> None:
        """Say why there will be no run."""
        agent = self._agent
        agent.seen = agent.seen._replace(gate_failed=reason)
        agent.record.note("gate_failed", text=text, code=code)
        agent.client.tell("gate_failed", text=text, code=code)
        agent.deadline.now()

    def _go_if_ready(self) -> None:
        """Let the gate become torchrun, once."""
        agent = self._agent
        if self._port is None or not self._ready or agent.torchrun is None or agent.seen.went:
            return
        agent.seen = agent.seen._replace(went=True)
        agent.loop.drop("go")
        if self._listener is not None and not agent.spec["module"]:
            self._listener.finish()  # the program may bind the port in a way that allows no other holder
            self._listener = None
        agent.torchrun.go(self._port)
        master = f"{agent.spec['master_addr']}:{self._port}"
        agent.record.set(state="RUNNING", master=master)
        agent.record.note("going", master=master)
        agent.client.tell("going")
        agent.gang.went()
        if self._listener is None:
            self._count_time()
            agent.client.close()
        elif agent.torchrun.pid is not None:
            self._listener.wait_for(agent.torchrun.pid, self._port, self._tell_listening)

    def _tell_listening(self, listens: bool) -> None:
        """Tell the client what became of the master port; it has no more to wait for."""
        agent = self._agent
        self._count_time()
        if listens:
            agent.record.note("listening", port=self._port)
            agent.client.tell("listening", port=self._port)
        else:
            text = tail_of(agent.torchrun.log) if agent.torchrun is not None else ""
            agent.client.tell("failed", text=text, port_taken="EADDRINUSE" in text)
        agent.client.close()

    def _count_time(self) -> None:
        """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
        agent, limit = self._agent, self._agent.spec.get("time_limit")
        agent.record.set(began=time.time())
        if limit:
            agent.loop.after(limit, "time limit", agent.reach_limit)

    def take_another_port(self) -> bool:
        """Start anew if somebody took the master port between our holding it and torchrun's use of it.

        The other nodes have not been let go yet, so nobody has heard of the port.
        """
        agent, listener = self._agent, self._listener
        if listener is None or agent.torchrun is None or not listener.waiting or agent.workers():
            return False
        first = agent.seen.first_failure or agent.seen.cancelled or agent.seen.lost
        if first or self._ports_tried >= PORT_TRIES or "EADDRINUSE" not in tail_of(agent.torchrun.log):
            return False
        listener.finish()
        self._ports_tried += 1
        agent.record.note("port_taken", port=self._port)
        agent.seen = agent.seen._replace(went=False)
        agent.record.set(state="PREPARING")
        if self._start_gate():
            self._port = self._listener.port if self._listener is not None else None
        return True

    def end(self, code: Optional[int]) -> None:
        """Torchrun has ended: nobody will listen any more."""
        if self._listener is not None and self._listener.waiting:
            self._listener.finish()
            self._tell_listening(code == 0)
