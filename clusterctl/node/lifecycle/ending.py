"""Rules from the first cause of an end to the recorded end: failures, stops, kills, `after`; pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ...protocol.exit_status import describe_alone, describe_end, describe_limit, describe_stall
from ...protocol.messages.gang import Failed, StopOrder
from ...protocol.ranks import Rank
from ...protocol.reasons import DONE, FAILURE, NODE_0_ENDED, TIME
from ...protocol.states import FAILED, FAILED_SETUP, STOPPED, SUCCEEDED, TIMEOUT
from ..gang.limits import FAILURE_WAIT
from ..runtime.processes import UNKILLABLE_AFTER, Stat
from .run import FOREVER, AttemptState, Phase, Run, RunState

if TYPE_CHECKING:
    from typing import Any, Literal

    from ...protocol.messages.files import (
        AloneRecord,
        AttemptEnd,
        AttemptRecord,
        EndedProcess,
        EndState,
        JournalFacts,
        LeftProcess,
        OutsideSummary,
        PartRecord,
        RankRecord,
        RestartsEnd,
        Spec,
        StartFailure,
        StateChange,
    )
    from ...protocol.messages.verbs import EventName
    from ...protocol.states import RunState as StateName


SUMMARY_TIME = 0.7  # seconds that torchrun has, once its workers are killed, to say what happened
OUTLIVED_WAIT = 1.0  # seconds that processes have which outlive torchrun
TICK_INTERVAL = 0.02
FINISH_LIMIT = 60.0  # seconds in which the last checkpoint is sealed: 60 GB of a node at 1 GB/s
HELD_FAILURE = 10.0  # seconds in which node 0's program may end in order, after one that serves it has failed
NOT_NEEDED = "this spare was not needed"
OVER = (Phase.AFTER, Phase.ENDED)


def report(run: Run, event: EventName, facts: Any) -> None:
    """Report to what leads the start: of the first attempt the client, then the gang."""
    if run.attempt.is_first:
        run.effects.send_client(event, facts)
    else:
        run.effects.gang.on_startup_event(event, facts)


# what kills, and when


def shorten_kill(run: Run, seconds: float, more: float) -> None:
    """Kill the workers after so many seconds, and torchrun so many later; no earlier moment is put off."""
    moment = run.state.now + seconds
    run.change(kill=run.attempt.kill.shorten(moment, moment + more))


def kill_now(run: Run) -> None:
    """Kill everything."""
    shorten_kill(run, 0.0, 0.0)
    on_tick(run)


def schedule_tick(run: Run) -> None:
    """Come back when something is due; once no process is left a moment to come would be the next attempt's."""
    kill = run.attempt.kill
    if run.phase in OVER or (not kill.outlived and kill.workers_at == FOREVER):
        return
    wait = 0.0 if kill.outlived else kill.workers_at - run.state.now
    run.effects.start_timer("end", max(TICK_INTERVAL, wait), partial(on_tick))


def is_overdue(state: RunState) -> bool:
    """Whether killed processes that are still there count as left."""
    return state.now >= state.attempt.kill.all_at + UNKILLABLE_AFTER


def on_tick(run: Run) -> None:
    """Kill what is due; once torchrun has ended, find what it has left."""
    attempt, now = run.attempt, run.state.now
    if attempt.phase in OVER:
        return
    if now >= attempt.kill.workers_at:
        run.processes.kill_below(spare_torchrun=attempt.torchrun_runs and now < attempt.kill.all_at)
    if not attempt.torchrun_runs or is_overdue(run.state):
        run.processes.find_remaining()
    else:
        schedule_tick(run)


