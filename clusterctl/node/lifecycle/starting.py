"""Rules up to GO, and until torchrun listens; pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Optional

from ...protocol.exit_status import describe_end
from ..gang.limits import READY_LIMIT, time_to_restore
from ..state.run_record import time_to_prepare
from .ending import (
    abort_start,
    fail,
    name_launcher,
    on_cancelled,
    on_tick,
    on_time_is_up,
    report,
    stop_servants,
)
from .run import AttemptState, Phase, Run, new_attempt

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperReport, Restore
    from ...protocol.messages.files import JournalFacts, Spec, StartFailure, StateChange, TorchrunRecord
    from ...protocol.ranks import NodeRank


WATCH_LIMIT = (
    10.0  # seconds in which the directory of the checkpoints must have been read; a start waits no longer
)
PORT_TRIES = 3  # ports that torchrun may find taken by another process before the run fails


# environment, gate, `before`


def on_doing(run: Run, text: str) -> None:
    """Report which command of `setup` or `before` runs."""
    report(run, "doing", {"text": text})


def on_prepared(run: Run) -> None:
    """Begin to start up, once the client has sent its secrets; a spare only listens."""
    attempt = run.attempt
    if run.state.restartable and not attempt.idle:
        run.effects.start_progress()
    hold = attempt.spec["node_rank"] == 0 and not attempt.idle
    run.effects.open_ports(hold=hold, gang=attempt.is_first)


def on_ports_opened(run: Run, *, has_environment: bool, port: Optional[int], locked: bool) -> None:
    """Start the gate, unless its environment has to be made first; a spare is ready to be called in."""
    run.change(has_environment=has_environment)
    if run.attempt.idle:
        run.change(announced=True)
        if locked:
            run.effects.set_state({"state": "WAITING", "reason": "spare"})
        if run.attempt.unwatched:
            run.effects.watch_checkpoints()
        report_setup(run)
        report(run, "started", {})
        return
    run.change(held_port=port)
    if has_environment:
        run.processes.start_gate()
    else:
        announce_start(run, None)


def on_gate_started(run: Run, *, entry: Optional[TorchrunRecord], port: Optional[int] = None) -> None:
    """Go on with what comes after the gate, or end it if the end came while it was started.

    `port` is the new master port after one that was taken.
    """
    run.change(torchrun_runs=True)
    if run.phase is Phase.ENDING:
        run.effects.set_state({"torchrun": entry})
        on_tick(run)
        return
    if port is not None:
        run.change(held_port=port, port=port)
    run.effects.set_state({"torchrun": entry})
    if port is not None:
        return
    if not run.attempt.announced:
        announce_start(run, entry)
    elif not run.attempt.is_first:
        on_before_ordered(run)


def on_warm_gate(run: Run, method: str, text: str) -> None:
    """Record whether what waited for this attempt was used, and if not, why."""
    run.effects.journal("warm", {"method": method, "text": text})


def report_setup(run: Run) -> None:
    """Report whether the environment is there, where the job has one."""
    if run.attempt.spec.get("setup"):
        report(run, "setup", {"made": run.attempt.has_environment})


def announce_start(run: Run, torchrun: Optional[TorchrunRecord]) -> None:
    """Report the start; after the first attempt no client has to send anything."""
    run.change(announced=True)
    report_setup(run)
    report(run, "started", torchrun or {})
    if run.attempt.held_port is not None:
        report(run, "port", {"port": run.attempt.held_port})
    if not run.attempt.is_first:
        (on_before_ordered if run.attempt.has_environment else on_setup_ordered)(run)


def on_setup_ordered(run: Run) -> None:
    """Make the environment, once: the client has sent what it is made of."""
    if not run.attempt.helper and run.attempt.spec.get("setup"):
        run.change(helper="setup")
        run.effects.journal("setup", {})
        run.effects.set_state({"reason": "setup"})
        run.processes.start_helper("setup")


def on_setup_made(run: Run) -> None:
    """Start the gate in the environment."""
    run.change(helper="", has_environment=True)
    run.effects.set_state({"reason": ""})
    run.effects.journal("setup_done", {})
    report(run, "environment", {})
    if not run.attempt.idle:
        run.processes.start_gate()


def on_restored(run: Run, report: KeeperReport) -> None:
    """Go on with `before`, which may read the checkpoint; abandon the start if this node cannot have its files."""
    if not run.attempt.restoring or report.serial != run.attempt.number:
        return
    run.change(restoring=False)
    if report.why:
        reason = f"the checkpoint {report.name} cannot be restored: {report.why}"
        abort_start(run, "setup_failed", reason, {"text": reason, "code": report.code})
        return
    seconds = round(report.seconds, 1)
    facts: JournalFacts = {
        "name": report.name,
        "files": report.files,
        "bytes": report.bytes,
        "seconds": seconds,
    }
    run.effects.journal("resume", facts)
    if run.attempt.announced and run.attempt.has_environment:
        on_before_ordered(run)
    report_ready(run)


def on_before_ordered(run: Run) -> None:
    """Run the commands of `before`, once: the client has sent the code, or this is not the first attempt."""
    if run.attempt.restoring:
        return
    if not run.attempt.helper and run.attempt.before_pending:
        run.change(helper="before", before_started=True)
        run.effects.journal("before", {})
        run.processes.start_helper("before")


def on_before_done(run: Run) -> None:
    """Report that this node is ready, unless the gate is not."""
    run.change(helper="", before_pending=False)
    report_ready(run)


def on_helper_failed(run: Run, reason: str, facts: StartFailure) -> None:
    """Abandon the start: the environment could not be made, or a command of `before` failed."""
    abort_start(run, "setup_failed", reason, facts)


def on_step_failed(run: Run, *, reason: str, text: str, code: str, in_environment: bool) -> None:
    """Abandon the start after the error of one of its steps, and report why there will be no run."""
    facts: StartFailure = {"text": text, "code": code}
    if in_environment:
        facts["environment"] = True
    abort_start(run, "gate_failed", reason, facts)


# GO


def on_gate_ready(run: Run, torch: str) -> None:
    """Report that this node is ready, unless `before` is not; `torch` is the version that the gate has imported."""
    run.change(gate=torch)
    report_ready(run)


def report_ready(run: Run) -> None:
    """Report it once when nothing more has to be waited for but GO."""
    torch = run.attempt.gate
    if torch is None or run.attempt.before_pending or run.attempt.restoring:
        return
    if run.attempt.unwatched:
        run.effects.start_timer("watch", WATCH_LIMIT, partial(on_watched, attempt=run.attempt.number))
        run.effects.watch_checkpoints()
        return
    run.change(phase=Phase.READY)
    run.effects.journal("ready", {"torch": torch})
    report(run, "ready", {"torch": torch})
    if run.attempt.port is not None:
        start_torchrun(run)


def on_watched(run: Run, attempt: int) -> None:
    """Report that this node is ready: what the ranks of the attempt write from now on is seen."""
    if run.attempt.unwatched and run.attempt.number == attempt:
        run.change(unwatched=False)
        run.effects.cancel_timer("watch")
        report_ready(run)


def on_client_go(run: Run, port: int) -> None:
    """Send GO to the first attempt; that of a spare, which the gang may have called in already, is for the others."""
    if not run.attempt.is_first:
        run.effects.send_client("go_received", {})
        run.effects.close_client()
    elif run.phase is Phase.IDLE:
        run.change(phase=Phase.SPARE)
        run.change(started=True)
        run.effects.cancel_timer("go")
        report(run, "go_received", {})
        run.effects.gang.on_go()
        run.effects.close_client()
        run.processes.start_spare_gate()
    else:
        run.change(port=port)
        receive_go(run)


def on_gang_go(run: Run, address: str, port: int) -> None:
    """Send GO to a later attempt; the master may not be the first node."""
    run.change(port=port, address=address or run.attempt.address)
    receive_go(run)


def receive_go(run: Run) -> None:
    """Start torchrun; a GO that comes before the gate is ready waits for it."""
    if run.phase is Phase.READY:
        start_torchrun(run)


def start_torchrun(run: Run) -> None:
    """Make the gate become torchrun; node 0 then waits until it listens."""
    attempt, effects = run.attempt, run.effects
    port, master = int(attempt.port or 0), f"{attempt.address}:{attempt.port}"
    run.change(phase=Phase.RUNNING)
    run.change(started=True)
    effects.cancel_timer("go")
    if attempt.held_port is not None and not attempt.spec["module"]:
        # the program may bind the port in a way that allows no other holder
        run.change(held_port=None)
        run.processes.release_port()
    run.change(awaits_listener=run.attempt.held_port is not None)
    run.processes.send_go(attempt.address, port)
    effects.set_state({"state": "RUNNING", "reason": "", "master": master})
    effects.journal("go_received", {"master": master})
    report(run, "go_received", {})
    effects.gang.on_go()
    if run.attempt.awaits_listener:
        run.processes.await_listener(port)
    else:
        start_time_limit(run)
        effects.close_client()


def start_time_limit(run: Run) -> None:
    """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
    run.change(began=run.state.time)
    if run.state.began is None:
        count_time(run, run.attempt.spec.get("time_limit") or None)


