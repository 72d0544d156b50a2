"""Environment, gate, master port, GO."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable, Dict, Optional, Protocol, Sequence

from ...protocol.ranks import Rank
from ..runtime.event_loop import Loop
from ..runtime.exit_status import Observed
from ..runtime.sockets import hold_port, owns_listener, port_of
from ..runtime.stream import describe_failure
from ..state.workdir import read_tail
from .agent_api import AgentApi
from .evidence import Evidence
from .shutdown import KillSchedule
from .spawn import make_paths
from .stages import JsonObject, SetupStage
from .torchrun import Torchrun, Worker

POLL_INTERVAL = 0.02
LISTEN_LIMIT = 120.0  # seconds in which torchrun must listen


class MasterPort:
    """Holds a port, then waits until exactly one process listens there."""

    def __init__(self, loop: Loop, ports: Optional[Sequence[int]]) -> None:
        self._loop = loop
        self._holder: Optional[socket.socket] = hold_port(ports)
        self.port = port_of(self._holder)
        self.waiting = False

    def wait_for(self, pid: int, port: int, on_done: Callable[[bool], None]) -> None:
        """Call `on_done` once the process listens on the port, or with False if it does not come to that."""
        self.waiting = True
        deadline = time.monotonic() + LISTEN_LIMIT

        def poll() -> None:
            if owns_listener(pid, port):
                self.release()
                on_done(True)
            elif time.monotonic() > deadline:
                self.release()
                on_done(False)
            else:
                self._loop.after(POLL_INTERVAL, "listen", poll)

        self._loop.after(0, "listen", poll)

    def release(self) -> None:
        """Let go of the port."""
        self.waiting = False
        self._loop.cancel("listen")
        if self._holder is not None:
            self._holder.close()
            self._holder = None


PORT_TRIES = 3  # ports that torchrun may find taken by somebody else before the run fails


class AttemptApi(Protocol):
    """The attempt, as its departure sees it."""

    agent: AgentApi
    spec: Dict[str, Any]
    is_first: bool
    idle: bool
    observed: Observed
    torchrun: Optional[Torchrun]
    kill_schedule: KillSchedule
    evidence: Evidence

    def on_event(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""

    def workers(self) -> Dict[Rank, Worker]:
        """Return the workers announced so far."""

    def report(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens."""

    def close_client(self) -> None:
        """The client has no more to wait for."""