def on_remaining(run: Run, processes: List[Stat]) -> None:
    """End the attempt when nothing is left that can be ended; else give it a moment for its own end.

    `processes`: what still runs of the attempt once torchrun has ended, or should have.
    """
    if not processes or is_overdue(run.state):
        run.change(phase=Phase.AFTER, held_port=None, awaits_listener=False)
        run.effects.cancel_timer("end")
        run.processes.close(processes, started=run.attempt.started)
        return
    if not run.attempt.kill.outlived:
        shorten_kill(run, OUTLIVED_WAIT, 0.0)
        run.change(kill=run.attempt.kill._replace(outlived=True))
    run.processes.signal_all(processes, kill=run.state.now >= run.attempt.kill.all_at)
    schedule_tick(run)


# workers


def on_start_method(run: Run, method: str, text: str) -> None:
    """Record whether the first worker was forked, or had to be started with a new interpreter; `text` is why."""
    keeps = "keep_warm" in run.attempt.spec.get("start", {})
    run.effects.journal("start_method", {"method": method, "text": text, "keep_warm": keeps})


def on_workers_started(run: Run, ranks: List[Rank]) -> None:
    """Record that all workers have a process; the logs are followed before they are reported."""
    run.effects.start_logs()
    run.processes.record_workers()
    run.effects.journal("workers", {"ranks": ranks})
    run.processes.watch_ranks(run.state.began)
    if not run.attempt.spec["module"] and run.attempt.torchrun_runs:
        run.processes.watch_nested()


def on_world_seen(run: Run, size: int) -> None:
    """Record the WORLD_SIZE that a program's own workers were started with, at once if it was not planned."""
    planned = run.attempt.spec["world_size"]
    if planned not in (None, size):
        run.effects.journal("world_size", {"seen": size, "planned": planned})
    run.processes.record_workers()


def on_nested_found(run: Run, ranks: List[Rank]) -> None:
    """Take the ranks that the program has started, these by now, as the node's ranks from now on."""
    run.processes.record_workers()
    run.effects.journal("workers", {"ranks": ranks})
    run.effects.start_logs()


def on_nested_exited(run: Run, rank: Rank) -> None:
    """Record it; what follows from it is for its launcher, whose end is that of this node's part."""
    run.processes.record_workers(rank)


def on_rank_exited(
    run: Run, *, rank: Rank, pid: int, exit_code: Optional[int], signal: Optional[int], failure: str
) -> None:
    """Record a worker's end; after a failure, which `failure` describes, the others do not wait long for torchrun."""
    is_held = bool(failure) and is_servant(run)
    if is_held:
        fail(run, failure)
    run.effects.journal("rank_exited", {"rank": rank, "pid": pid, "exit": exit_code, "signal": signal})
    run.processes.record_workers(rank)
    if failure and not is_held:
        fail(run, failure)


def stop_servants(run: Run) -> None:
    """End the programs that serve node 0's, which has ended in order."""
    spec = run.attempt.spec
    if ends_with_first(run) and spec["node_rank"] == 0 and not run.attempt.has_cause:
        run.effects.gang.report(StopOrder(NODE_0_ENDED, float(spec["grace"]), DONE))


def ends_with_first(run: Run) -> bool:
    """Whether the run ends when node 0's program does."""
    return run.attempt.spec.get("ends_with") == "node 0"


def is_servant(run: Run) -> bool:
    """Whether this node's program fails when node 0's ends in order; orted ends with 0 if all is well."""
    spec = run.attempt.spec
    return ends_with_first(run) and spec["node_rank"] != 0 and "mpi" not in spec


def on_rank_stuck(run: Run, rank: Rank, process: Stat, exception: str, seconds: float) -> None:
    """Take a rank that has failed and does not exit as any that has failed; it is ended as any rank that is to stop.

    It has written its traceback, and nothing for so many seconds.
    """
    facts: JournalFacts = {
        "rank": rank,
        "pid": process.pid,
        "reason": exception,
        "seconds": round(seconds, 1),
    }
    run.effects.journal("rank_stuck", facts)
    run.processes.signal_all([process], kill=False)
    fail(run, "rank %d did not exit after its traceback" % rank, float(run.attempt.spec["grace"]))


