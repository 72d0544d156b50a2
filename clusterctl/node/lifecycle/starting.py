"""Transitions up to GO, and until torchrun listens; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..gang.timeouts import READY_LIMIT
from ..state.run_record import time_to_prepare
from . import events
from .actions import (
    Act,
    Action,
    AwaitListener,
    BeginAttempt,
    CancelTimer,
    Journal,
    OpenPorts,
    Report,
    SendClient,
    SendGo,
    SetState,
    StartGate,
    StartHelper,
    StartTimer,
)
from .ending import Step, abort_start, fail, join_steps, stop_servants, tick
from .events import Notice
from .state import Phase, RunState, new_attempt

if TYPE_CHECKING:
    from ...protocol.messages.files import StartFailure, StateChange, TorchrunRecord

PORT_TRIES = 3  # ports that torchrun may find taken by another process before the run fails


# environment, gate, `before`


def on_doing(state: RunState, event: events.Doing) -> Step:
    """Report which command of `setup` or `before` runs."""
    return state, (Report("doing", {"text": event.text}),)


def on_prepared(state: RunState, _: Notice) -> Step:
    """Begin to start up; a spare only listens."""
    attempt = state.attempt
    hold = attempt.spec["node_rank"] == 0 and not attempt.idle
    progress = (Act.START_PROGRESS,) if state.restartable and not attempt.idle else ()
    return state, (*progress, OpenPorts(hold, attempt.is_first))


def on_ports_opened(state: RunState, event: events.PortsOpened) -> Step:
    """Start the gate, unless its environment has to be made first."""
    state = state.change(has_environment=event.has_environment, held_port=event.port)
    return (state, (StartGate(),)) if event.has_environment else announce_start(state, None)


def on_spare_listens(state: RunState, event: events.PortsOpened) -> Step:
    """A spare is ready to be called in, with nothing started."""
    state = state.change(has_environment=event.has_environment, announced=True)
    waiting = (SetState({"state": "WAITING", "reason": "spare"}),) if event.locked else ()
    return state, (*waiting, *report_setup(state), Report("started", {}))


def on_gate_started(state: RunState, event: events.GateStarted) -> Step:
    """Go on with what comes after the gate."""
    port = state.attempt.held_port if event.port is None else event.port
    state = state.change(torchrun_runs=True, held_port=port)
    warm = (Journal("warm", {"method": event.method, "text": event.text}),) if event.method else ()
    step: Step = state, (SetState({"torchrun": event.entry}), *warm)
    if event.port is not None:
        return state.change(port=event.port), step[1]
    if not state.attempt.announced:
        return join_steps(step, lambda state: announce_start(state, event.entry))
    return step if state.attempt.is_first else join_steps(step, start_before)


def on_gate_too_late(state: RunState, event: events.GateStarted) -> Step:
    """The end came while the gate was started."""
    started = SetState({"torchrun": event.entry})
    return join_steps((state.change(torchrun_runs=True), (started,)), tick)


def report_setup(state: RunState) -> Tuple[Action, ...]:
    """Report whether the environment is there, where the job has one."""
    return (
        (Report("setup", {"made": state.attempt.has_environment}),) if state.attempt.spec.get("setup") else ()
    )


def announce_start(state: RunState, torchrun: Optional[TorchrunRecord]) -> Step:
    """Report the start; after the first attempt no client has to bring anything."""
    attempt = state.attempt
    started = Report("started", torchrun or {})
    port = (Report("port", {"port": attempt.held_port}),) if attempt.held_port is not None else ()
    step: Step = state.change(announced=True), (*report_setup(state), started, *port)
    if attempt.is_first:
        return step
    return join_steps(step, start_before if attempt.has_environment else start_setup)


def on_setup_ordered(state: RunState, _: Notice) -> Step:
    """The client has sent what the environment is made of."""
    return start_setup(state)


def start_setup(state: RunState) -> Step:
    """Make the environment, once."""
    if state.attempt.helper or not state.attempt.spec.get("setup"):
        return state, ()
    actions = Journal("setup", {}), SetState({"reason": "setup"}), StartHelper("setup")
    return state.change(helper="setup"), actions


def on_setup_made(state: RunState, _: Notice) -> Step:
    """Start the gate in the environment."""
    state = state.change(helper="", has_environment=True)
    done = SetState({"reason": ""}), Journal("setup_done", {}), Report("environment", {})
    return state, done if state.attempt.idle else (*done, StartGate())


def on_before_ordered(state: RunState, _: Notice) -> Step:
    """The client has sent the code."""
    return start_before(state)


def start_before(state: RunState) -> Step:
    """Run the commands of `before`, once."""
    if state.attempt.helper or not state.attempt.before_pending:
        return state, ()
    return state.change(helper="before", before_started=True), (Journal("before", {}), StartHelper("before"))


def on_before_done(state: RunState, _: Notice) -> Step:
    """Then only the gate may have to be waited for."""
    return report_ready(state.change(helper="", before_pending=False))


def on_helper_failed(state: RunState, event: events.HelperFailed) -> Step:
    """Give up the start."""
    return abort_start(state, "setup_failed", event.reason, event.facts)


def on_step_failed(state: RunState, event: events.StepFailed) -> Step:
    """Give up the start, and report why there will be no run."""
    facts: StartFailure = {"text": event.text, "code": event.code}
    if event.in_environment:
        facts["environment"] = True
    return abort_start(state, "gate_failed", event.reason, facts)


# GO


def on_gate_ready(state: RunState, event: events.GateReady) -> Step:
    """Then only `before` may have to be waited for."""
    return report_ready(state.change(gate=event.torch))


def report_ready(state: RunState) -> Step:
    """Report it once when nothing more has to be waited for but GO."""
    torch = state.attempt.gate
    if torch is None or state.attempt.before_pending:
        return state, ()
    ready = Journal("ready", {"torch": torch}), Report("ready", {"torch": torch})
    step: Step = state.change(phase=Phase.READY), ready
    return step if state.attempt.port is None else join_steps(step, start_torchrun)


def on_client_go(state: RunState, event: events.ClientGo) -> Step:
    """Let the first attempt go; a spare's GO may come after the gang has called it in."""
    if not state.attempt.is_first:
        return state, (SendClient("go_received", {}), Act.CLOSE_CLIENT)
    return receive_go(state.change(port=event.port))