def count_time(run: Run, seconds: Optional[float]) -> None:
    """End the run in so many seconds, whichever attempt it is at then."""
    run.replace(began=run.state.time)
    run.effects.set_state({"began": run.state.time})
    if seconds is not None:
        run.effects.start_timer("time limit", seconds, partial(on_time_is_up))


def on_listened(run: Run, *, listens: bool, text: str) -> None:
    """Report whether torchrun listens on the master port, or what it printed; the client has no more to wait for."""
    port = run.attempt.port
    run.change(awaits_listener=False)
    start_time_limit(run)
    if listens:
        run.effects.journal("listening", {"port": port})
        report(run, "listening", {"port": port})
    else:
        report(run, "failed", {"text": text, "port_taken": is_port_taken(text)})
    run.effects.close_client()


def is_port_taken(text: str) -> bool:
    """Whether torchrun has printed that its port is in use."""
    return "EADDRINUSE" in text


def can_retry(attempt: AttemptState, text: str, *, has_workers: bool) -> bool:
    """Whether another process took the master port between our holding it and torchrun's use of it.

    The other nodes have not got GO yet, so the port is known nowhere else.
    """
    waits = attempt.held_port is not None and attempt.awaits_listener and not has_workers
    is_free = waits and not attempt.has_cause and attempt.ports_tried < PORT_TRIES
    return is_free and is_port_taken(text)