def on_stalled(run: Run, seconds: float) -> None:
    """End an attempt in which no rank of the whole run makes progress: SIGTERM, and the grace of the run."""
    if run.attempt.has_cause or run.attempt.held_failure:
        return
    grace, reason = float(run.attempt.spec["grace"]), describe_stall(seconds)
    record_stop(run, reason, grace)
    run.processes.terminate_torchrun()
    fail(run, reason, grace)


# causes of an end


def fail(run: Run, reason: str, wait: float = FAILURE_WAIT, *, may_hold: bool = True) -> None:
    """Take the first failure as the cause, unless we were stopping anyway; report it, and begin the end."""
    if run.attempt.has_cause:
        return
    if may_hold and is_servant(run):
        hold_failure(run, reason)
        return
    run.change(first_failure=reason)
    shorten_kill(run, wait, SUMMARY_TIME)
    begin_end(run)
    run.effects.gang.report(Failed(run.attempt.number, reason))
    schedule_tick(run)


def hold_failure(run: Run, reason: str) -> None:
    """Wait whether node 0's program has ended in order: a worker of Ray ends with 1 when its head does."""
    if not run.attempt.held_failure:
        run.change(held_failure=reason)
        run.effects.journal("failure_held", {"reason": reason})
        run.effects.start_timer("held failure", HELD_FAILURE, partial(on_held_over))


def on_held_over(run: Run) -> None:
    """Count the failure: node 0's program goes on, although one that serves it has failed."""
    if not run.attempt.has_cause and run.attempt.held_failure:
        fail(run, run.attempt.held_failure, may_hold=False)
        on_tick(run)


def begin_end(run: Run, *, is_done: bool = False) -> None:
    """Enter the phase in which the processes are ended, unless none is left.

    If the job `is_done`, what the ranks wrote is whole: nothing is paused, which would end copies too.
    """
    if run.phase not in OVER:
        run.change(phase=Phase.ENDING)
        if "checkpoints" in run.attempt.spec and not is_done:
            run.effects.pause_checkpoints()


def abort_start(
    run: Run, event: Literal["setup_failed", "gate_failed"], reason: str, facts: StartFailure
) -> None:
    """Report why there will be no run, and end what was started for it."""
    run.change(gate_failed=reason)
    begin_end(run)
    run.effects.journal(event, facts)
    report(run, event, facts)
    kill_now(run)


def on_cancelled(run: Run, reason: str) -> None:
    """End everything at once: the client ordered it, or no GO arrived."""
    is_first = run.attempt.cancelled is None
    if is_first:
        run.change(cancelled=reason)
    begin_end(run)
    if is_first:
        record_stop(run, reason, 0)
    kill_now(run)


def on_client_left(run: Run) -> None:
    """Cancel unless GO was given."""
    if run.attempt.is_first and not run.attempt.started:
        on_cancelled(run, "the client disconnected before GO")


def record_stop(run: Run, reason: str, grace: float) -> None:
    """Record that the run is to end, and since when."""
    run.change(stopped_at=run.attempt.stopped_at or run.state.time)
    run.processes.scan_output()
    run.effects.journal("stopping", {"reason": reason, "grace": grace})


def on_stop_ordered(run: Run, order: StopOrder) -> None:
    """End this node's part: SIGTERM to torchrun once, and a time for the end, which can only come closer."""
    attempt = run.attempt
    if attempt.phase in (*OVER, Phase.SPARE):
        if not (attempt.idle and order.kind == FAILURE):  # the rest of the gang goes on
            record_stop(run, order.reason, order.grace)
        on_checkpoints_finished(run)
    elif not attempt.started:
        on_cancelled(run, order.reason)
    elif attempt.torchrun_runs:
        terminate(run, order)
    elif attempt.held_failure:
        terminate(run, order)
        on_tick(run)


