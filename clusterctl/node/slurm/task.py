"""What srun starts, once on each node: meets the other tasks, starts this node's guardian, and sees it off.

    all tasks       hello to checked      see allocation.py
    all             part                  this node's part has its directory, and its agent starts
    any             doing                 the command of `setup` or `before` that runs
    node 0          hub                   the port of its agent, to which the others' agents go
    all             ready                 the gate waits for GO
    node 0          go                    torchrun listens: the others may start
    any             failed                the first that cannot start; then none does

A client does the same over SSH (`client/launch/prepare.py`); here no client has to be connected. After GO the agents
need the task no more but for two things: it passes on a `stop.json` that the login node wrote, and its exit code is
the run's, so that Slurm's own record is right. If Slurm starts the job again, see states.py, all begins again.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, cast

from ...protocol.messages.start_steps import StartOrder, has_listeners, list_start_steps
from ...protocol.ranks import Slot
from ...protocol.run_paths import RunPaths, part_name
from ...protocol.states import SUCCEEDED
from ...protocol.untrusted import Untrusted
from ..runtime.children import open_output
from ..runtime.processes import interpreter_options, wake_on
from ..runtime.stream import Stream, VerbError, describe_failure
from ..state.run_record import read_state, time_to_prepare
from ..state.workdir import read_json
from ..verbs.start import fork_guardian, make_rundir
from .allocation import (
    FAILED,
    MAX_REASON,
    CheckFailedError,
    Exchange,
    OtherFailedError,
    Task,
    check_nodes,
    collect_members,
    make_member,
    pauses,
)
from .job_files import JobFiles, list_folder, read_object
from .spec import SlurmError, build_spec, continue_spec, stop_by_slurm
from .states import TEMPORARY_FAILURE, Earlier, archive_old_parts, read_earlier, was_stopped_by_slurm

if TYPE_CHECKING:
    from ...protocol.messages.allocation import TaskFailure
    from ...protocol.messages.verbs import (
        Order,
        SubmittedSecrets,
        SubmittedTemplate,
    )

START_LIMIT = 330.0  # seconds to the gate, without the job's own stages
STOP_INTERVAL = 0.5  # seconds between looks for an order to stop
END_TRIES = 20  # of reading the last state
FAILURES = ("setup_failed", "gate_failed", "join_failed", "failed", "ended")
OWN_FAILURES = ("setup_failed", "gate_failed")  # the others may follow from the end of another node's agent
OTHERS_LIMIT = 3.0  # seconds


def main(arguments: List[str]) -> None:
    """Take part in the run whose folder is given; the exit code is 0 only if it succeeded."""
    files, task = JobFiles(arguments[0]), Task.of(os.environ)
    exchange = Exchange(files, task)
    try:
        status = run_part(files, exchange)
    except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the other tasks must learn of it
        text = (
            str(error) if isinstance(error, (SlurmError, VerbError)) else describe_failure(error)["message"]
        )
        report_failure(exchange, text, error)
        # one that Slurm may start again reads them then; else its script removes them
        if not read_object(files.template).flag("requeue"):
            files.remove_secrets()  # then no node starts
        print(f"{task.node}: {text}", file=sys.stderr, flush=True)
        status = 1
    sys.exit(status)


def run_part(files: JobFiles, exchange: Exchange) -> int:
    """Do this node's part from the first exchange to the end of its agent."""
    task = exchange.task
    template = cast("Optional[SubmittedTemplate]", read_json(files.template))
    secrets = cast("Optional[SubmittedSecrets]", read_json(files.secrets))
    if template is None or secrets is None:
        raise SlurmError(f"{files.template} or {files.secrets} is missing or damaged")
    if template["requeue"]:
        signal.signal(signal.SIGTERM, on_sigterm)
    earlier = Earlier(0, [])
    if task.restarts:
        earlier = read_earlier(files, part_name(task.slot, task.node), task.job)
    own = make_member(exchange, template)._replace(attempt=earlier.attempt)
    members = collect_members(exchange, own)
    check_nodes(exchange, template, members, files)
    if template["check"]["only"]:
        return 0
    spec = build_spec(template["spec"], members, task.slot, sys.executable)
    spec = continue_spec(spec, max(member.attempt for member in members), earlier.attempts)
    spec["outside_stop"] = stop_by_slurm(task.job, spec["grace"], template["kill_wait"])
    if task.restarts:
        archive_old_parts(files, task.key, members[task.slot], members)
    rundir = make_rundir(files.workdir, spec)
    code = RunPaths(rundir).code
    if not os.path.islink(code):
        os.symlink(os.path.relpath(RunPaths(files.folder).code, rundir), code)
    exchange.post(f"part.{task.slot}", {})
    guardian = Guardian(rundir)
    guardian.agent.send({"secrets": secrets["secrets"], "token": secrets["token"]})
    Start(exchange, guardian, spec).run()
    if task.slot == 0 and not template["requeue"]:
        files.remove_secrets()  # every task has read it: all are ready
    return watch(guardian, exchange, rundir, can_requeue=template["requeue"])