def on_spare_go(state: RunState, _: events.ClientGo) -> Step:
    """GO came for the others, and this node is a spare."""
    state = state.change(phase=Phase.SPARE).observe(started=True)
    return state, (CancelTimer("go"), Report("go_received", {}), Act.GANG_GO, Act.CLOSE_CLIENT)


def on_gang_go(state: RunState, event: events.GangGo) -> Step:
    """Let a later attempt go; the master may not be the first node."""
    return receive_go(state.change(port=event.port, address=event.address or state.attempt.address))


def receive_go(state: RunState) -> Step:
    """A GO that comes before the gate is ready waits for it."""
    return start_torchrun(state) if state.phase is Phase.READY else (state, ())


def start_torchrun(state: RunState) -> Step:
    """Let the gate become torchrun; node 0 then waits until it listens."""
    attempt = state.attempt
    address, port, master = attempt.address, int(attempt.port or 0), f"{attempt.address}:{attempt.port}"
    state = state.change(phase=Phase.RUNNING).observe(started=True)
    actions: Tuple[Action, ...] = (CancelTimer("go"),)
    if attempt.held_port is not None and not attempt.spec["module"]:
        # the program may bind the port in a way that allows no other holder
        state, actions = state.change(held_port=None), (*actions, Act.RELEASE_PORT)
    actions += (
        SendGo(address, port),
        SetState({"state": "RUNNING", "reason": "", "master": master}),
        Journal("go_received", {"master": master}),
        Report("go_received", {}),
        Act.GANG_GO,
    )
    if state.attempt.held_port is not None:
        return state.change(awaits_listener=True), (*actions, AwaitListener(port))
    return join_steps((state, actions), start_time_limit, lambda state: (state, (Act.CLOSE_CLIENT,)))