def terminate(run: Run, order: StopOrder) -> None:
    """Have torchrun end its workers."""
    if run.attempt.cancelled is None:
        run.change(cancelled=order.reason, stop_kind=order.kind)
    shorten_kill(run, order.grace, SUMMARY_TIME)
    begin_end(run, is_done=order.kind == DONE)
    record_stop(run, order.reason, order.grace)
    if run.attempt.first_failure is None:
        run.processes.terminate_torchrun()
    schedule_tick(run)


def on_stop_requested(run: Run, order: StopOrder) -> None:
    """End the run on all nodes, as a person asked; a second stop does not wait for `after`."""
    if run.state.stops and run.attempt.after_runs:
        on_after_ended(run, "after: was killed by a second stop")
    run.replace(stops=run.state.stops + 1)
    stop_everywhere(run, order)


def on_time_is_up(run: Run) -> None:
    """End the run because the job's time limit has passed, unless it is ending already."""
    attempt, spec = run.attempt, run.attempt.spec
    is_ending = attempt.cancelled is not None or attempt.first_failure is not None
    if not is_ending or (run.state.restartable and run.phase in OVER):
        reason = describe_limit(spec["time_limit"] or 0.0)
        stop_everywhere(run, StopOrder(reason, float(spec["grace"]), TIME))


def stop_everywhere(run: Run, order: StopOrder) -> None:
    """End the part of this node, and the others'."""
    # the others first: what they lose when our ranks end must not look like a failure of theirs
    run.effects.gang.report(order)
    on_stop_ordered(run, order)


def on_guardian_lost(run: Run) -> None:
    """End everything: if the agent was killed too, the processes of this run would not be ended."""
    run.effects.journal("guardian_lost", {})
    stop_unsupervised(run, "the guardian was killed")


def on_agent_failed(run: Run, reason: str) -> None:
    """End in order after an error of our own."""
    run.replace(failing=True)
    run.effects.journal("agent_failed", {"reason": reason})
    if run.state.final:
        run.effects.gang.leave()
    else:
        stop_unsupervised(run, reason)


def stop_unsupervised(run: Run, reason: str) -> None:
    """End everything here at once, because it can be looked after no more, and take part in no other attempt."""
    if run.state.restartable:
        run.replace(agent_lost_reason=reason)
        if run.attempt.idle or run.phase in OVER:
            on_concluded(run, {"state": "FAILED", "reason": reason})
            run.effects.gang.leave()
            return
    run.change(lost=reason)
    run.change(lost_at=run.state.time)
    begin_end(run)
    run.effects.gang.report(Failed(run.attempt.number, reason))
    kill_now(run)


# after the last process


def on_all_ended(
    run: Run,
    leftovers: List[LeftProcess],
    signalled: List[EndedProcess],
    worlds: Dict[Rank, Optional[int]],
    alone: Optional[AloneRecord] = None,
) -> None:
    """Decide how it ended: nothing of the attempt runs any more but what could not be ended."""
    run.replace(leftovers=tuple(leftovers))
    run.change(signalled=tuple(signalled))
    name, reason = judge(run.attempt, worlds)
    if name != SUCCEEDED or reason or alone is None:
        run.processes.build_part(name, reason, run.attempt)
    else:
        run.processes.build_part(name, describe_alone(alone), run.attempt, alone)


def judge(attempt: AttemptState, worlds: Mapping[Rank, Optional[int]]) -> Tuple[StateName, str]:
    """Return the state and the reason; a failure still counts if a stop came after it."""
    if attempt.lost is not None:
        return (FAILED if attempt.started else FAILED_SETUP), attempt.lost
    if not attempt.started and attempt.gate_failed is not None:
        return FAILED_SETUP, attempt.gate_failed
    if attempt.first_failure is not None:
        return FAILED, attempt.first_failure
    if attempt.cancelled is not None:
        return _judge_stop(attempt, attempt.cancelled)
    if attempt.exit != 0:
        return FAILED, f"{name_launcher(attempt.spec)} {describe_end(attempt.exit, attempt.signal)}"
    return _judge_worlds(attempt.spec, worlds)