def on_sigterm(*_: object) -> None:
    """End a start that Slurm stops, with its warning before a preemption too: the script leaves the job to Slurm."""
    sys.exit(TEMPORARY_FAILURE)


def report_failure(exchange: Exchange, text: str, error: Exception) -> None:
    """Send the others why this node cannot start, unless another was first; a check that failed is about all nodes."""
    failure: TaskFailure = {"node": exchange.task.node, "text": text[:MAX_REASON]}
    if isinstance(error, CheckFailedError):
        failure["node"] = ""
    if isinstance(error, AgentFailedError):
        failure["event"] = error.event
    with suppress(OSError):
        exchange.post_first(FAILED, failure)


class AgentFailedError(SlurmError):
    """This node's agent reported that it cannot start; `event` is what it reported."""

    def __init__(self, text: str, event: Dict[str, Any]) -> None:
        super().__init__(text)
        self.event = event


class Guardian:
    """This node's guardian as a child of the task, and the agent's end of the dialogue before GO."""

    def __init__(self, rundir: str) -> None:
        own_end, agent_end = socket.socketpair()
        argv = [sys.executable, *interpreter_options(), sys.argv[0], "guardian", rundir]
        log = open_output(RunPaths(rundir).agent_log)
        self._wakeup = wake_on(signal.SIGCHLD)  # before there is a child whose end could be missed
        self.pid = fork_guardian(argv, os.environ, log, agent_end)
        os.close(log)
        agent_end.close()
        self._socket = own_end
        self.agent = Stream(own_end.fileno(), own_end.fileno())
        self.ended = False

    def poll(self) -> bool:
        """Whether it has ended."""
        try:
            self.ended = self.ended or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # the handler of a signal that came in between was first
            self.ended = True
        return self.ended

    def wait(self, seconds: float) -> None:
        """Wait until it has ended or a signal has come, at most so long."""
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        if poller.poll(seconds * 1000):
            os.read(self._wakeup, 512)

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if not self.poll():
            os.kill(self.pid, number)