def retry_with_another_port(run: Run) -> None:
    """Start the gate again, and give it GO when it is ready."""
    attempt = run.attempt
    run.change(
        phase=Phase.PREPARING,
        gate=None,
        awaits_listener=False,
        torchrun_runs=False,
        ports_tried=attempt.ports_tried + 1,
    )
    run.change(started=False)
    run.processes.release_port()
    run.effects.journal("port_taken", {"port": attempt.port})
    run.effects.set_state({"state": "PREPARING"})
    run.processes.start_gate(other_port=True)


# torchrun has ended: too early, or after the job


def on_torchrun_exited(
    run: Run,
    *,
    entry: TorchrunRecord,
    text: str,
    has_workers: bool,
    unseen_failure: str,
    in_environment: bool,
) -> None:
    """End the processes that the gate or torchrun has left, unless another port may help.

    `text`: what it printed last, or why the gate failed; `unseen_failure`: of a worker whose end only torchrun saw.
    """
    if can_retry(run.attempt, text, has_workers=has_workers):
        retry_with_another_port(run)
        return
    exit_code, signal = entry["exit"], entry["signal"]
    run.change(exit=exit_code, signal=signal)
    run.change(torchrun_runs=False)
    run.effects.set_state({"torchrun": entry})
    if run.attempt.started:
        program = name_launcher(run.attempt.spec)
        run.effects.journal("torchrun_exited", {"exit": exit_code, "signal": signal, "program": program})
        if exit_code == 0:
            stop_servants(run)
        else:
            fail(run, unseen_failure or record_torchrun_failure(run))
        if run.attempt.held_failure and not run.attempt.has_cause:
            return
    elif not run.attempt.has_cause and run.attempt.gate_failed is None:
        gate_failed(run, text, in_environment=in_environment)
        return
    if run.attempt.awaits_listener:
        run.processes.release_port()
        # one that has started workers has listened, however short: their end is how the run went
        on_listened(run, listens=exit_code == 0 or has_workers, text=text)
    on_tick(run)