def start_time_limit(state: RunState) -> Step:
    """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
    state = state.change(began=state.time)
    limit = state.attempt.spec.get("time_limit") or None
    return (state, ()) if state.began is not None else count_time(state, limit)


def count_time(state: RunState, seconds: Optional[float]) -> Step:
    """End the run in so many seconds, whichever attempt it is at then."""
    limit = () if seconds is None else (StartTimer("time limit", seconds, Notice.TIME_IS_UP),)
    return state._replace(began=state.time), (SetState({"began": state.time}), *limit)


def on_listened(state: RunState, event: events.Listened) -> Step:
    """Report what became of the master port; the client has no more to wait for."""
    port = state.attempt.port
    step = start_time_limit(state.change(awaits_listener=False))
    if event.listens:
        outcome: Tuple[Action, ...] = (
            Journal("listening", {"port": port}),
            Report("listening", {"port": port}),
        )
    else:
        taken = "EADDRINUSE" in event.text
        outcome = (Report("failed", {"text": event.text, "port_taken": taken}),)
    return step[0], (*step[1], *outcome, Act.CLOSE_CLIENT)


def can_retry(state: RunState, event: events.TorchrunExited) -> bool:
    """Whether another process took the master port between our holding it and torchrun's use of it.

    The other nodes have not got GO yet, so the port is known nowhere else.
    """
    attempt = state.attempt
    waits = attempt.held_port is not None and attempt.awaits_listener and not event.has_workers
    is_free = waits and not attempt.has_cause and attempt.ports_tried < PORT_TRIES
    return is_free and "EADDRINUSE" in event.text


def retry_with_another_port(state: RunState) -> Step:
    """Start the gate again, and let it go when it is ready."""
    attempt = state.attempt
    again = attempt._replace(
        phase=Phase.PREPARING,
        gate=None,
        awaits_listener=False,
        torchrun_runs=False,
        ports_tried=attempt.ports_tried + 1,
        observed=attempt.observed._replace(started=False),
    )
    taken = Journal("port_taken", {"port": attempt.port}), SetState({"state": "PREPARING"})
    return state._replace(attempt=again), (Act.RELEASE_PORT, *taken, StartGate(other_port=True))


# torchrun has ended: too early, or after the job


def on_torchrun_exited(state: RunState, event: events.TorchrunExited) -> Step:
    """End the processes that it left, unless another port may help."""
    if can_retry(state, event):
        return retry_with_another_port(state)
    state = state.observe(exit=event.exit, signal=event.signal).change(torchrun_runs=False)
    step: Step = state, (SetState({"torchrun": event.entry}),)
    observed = state.attempt.observed
    if observed.started:
        exited = Journal("torchrun_exited", {"exit": event.exit, "signal": event.signal})
        step = state, (*step[1], exited)
        follow = stop_servants if event.exit == 0 else lambda state: torchrun_failed(state, event)
        step = join_steps(step, follow)
        if step[0].attempt.held_failure and not step[0].attempt.has_cause:
            return step
    elif not state.attempt.has_cause and observed.gate_failed is None:
        return join_steps(step, lambda state: gate_failed(state, event))
    if state.attempt.awaits_listener:
        # one that has started workers has listened, however short: their end is how the run went
        listened = events.Listened(event.exit == 0 or event.has_workers, event.text)
        step = step[0], (*step[1], Act.RELEASE_PORT)
        step = join_steps(step, lambda state: on_listened(state, listened))
    return join_steps(step, tick)


def torchrun_failed(state: RunState, event: events.TorchrunExited) -> Step:
    """Take a worker whose end was not seen as the cause, or torchrun; one that was killed left its workers for us."""
    reason = f"torchrun {event.ending}"
    is_cause = not state.attempt.has_cause and not event.unseen_failure
    if is_cause and event.signal is not None:
        killed = {"rank": None, "reason": reason, "time": state.time}
        state = state.change(torchrun_killed=killed)
    return fail(state, event.unseen_failure or reason)


def gate_failed(state: RunState, event: events.TorchrunExited) -> Step:
    """The gate has ended before GO."""
    ending = f"{state.attempt.spec['python']} {event.ending} before it was ready"
    reason = event.text.strip().rpartition("\n")[2] or ending
    return on_step_failed(state, events.StepFailed(reason, event.text or ending, "", event.in_environment))


# further attempts


def on_attempt_called(state: RunState, event: events.AttemptCalled) -> Step:
    """Begin another attempt, with the node rank that the gang gives, or none."""
    spec, first, idle = event.spec, state.attempt, event.node_rank is None
    called = Journal("attempt", {"attempt": spec["attempt"], "node_rank": event.node_rank})
    begun: StateChange = {"attempt": spec["attempt"], "node_rank": spec["node_rank"]}
    begun.update({"ranks": {}, "torchrun": None, "master": None})
    written = SetState(begun, roster=True)
    # a spare may be called in before the client's GO has come to it
    step: Step = state, (called, CancelTimer("go"), written)
    if event.time_left is not None and state.began is None:
        step = join_steps(step, lambda state: count_time(state, event.time_left))
    state, actions = step
    attempt = new_attempt(spec, idle=idle, is_first=False)
    state, actions = state._replace(attempt=attempt), (*actions, BeginAttempt(spec))
    if idle:
        return state, (*actions, SetState({"state": "WAITING", "reason": "spare"}))
    limit = 2 * (READY_LIMIT + time_to_prepare(first.spec))
    timeout = StartTimer("go", limit, events.Cancelled("no GO arrived"))
    state = state._replace(part=None, leftovers=())
    return join_steps((state, (*actions, timeout)), lambda state: on_prepared(state, Notice.PREPARED))