def name_launcher(spec: Spec) -> str:
    """Name the process that starts the ranks of a node."""
    if spec["module"]:
        return "torchrun"
    return "mpirun" if "mpi" in spec else "launcher"


def _judge_stop(attempt: AttemptState, reason: str) -> Tuple[StateName, str]:
    if attempt.stop_kind == DONE:  # node 0's program has ended, which this node's served
        return SUCCEEDED, ""
    return (TIMEOUT if attempt.stop_kind == TIME else STOPPED), reason


def _judge_worlds(spec: Spec, worlds: Mapping[Rank, Optional[int]]) -> Tuple[StateName, str]:
    if len(worlds) != spec["processes"]:
        return FAILED, f"{len(worlds)} of {spec['processes']} workers were started"
    planned = spec["world_size"] if spec["module"] else None  # else it is the program's own affair
    for rank, world_size in sorted(worlds.items()):
        if planned is not None and world_size != planned:
            return FAILED, f"rank {rank} saw WORLD_SIZE {world_size}, planned were {planned}"
    return SUCCEEDED, ""


def on_part_built(run: Run, part: PartRecord, *, has_after: bool) -> None:
    """Run the commands of `after` if anything of the job itself was started."""
    attempt = run.attempt
    run.replace(part=part)
    if not attempt.started and not attempt.before_started:
        hand_over(run, part)
    elif not has_after:
        run.processes.scan_outside()
    else:
        run.change(after_runs=True)
        run.effects.set_state({"after": ""})
        run.effects.journal("after", {})
        run.processes.start_after(part["state"], part["reason"])


def on_after_ended(run: Run, reason: str = "", text: str = "") -> None:
    """Kill what the commands have left; that they failed, for `reason`, is recorded and changes nothing."""
    if not run.attempt.after_runs:
        return
    run.change(after_runs=False)
    run.processes.kill_after_hook()
    if reason:
        run.effects.journal("after_failed", {"reason": reason, "text": text})
        run.effects.set_state({"after": reason})
    run.processes.scan_outside()


def on_outside_read(run: Run, summary: Optional[OutsideSummary]) -> None:
    """Record what the job has left outside its output directory, then let the last checkpoint be sealed.

    The end follows also if either takes too long, and at once after a stop, such as a failure of another node.
    """
    if summary is not None:
        run.effects.set_state({"outside": summary})
    part, attempt = run.state.part, run.attempt
    assert part is not None  # on_part_built has set it
    is_stopped = attempt.stopped_at is not None and attempt.stop_kind != DONE
    if part["state"] != SUCCEEDED or is_stopped or "checkpoints" not in attempt.spec:
        hand_over(run, part)
        return
    run.change(finishing=True)
    run.effects.start_timer("checkpoints", FINISH_LIMIT, partial(on_checkpoints_finished))
    run.effects.finish_checkpoints()


def on_checkpoints_finished(run: Run) -> None:
    """Hand the end over: what the ranks wrote last is sealed, takes too long, or a stop does not wait for it."""
    part = run.state.part
    if run.attempt.finishing and part is not None and not run.state.final:
        run.change(finishing=False)
        run.effects.cancel_timer("checkpoints")
        hand_over(run, part)


def hand_over(run: Run, part: PartRecord) -> None:
    """Record the end of this node's part and report it; with restarts the gang decides what follows."""
    attempt, effects, left = run.attempt, run.effects, list(run.state.leftovers)
    change: StateChange = {"left": left}
    if "alone" in part:
        change["alone"] = part["alone"]
    run.change(phase=Phase.ENDED)
    if run.state.restartable and (attempt.started or not attempt.is_first):
        effects.conclude_logs()
        end = describe_end_here(run, part["state"], part["reason"])
        effects.journal("attempt_ended", {"attempt": attempt.number, **end})
        effects.set_state({"state": "WAITING", "reason": "waits for the other nodes", **change})
    else:
        run.replace(final=True)
        effects.conclude_logs()
        effects.save_record(part)
        record_end(run, (part["state"], part["reason"]), change)
    effects.report_end(part)