def record_torchrun_failure(run: Run) -> str:
    """Return torchrun's end as the cause; one that was killed is recorded: it has left its workers for us."""
    attempt = run.attempt
    reason = f"{name_launcher(attempt.spec)} {describe_end(attempt.exit, attempt.signal)}"
    if attempt.signal is not None and not attempt.has_cause:
        run.change(torchrun_killed={"rank": None, "reason": reason, "time": run.state.time})
    return reason


def gate_failed(run: Run, text: str, *, in_environment: bool) -> None:
    """Abandon the start: the gate has ended before GO."""
    attempt = run.attempt
    ending = f"{run.attempt.spec['python']} {describe_end(attempt.exit, attempt.signal)} before it was ready"
    reason = text.strip().rpartition("\n")[2] or ending
    on_step_failed(run, reason=reason, text=text or ending, code="", in_environment=in_environment)


# further attempts


def on_attempt_called(
    run: Run,
    *,
    spec: Spec,
    node_rank: Optional[NodeRank],
    time_left: Optional[float],
    resume: Optional[Restore] = None,
) -> None:
    """Begin another attempt, with the node rank that the gang gives, or none.

    `time_left`: of the job's limit, where it has not been counted here; `resume`: the checkpoint that it goes on from.
    """
    first, idle, effects = run.attempt.spec, node_rank is None, run.effects
    begun: StateChange = {"attempt": spec["attempt"], "node_rank": spec["node_rank"]}
    begun.update({"ranks": {}, "torchrun": None, "master": None})
    if "checkpoints" in spec:
        begun["resumed"] = spec["resume"]
    effects.journal("attempt", {"attempt": spec["attempt"], "node_rank": node_rank})
    if "planned_nodes" in spec:
        nodes, planned = spec["nnodes"], spec["planned_nodes"]
        begun.update({"nnodes": nodes, "world_size": spec["world_size"], "planned_nodes": planned})
        if nodes < planned:
            effects.journal("smaller", {"nodes": nodes, "of": planned})
    effects.cancel_timer("go")  # a spare may be called in before the client's GO has come to it
    effects.set_state(begun, roster=True)
    if time_left is not None and run.state.began is None:
        count_time(run, time_left)
    run.replace(attempt=new_attempt(spec, idle=idle, is_first=False))
    effects.begin_attempt(spec)
    if idle:
        effects.set_state({"state": "WAITING", "reason": "spare"})
        if run.attempt.unwatched:
            effects.watch_checkpoints()
        return
    run.replace(part=None, leftovers=())
    limit = 2 * (READY_LIMIT + time_to_prepare(first) + time_to_restore(resume))
    effects.start_timer("go", limit, partial(on_cancelled, reason="no GO arrived"))
    if resume is not None:
        run.change(restoring=True)
        effects.restore(resume)
    on_prepared(run)