class Startup:
    """What an attempt does until its torchrun runs, and on node 0 listens."""

    def __init__(self, attempt: AttemptApi) -> None:
        self._attempt = attempt
        self._agent = attempt.agent
        self._spec = attempt.spec
        self._master_port: Optional[MasterPort] = None
        self._gate_ready: Optional[JsonObject] = None
        self._ready = False
        self._setup_stage = SetupStage(attempt, self._on_setup_failed)
        self._address = str(attempt.spec["master_addr"])
        self._port: Optional[int] = None
        self._ports_tried = 0
        self._secrets: Dict[str, str] = {}

    def prepare(self, secrets: Dict[str, str]) -> None:
        """Hold a port and open the hub on node 0, and start the gate, unless its environment has to be made first."""
        self._secrets = secrets
        is_made = self._setup_stage.is_made()
        if not self._run_step(self._open_ports) or (is_made and not self._run_step(self._start_gate)):
            return
        torchrun = self._attempt.torchrun
        self._report_setup(is_made=is_made)
        self._attempt.report("started", **((torchrun.as_dict() or {}) if torchrun is not None else {}))
        if self._master_port is not None:
            self._attempt.report("port", port=self._master_port.port)
        if not self._attempt.is_first:  # no client has to bring anything
            (self.run_before if is_made else self.make_environment)()

    def start_idle(self) -> None:
        """Be ready to be called in, with nothing started."""
        if not self._run_step(self._agent.gang.open):
            return
        if self._agent.locks.held:
            self._agent.record.set(state="WAITING", reason="spare")
        self._report_setup(is_made=self._setup_stage.is_made())
        self._attempt.report("started")

    def _report_setup(self, *, is_made: bool) -> None:
        if self._setup_stage.has_setup:
            self._attempt.report("setup", made=is_made)

    def make_environment(self) -> None:
        """Make the environment: what goes into it is in the store."""
        self._run_step(lambda: self._setup_stage.make(self._secrets, self._on_environment_made))

    def _on_environment_made(self) -> None:
        self._attempt.report("environment")
        if not self._attempt.idle and self._run_step(self._start_gate) and not self._attempt.is_first:
            self.run_before()

    def run_before(self) -> None:
        """Run the commands of `before`: the code is there."""
        self._run_step(lambda: self._setup_stage.run_before(self._secrets, self._report_ready))

    @property
    def begun(self) -> bool:
        """Whether anything of the job itself has been started."""
        return self._attempt.observed.started or self._setup_stage.begun

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self._setup_stage.on_child_exit(pid, status)

    def _on_setup_failed(self, reason: str, facts: JsonObject) -> None:
        """Give up, unless whatever went wrong was our own killing of it."""
        observed = self._attempt.observed
        if observed.cancelled is None and observed.lost is None and observed.gate_failed is None:
            self._abort("setup_failed", reason, **facts)

    def on_go(self, port: int, address: Optional[str] = None) -> None:
        """GO came, with the master's port, and its address where that is not the first node's."""
        self._port = port
        self._address = address or self._address
        self._send_go_if_ready()

    def on_gate_ready(self, facts: Dict[str, Any]) -> None:
        """The gate has torchrun imported."""
        self._gate_ready = facts
        self._report_ready()

    def _report_ready(self) -> None:
        """Nothing more has to be waited for but GO."""
        if self._gate_ready is None or self._setup_stage.awaits_before or self._ready:
            return
        self._ready = True
        self._agent.record.add_event("ready", **self._gate_ready)
        self._attempt.report("ready", **self._gate_ready)
        self._send_go_if_ready()

    def _open_ports(self) -> None:
        """On node 0 hold a port; the first attempt opens what the nodes meet by."""
        if self._spec["node_rank"] == 0:
            self._master_port = MasterPort(self._agent.loop, self._spec["ports"])
        if self._attempt.is_first:
            self._agent.gang.open()

    def _start_gate(self) -> None:
        """Start a gate, with the Python of the environment if there is one."""
        agent, attempt, spec = self._agent, self._attempt, self._setup_stage.spec
        self._ready, self._gate_ready = False, None
        attempt.torchrun = Torchrun(agent.loop, spec, make_paths(agent.rundir, spec), attempt.on_event)
        attempt.torchrun.start(os.environ, self._secrets)
        agent.record.set(torchrun=attempt.torchrun.as_dict())

    def _run_step(self, step: Callable[[], None]) -> bool:
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
        has_environment = bool(self._setup_stage.spec.get("environment"))
        self._abort(
            "gate_failed", reason, text=text, code=code, **({"environment": True} if has_environment else {})
        )

    def _abort(self, event: str, reason: str, **facts: Any) -> None:
        attempt = self._attempt
        attempt.observed = attempt.observed._replace(gate_failed=reason)
        self._agent.record.add_event(event, **facts)
        attempt.report(event, **facts)
        attempt.kill_schedule.kill_now()

    def _send_go_if_ready(self) -> None:
        """Let the gate become torchrun, once."""
        agent, attempt = self._agent, self._attempt
        if self._port is None or not self._ready or attempt.torchrun is None or attempt.observed.started:
            return
        attempt.observed = attempt.observed._replace(started=True)
        agent.loop.cancel("go")
        if self._master_port is not None and not self._spec["module"]:
            self._master_port.release()  # the program may bind the port in a way that allows no other holder
            self._master_port = None
        attempt.torchrun.send_go(self._address, self._port)
        master = f"{self._address}:{self._port}"
        agent.record.set(state="RUNNING", reason="", master=master)
        agent.record.add_event("going", master=master)
        attempt.report("going")
        agent.gang.on_go()
        if self._master_port is None:
            agent.start_time_limit()
            attempt.close_client()
        elif attempt.torchrun.pid is not None:
            self._master_port.wait_for(attempt.torchrun.pid, self._port, self._report_listening)

    def _report_listening(self, listens: bool) -> None:
        """Tell what became of the master port; the client has no more to wait for."""
        attempt = self._attempt
        self._agent.start_time_limit()
        if listens:
            self._agent.record.add_event("listening", port=self._port)
            attempt.report("listening", port=self._port)
        else:
            text = read_tail(attempt.torchrun.log) if attempt.torchrun is not None else ""
            attempt.report("failed", text=text, port_taken="EADDRINUSE" in text)
        attempt.close_client()

    def retry_with_another_port(self) -> bool:
        """Start anew if somebody took the master port between our holding it and torchrun's use of it.

        The other nodes have not been let go yet, so nobody has heard of the port.
        """
        attempt, master_port = self._attempt, self._master_port
        if master_port is None or attempt.torchrun is None or not master_port.waiting or attempt.workers():
            return False
        earlier_end = attempt.observed.first_failure or attempt.observed.cancelled or attempt.observed.lost
        if (
            earlier_end
            or self._ports_tried >= PORT_TRIES
            or "EADDRINUSE" not in read_tail(attempt.torchrun.log)
        ):
            return False
        master_port.release()
        self._ports_tried += 1
        self._agent.record.add_event("port_taken", port=self._port)
        attempt.observed = attempt.observed._replace(started=False)
        self._agent.record.set(state="PREPARING")
        attempt.torchrun.close()
        if self._run_step(self._restart_gate):
            self._port = self._master_port.port if self._master_port is not None else None
        return True

    def _restart_gate(self) -> None:
        self._master_port = MasterPort(self._agent.loop, self._spec["ports"])
        self._start_gate()

    def close(self) -> None:
        """Let go of a port that is held for a GO that will not come; the environment was used until now."""
        self._setup_stage.is_made()
        if self._master_port is not None:
            self._master_port.release()

    def on_torchrun_exit(self, code: Optional[int]) -> None:
        """Torchrun has ended: nobody will listen any more.

        One that has started workers has listened, however short: their end is how the run went, not a failed start.
        """
        if self._master_port is not None and self._master_port.waiting:
            self._master_port.release()
            self._report_listening(code == 0 or bool(self._attempt.workers()))