def describe_end_here(run: Run, state: StateName, reason: str) -> JournalFacts:
    """Return what the journal has of an end."""
    signalled, left = list(run.attempt.signalled), list(run.state.leftovers)
    return {"state": state, "reason": reason, "ended": signalled, "left": left}


def record_end(run: Run, end: Tuple[StateName, str], change: StateChange, *, roster: bool = False) -> None:
    """Record the end of the run on this node, its state and the reason, and release what it held."""
    state, reason = end
    run.effects.journal("ended", describe_end_here(run, state, reason))
    run.effects.set_state({"state": state, "reason": reason, **change}, roster=roster)
    run.effects.send_client("ended", {"state": state, "reason": reason})
    run.effects.close_client()
    run.effects.unlock()


# further attempts


def on_gang_reported(run: Run) -> None:
    """See whether this node could go on, unless the gang has decided at once that none does."""
    if not run.state.final:
        run.effects.await_cleared()


def on_cleared(run: Run, *, memory_held: bool, progress: Optional[bool]) -> None:
    """Report that nothing of the attempt is left, or why this node can take part in no other.

    `memory_held`: the memory of the GPUs will not become free; `progress`: None if it is not known.
    """
    if run.state.final:
        return
    unfit = run.state.agent_lost_reason
    if not unfit and run.state.leftovers:
        unfit = "%d processes could not be ended" % len(run.state.leftovers)
    if not unfit and memory_held:
        unfit = "the memory of its GPUs is still in use"
    run.effects.gang.on_cleared(unfit, progress)


def on_paused(
    run: Run,
    *,
    entry: AttemptEnd,
    seconds: float,
    text: str,
    attempts: List[AttemptRecord],
    ranks: Dict[str, RankRecord],
) -> None:
    """Record the attempt that ended, and that another one follows; `attempts` are those on record."""
    part = None if run.attempt.idle else run.state.part
    last: AttemptRecord = {
        "attempt": entry["attempt"],
        "began": entry["began"],
        "ended": entry["ended"],
        "node_rank": part["node_rank"] if part else None,
        "state": part["state"] if part else None,
        "reason": part["reason"] if part else "",
        "cause_reason": entry["reason"],
        "node": entry["node"],
        "text": entry["text"],
        "progress": entry["progress"],
        "ranks": ranks,
    }
    earlier = [other for other in attempts if other["attempt"] != entry["attempt"]]
    facts: JournalFacts = {"attempt": entry["attempt"], "reason": entry["text"], "seconds": seconds}
    run.effects.journal("pausing", facts)
    run.effects.set_state({"state": "WAITING", "reason": text, "attempts": [*earlier, last]}, roster=True)


def on_concluded(run: Run, end: RestartsEnd) -> None:
    """Record the end: the last attempt's as this node saw it, unless it has come about in between."""
    if run.state.final:
        return
    here = own_end(run.state, end.get("state"), str(end.get("reason") or ""))
    run.replace(final=True)
    record_end(run, here, {"gave_up": end.get("gave_up")}, roster=True)


def own_end(state: RunState, given: Optional[EndState], reason: str) -> Tuple[StateName, str]:
    """Return how the run ended for this node."""
    idle = state.attempt.idle
    if given and (state.agent_lost_reason or not idle):
        return given, reason
    if state.part is not None:  # of an earlier attempt, where this node was fit for no other
        return state.part["state"], state.part["reason"]
    return ("SUCCEEDED", NOT_NEEDED) if idle else ("FAILED", "the run ended before this node's part did")


def on_gang_done(run: Run) -> None:
    """End the agent: nothing of the gang is left to wait for."""
    run.effects.leave()