class Start:
    """The dialogue with the agent up to GO, in the place of a client; raises SlurmError if there is no GO."""

    def __init__(self, exchange: Exchange, guardian: Guardian, spec: Any) -> None:
        self._exchange, self._guardian, self._spec = exchange, guardian, spec
        self._slot = exchange.task.slot
        self._events: Dict[str, Any] = {}  # as they came
        self._shown_step = ""
        self._limit = START_LIMIT + time_to_prepare(spec)

    def run(self) -> None:
        """Go through the steps; if one fails, here or elsewhere, what was started is cancelled."""
        try:
            self._await_event("started")
            makes_environment = "setup" in self._events and not self._event("setup").flag("made")
            if makes_environment:
                self._guardian.agent.send({"do": "setup"})  # its files came with the job
            self._post_ports()
            is_hub = self._slot == 0
            for order, event in list_start_steps(
                self._spec, is_hub=is_hub, makes_environment=makes_environment
            ):
                if order:
                    self._guardian.agent.send(self._make_order(order))
                if event:
                    self._await_event(event)
            self._exchange.post(f"ready.{self._slot}", {})
            self._start_workers()
        except OtherFailedError as error:
            self._cancel(str(error))
            raise
        except (SlurmError, OSError):  # also a closed dialogue, or a shared folder that fails
            self._cancel("the start failed")
            raise

    def _cancel(self, reason: str) -> None:
        """Make the agent end what it has started; without a dialogue it does so by itself."""
        with suppress(BrokenPipeError):
            self._guardian.agent.send({"do": "cancel", "reason": reason})
        for _ in pauses(self._limit):
            if self._guardian.poll():
                return

    def _post_ports(self) -> None:
        """Send the other tasks the ports at which this node's agent listens: for the gang, and on node 0 as its hub."""
        for name, message in (("listener", f"listener.{self._slot}"), ("hub", "hub")):
            if name in self._events:
                port = self._event(name).integer("port", 1, 65535)
                self._exchange.post(message, {"address": self._spec["address"], "port": port})

    def _make_order(self, do: StartOrder) -> Order:
        order: Order = {"do": do}
        if do != "before" and has_listeners(self._spec):
            self._await_messages(self._exchange.all_of("listener"))
            order["listeners"] = [self._listener(slot) for slot in range(self._exchange.task.total)]
        if do == "join":
            self._await_messages(["hub"])
            order["port"] = self._port_of("hub")
        return order

    def _listener(self, slot: int) -> Tuple[Slot, str, int]:
        message = self._exchange.read(f"listener.{slot}")
        return Slot(slot), message.text("address", 15), message.integer("port", 1, 65535) or 0

    def _port_of(self, name: str) -> int:
        return self._exchange.read(name).integer("port", 1, 65535) or 0

    def _start_workers(self) -> None:
        """Node 0 first, once every gate is ready; the others when its torchrun listens."""
        if self._slot == 0:
            self._await_messages(self._exchange.all_of("ready"))
            port = self._event("port").integer("port", 1, 65535) or 0
            if self._spec["module"]:
                self._guardian.agent.send({"do": "go", "master_port": port})
                port = self._await_event("listening").integer("port", 1, 65535) or port
                self._exchange.post("go", {"port": port})
                return
            self._exchange.post("go", {"port": port})
        else:
            self._await_messages(["go"])
            port = self._port_of("go")
        self._guardian.agent.send({"do": "go", "master_port": port})
        self._await_event("go_received", or_ended=not self._spec["module"])

    def _await_messages(self, names: List[str]) -> None:
        self._await(lambda: self._exchange.check(names), f"{names[0]} of the other nodes")

    def _await_event(self, name: str, *, or_ended: bool = False) -> Untrusted:
        def came() -> bool:
            self._exchange.check([])
            return name in self._events or (or_ended and "ended" in self._events)

        self._await(came, name)
        return self._event(name)

    def _event(self, name: str) -> Untrusted:
        return Untrusted(self._events.get(name))

    def _await(self, has_come: Any, what: str) -> None:
        """Wait while the agent lives and reports nothing wrong."""
        for _ in pauses(self._limit):
            self._exchange.beat()
            for header, _body in self._guardian.agent.read_available():
                self._events[Untrusted(header).text("event", 64)] = header
            self._show_step()
            if has_come():
                return
            self._check()
        raise SlurmError(f"{what}: nothing within {self._limit:g} s")

    def _let_others_report(self) -> None:
        """Wait a moment for the failure of another node, which may be why this agent lost its hub."""
        for _ in pauses(OTHERS_LIMIT):
            self._exchange.check([])

    def _show_step(self) -> None:
        """Show watchers which command of `setup` or `before` runs."""
        text = self._event("doing").text("text", MAX_REASON)
        if text != self._shown_step:
            self._shown_step = text
            with suppress(OSError):
                self._exchange.post(f"doing.{self._slot}", {"node": self._exchange.task.node, "text": text})

    def _check(self) -> None:
        """Raise SlurmError if the agent cannot start."""
        for name in FAILURES:
            if name in self._events:
                if name not in OWN_FAILURES:
                    self._let_others_report()
                event = self._event(name)
                text = event.text("text") or event.text("reason") or event.text("error")
                raise AgentFailedError(text or f"the agent reported {name}", self._events[name])
        if self._guardian.poll():
            raise SlurmError("the agent ended before it was ready; see agent.log")


def watch(guardian: Guardian, exchange: Exchange, rundir: str, *, can_requeue: bool = False) -> int:
    """Wait for the end of this node's part, and pass on an order to stop that was left in its directory.

    Nothing else may end this loop: Slurm kills every process of the step on this node when the task exits.
    """
    by_slurm: List[int] = []

    def pass_on(number: int, _: object) -> None:
        by_slurm.append(number)
        guardian.signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    ordered = False
    while not guardian.poll():
        exchange.beat()
        if not ordered and os.path.basename(RunPaths(rundir).stop_request) in list_folder(rundir):
            ordered = True
            guardian.signal(signal.SIGTERM)
        guardian.wait(STOP_INTERVAL)
    state = read_end(rundir)
    if state is None or state["state"] == SUCCEEDED:
        return 0 if state is not None else 1
    # a rank that Slurm's signal met before the agent has made this part FAILED
    was_stopped = was_stopped_by_slurm(state) or (bool(by_slurm) and not ordered)
    return TEMPORARY_FAILURE if can_requeue and was_stopped else 1


def read_end(rundir: str) -> Optional[Any]:
    """Read the state that the agent recorded last; a shared folder that fails for a moment is tried again."""
    for _ in range(END_TRIES):
        with suppress(OSError):
            return read_state(rundir)
        time.sleep(STOP_INTERVAL)
    return None
