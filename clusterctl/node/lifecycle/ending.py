"""Transitions from the first cause of an end to the recorded end: failures, stops, kills, `after`; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Tuple

from ...protocol.exit_status import describe_alone, describe_end, describe_limit, describe_stall
from ...protocol.messages.gang import StopOrder
from ...protocol.messages.stop_kinds import DONE, FAILURE, TIME
from ...protocol.reasons import NODE_0_ENDED
from ...protocol.states import FAILED, FAILED_SETUP, STOPPED, SUCCEEDED, TIMEOUT
from ..gang.timeouts import FAILURE_WAIT
from ..runtime.processes import UNKILLABLE_AFTER
from . import events
from .actions import (
    Act,
    Action,
    BuildPart,
    CancelTimer,
    CloseAttempt,
    GangCleared,
    GangEnd,
    GangFailure,
    GangStop,
    Journal,
    KillBelow,
    RecordWorkers,
    Report,
    SaveRecord,
    SendClient,
    SetState,
    SignalAll,
    StartAfter,
    StartTimer,
)
from .events import Notice
from .state import FOREVER, Observed, Phase, RunState

if TYPE_CHECKING:
    from typing import Literal

    from ...protocol.messages.files import AttemptRecord, EndState, JournalFacts, StartFailure, StateChange
    from ...protocol.states import RunState as StateName

Step = Tuple[RunState, Tuple[Action, ...]]
SUMMARY_TIME = 0.7  # seconds that torchrun has, once its workers are killed, to say what happened
OUTLIVED_WAIT = 1.0  # seconds that processes have which outlive torchrun
TICK_INTERVAL = 0.02
HELD_FAILURE = 10.0  # seconds in which node 0's program may end in order, after one that serves it has failed
NOT_NEEDED = "this spare was not needed"
OVER = (Phase.AFTER, Phase.ENDED)


def join_steps(step: Step, *transitions: Callable[[RunState], Step]) -> Step:
    """Let further transitions follow."""
    for transition in transitions:
        state, actions = transition(step[0])
        step = state, (*step[1], *actions)
    return step


# what kills, and when


def kill_after(state: RunState, seconds: float) -> Step:
    """Kill the workers after so many seconds, and torchrun a moment later."""
    moment = state.now + seconds
    state = state.change(kill=state.attempt.kill.shorten(moment, moment + SUMMARY_TIME))
    return state, schedule_tick(state)


def kill_now(state: RunState) -> Step:
    """Kill everything."""
    return tick(state.change(kill=state.attempt.kill.shorten(state.now, state.now)))


def schedule_tick(state: RunState) -> Tuple[Action, ...]:
    """Come back when something is due; once no process is left a moment to come would be the next attempt's."""
    kill = state.attempt.kill
    if state.phase in OVER or (not kill.outlived and kill.workers_at == FOREVER):
        return ()
    wait = 0.0 if kill.outlived else kill.workers_at - state.now
    return (StartTimer("end", max(TICK_INTERVAL, wait), Notice.TICK),)


def is_overdue(state: RunState) -> bool:
    """Whether killed processes that are still there count as left."""
    return state.now >= state.attempt.kill.all_at + UNKILLABLE_AFTER


def tick(state: RunState) -> Step:
    """Kill what is due; once torchrun has ended, find what it has left."""
    attempt = state.attempt
    actions: Tuple[Action, ...] = ()
    if attempt.phase in OVER:
        return state, ()
    if state.now >= attempt.kill.workers_at:
        actions = (KillBelow(spare_torchrun=attempt.torchrun_runs and state.now < attempt.kill.all_at),)
    if not attempt.torchrun_runs or is_overdue(state):
        return state, (*actions, Act.FIND_REMAINING)
    return state, (*actions, *schedule_tick(state))


def on_tick(state: RunState, _: Notice) -> Step:
    """A moment of the schedule has come."""
    return tick(state)


def on_remaining(state: RunState, event: events.Remaining) -> Step:
    """Done when nothing is left that can be ended; else it has a moment for its own end."""
    if not event.processes or is_overdue(state):
        state = state.change(phase=Phase.AFTER, held_port=None, awaits_listener=False)
        return state, (CancelTimer("end"), CloseAttempt(event.processes))
    kill = state.attempt.kill
    if not kill.outlived:
        kill = kill.shorten(state.now + OUTLIVED_WAIT, state.now + OUTLIVED_WAIT)._replace(outlived=True)
    state = state.change(kill=kill)
    return state, (SignalAll(event.processes, kill=state.now >= kill.all_at), *schedule_tick(state))


# workers


def on_start_method(state: RunState, event: events.StartMethodChosen) -> Step:
    """The job's `start` has been decided."""
    return state, (Journal("start_method", {"method": event.method, "text": event.text}),)


def on_workers_started(state: RunState, event: events.WorkersStarted) -> Step:
    """Record them; the logs are followed before they are reported."""
    workers = Journal("workers", {"ranks": event.ranks})
    started = Act.START_LOGS, RecordWorkers(), workers, Act.WATCH_RANKS
    sizes = not state.attempt.spec["module"] and state.attempt.torchrun_runs
    return state, (*started, Act.WATCH_NESTED) if sizes else started


def on_world_seen(state: RunState, event: events.WorldSeen) -> Step:
    """Record what a program's own workers were started with, at once if it was not planned."""
    planned = state.attempt.spec["world_size"]
    if planned in (None, event.size):
        return state, (RecordWorkers(),)
    return state, (Journal("world_size", {"seen": event.size, "planned": planned}), RecordWorkers())


def on_nested_found(state: RunState, event: events.NestedFound) -> Step:
    """Ranks below the program are the node's ranks from now on."""
    return state, (RecordWorkers(), Journal("workers", {"ranks": event.ranks}), Act.START_LOGS)


def on_nested_exited(state: RunState, event: events.NestedExited) -> Step:
    """Record it; what follows from it is for its launcher, whose end is that of this node's part."""
    return state, (RecordWorkers(event.rank),)


def on_rank_exited(state: RunState, event: events.RankExited) -> Step:
    """Record a worker's end; the others do not wait long for torchrun after a failure."""
    end: JournalFacts = {
        "rank": event.rank,
        "pid": event.pid,
        "exit": event.exit,
        "signal": event.signal,
    }
    actions = Journal("rank_exited", end), RecordWorkers(event.rank)
    if event.failure:
        state, more = fail(state, event.failure)
        return state, (*more, *actions) if state.attempt.held_failure else (*actions, *more)
    return state, actions


def stop_servants(state: RunState) -> Step:
    """Node 0's program has ended in order: end those that serve it."""
    spec = state.attempt.spec
    if not ends_with_first(state) or spec["node_rank"] != 0 or state.attempt.has_cause:
        return state, ()
    return state, (GangStop(StopOrder(NODE_0_ENDED, float(spec["grace"]), DONE)),)


def ends_with_first(state: RunState) -> bool:
    """Whether the run ends when node 0's program does."""
    return state.attempt.spec.get("ends_with") == "node 0"


def on_rank_stuck(state: RunState, event: events.RankStuck) -> Step:
    """Take a rank that has failed and does not exit as any that has failed; it is ended as any rank that is to stop."""
    facts: JournalFacts = {
        "rank": event.rank,
        "pid": event.process.pid,
        "reason": event.exception,
        "seconds": round(event.seconds, 1),
    }
    reason = "rank %d did not exit after its traceback" % event.rank
    state, more = fail(state, reason, float(state.attempt.spec["grace"]))
    return state, (Journal("rank_stuck", facts), SignalAll([event.process], kill=False), *more)


def on_stalled(state: RunState, event: events.Stalled) -> Step:
    """End an attempt in which no rank makes progress: SIGTERM, and the grace of the run."""
    grace, reason = float(state.attempt.spec["grace"]), describe_stall(event.seconds)
    state, failed = fail(state, reason, grace)
    if not failed:
        return state, ()
    state, stopped = record_stop(state, reason, grace)
    return state, (*stopped, Act.TERMINATE_TORCHRUN, *failed)


# causes of an end


def fail(state: RunState, reason: str, wait: float = FAILURE_WAIT) -> Step:
    """Take the first failure as the cause, unless we were stopping anyway, and hurry the rest."""
    if state.attempt.has_cause:
        return state, ()
    spec = state.attempt.spec
    if (
        ends_with_first(state) and spec["node_rank"] != 0 and "mpi" not in spec
    ):  # orted ends with 0 if all is well
        return hold_failure(state, reason)
    return fail_now(state, reason, wait)


def hold_failure(state: RunState, reason: str) -> Step:
    """A worker of Ray ends with 1 when its head does: wait whether node 0's program has ended in order."""
    if state.attempt.held_failure:
        return state, ()
    held = StartTimer("held failure", HELD_FAILURE, Notice.HELD_OVER)
    return state.change(held_failure=reason), (Journal("failure_held", {"reason": reason}), held)


def on_held_over(state: RunState, _: Notice) -> Step:
    """Node 0's program goes on: the failure counts."""
    if state.attempt.has_cause or not state.attempt.held_failure:
        return state, ()
    return join_steps(fail_now(state, state.attempt.held_failure, FAILURE_WAIT), tick)


def fail_now(state: RunState, reason: str, wait: float) -> Step:
    """Report it and begin the end."""
    state, actions = kill_after(state.observe(first_failure=reason), wait)
    return begin_end(state), (GangFailure(reason), *actions)


def begin_end(state: RunState) -> RunState:
    """Its processes are being ended, unless none is left."""
    return state if state.phase in OVER else state.change(phase=Phase.ENDING)


def abort_start(
    state: RunState, event: Literal["setup_failed", "gate_failed"], reason: str, facts: StartFailure
) -> Step:
    """Report why there will be no run, and end what was started for it."""
    state, actions = kill_now(begin_end(state.observe(gate_failed=reason)))
    return state, (Journal(event, facts), Report(event, facts), *actions)


def on_cancelled(state: RunState, event: events.Cancelled) -> Step:
    """End everything at once."""
    stop: Tuple[Action, ...] = ()
    if state.attempt.observed.cancelled is None:
        state, stop = record_stop(state.observe(cancelled=event.reason), event.reason, 0)
    state, actions = kill_now(begin_end(state))
    return state, (*stop, *actions)


def on_client_left(state: RunState, _: Notice) -> Step:
    """Cancel unless GO was given."""
    if state.attempt.is_first and not state.attempt.observed.started:
        return on_cancelled(state, events.Cancelled("the client disconnected before GO"))
    return state, ()


def record_stop(state: RunState, reason: str, grace: float) -> Step:
    """Record that the run is to end, and since when."""
    state = state.change(stopped_at=state.attempt.stopped_at or state.time)
    return state, (Act.SCAN_OUTPUT, Journal("stopping", {"reason": reason, "grace": grace}))


def on_stop_ordered(state: RunState, event: events.StopOrdered) -> Step:
    """End this node's part: SIGTERM to torchrun once, and a time for the end, which can only come closer."""
    order, attempt = event.order, state.attempt
    if attempt.phase in (*OVER, Phase.SPARE):
        unconcerned = attempt.idle and order.kind == FAILURE  # the rest of the gang goes on
        return (state, ()) if unconcerned else record_stop(state, order.reason, order.grace)
    if not attempt.observed.started:
        return on_cancelled(state, events.Cancelled(order.reason))
    if attempt.torchrun_runs:
        return terminate(state, order)
    return join_steps(terminate(state, order), tick) if attempt.held_failure else (state, ())


def terminate(state: RunState, order: StopOrder) -> Step:
    """Let torchrun end its workers."""
    if state.attempt.observed.cancelled is None:
        state = state.observe(cancelled=order.reason, stop_kind=order.kind)
    state, actions = record_stop(state, order.reason, order.grace)
    if state.attempt.observed.first_failure is None:
        actions = (*actions, Act.TERMINATE_TORCHRUN)
    state, schedule = kill_after(state, order.grace)
    return begin_end(state), (*actions, *schedule)


def on_stop_requested(state: RunState, event: events.StopRequested) -> Step:
    """End the run on all nodes; who asks again does not wait for `after`."""
    cut: Tuple[Action, ...] = ()
    if state.stops and state.attempt.after_runs:
        state, cut = on_after_ended(state, events.AfterEnded("after: was killed by a second stop"))
    state, actions = stop_everywhere(state._replace(stops=state.stops + 1), event.order)
    return state, (*cut, *actions)


def on_time_is_up(state: RunState, _: Notice) -> Step:
    """End the run because its time is up, unless it is ending already."""
    spec, observed = state.attempt.spec, state.attempt.observed
    is_ending = observed.cancelled is not None or observed.first_failure is not None
    if is_ending and not (state.restartable and state.phase in OVER):
        return state, ()
    reason = describe_limit(spec["time_limit"] or 0.0)
    return stop_everywhere(state, StopOrder(reason, float(spec["grace"]), TIME))


def stop_everywhere(state: RunState, order: StopOrder) -> Step:
    """End the part of this node, and the others'."""
    # the others first: what they lose when our ranks end must not look like a failure of theirs
    state, actions = on_stop_ordered(state, events.StopOrdered(order))
    return state, (GangStop(order), *actions)


def on_guardian_lost(state: RunState, _: Notice) -> Step:
    """If the agent died too, the processes of this run would not be ended."""
    state, actions = stop_unsupervised(state, "the guardian was killed")
    return state, (Journal("guardian_lost", {}), *actions)


def on_agent_failed(state: RunState, event: events.AgentFailed) -> Step:
    """End in order after an error of our own."""
    state = state._replace(failing=True)
    state, actions = (state, (Act.GANG_LEAVE,)) if state.final else stop_unsupervised(state, event.reason)
    return state, (Journal("agent_failed", {"reason": event.reason}), *actions)


def stop_unsupervised(state: RunState, reason: str) -> Step:
    """End everything here at once, because it can be looked after no more, and take part in no other attempt."""
    if state.restartable:
        state = state._replace(agent_lost_reason=reason)
        if state.attempt.idle or state.phase in OVER:
            state, actions = on_concluded(state, events.Concluded({"state": "FAILED", "reason": reason}))
            return state, (*actions, Act.GANG_LEAVE)
    state = state.observe(lost=reason).change(lost_at=state.time)
    state, actions = kill_now(begin_end(state))
    return state, (GangFailure(reason), *actions)


# after the last process


def on_all_ended(state: RunState, event: events.AllEnded) -> Step:
    """Decide how it ended."""
    state = state._replace(leftovers=tuple(event.leftovers)).change(signalled=tuple(event.signalled))
    name, reason = judge(state.attempt.observed._replace(worlds=event.worlds))
    if name != SUCCEEDED or reason or event.alone is None:
        return state, (BuildPart(name, reason),)
    return state, (BuildPart(name, describe_alone(event.alone), event.alone),)


def judge(observed: Observed) -> Tuple[StateName, str]:
    """Return the state and the reason; a failure still counts if a stop came after it."""
    if observed.lost is not None:
        return (FAILED if observed.started else FAILED_SETUP), observed.lost
    if not observed.started and observed.gate_failed is not None:
        return FAILED_SETUP, observed.gate_failed
    if observed.first_failure is not None:
        return FAILED, observed.first_failure
    if observed.cancelled is not None:
        return _judge_stop(observed, observed.cancelled)
    if observed.exit != 0:
        return FAILED, f"torchrun {describe_end(observed.exit, observed.signal)}"
    return _judge_worlds(observed)


def _judge_stop(observed: Observed, reason: str) -> Tuple[StateName, str]:
    if observed.stop_kind == DONE:  # node 0's program has ended, which this node's served
        return SUCCEEDED, ""
    return (TIMEOUT if observed.stop_kind == TIME else STOPPED), reason


def _judge_worlds(observed: Observed) -> Tuple[StateName, str]:
    if len(observed.worlds) != observed.processes:
        return FAILED, f"{len(observed.worlds)} of {observed.processes} workers were started"
    for rank, world_size in sorted(observed.worlds.items()):
        if observed.world_size is not None and world_size != observed.world_size:
            return FAILED, f"rank {rank} saw WORLD_SIZE {world_size}, planned were {observed.world_size}"
    return SUCCEEDED, ""


def on_part_built(state: RunState, event: events.PartBuilt) -> Step:
    """Run the commands of `after` if anything of the job itself was started."""
    attempt, part = state.attempt, event.part
    state = state._replace(part=part)
    if not attempt.observed.started and not attempt.before_started:
        return hand_over(state)
    if not event.has_after:
        return state, (Act.SCAN_OUTSIDE,)
    begun = SetState({"after": ""}), Journal("after", {})
    return state.change(after_runs=True), (*begun, StartAfter(part["state"], part["reason"]))


def on_after_ended(state: RunState, event: events.AfterEnded) -> Step:
    """Kill what the commands have left; that they failed is recorded, and changes nothing."""
    if not state.attempt.after_runs:
        return state, ()
    failed: Tuple[Action, ...] = ()
    if event.reason:
        journal = Journal("after_failed", {"reason": event.reason, "text": event.text})
        failed = journal, SetState({"after": event.reason})
    return state.change(after_runs=False), (Act.KILL_AFTER_HOOK, *failed, Act.SCAN_OUTSIDE)


def on_outside_read(state: RunState, event: events.OutsideRead) -> Step:
    """Record it; also if that took too long the end follows."""
    state, actions = hand_over(state)
    found = (SetState({"outside": event.summary}),) if event.summary is not None else ()
    return state, (*found, *actions)


def hand_over(state: RunState) -> Step:
    """Record the end of this node's part and report it; with restarts the gang decides what follows."""
    part, attempt = state.part, state.attempt
    assert part is not None  # this follows from PartBuilt
    name, reason, left = part["state"], part["reason"], list(state.leftovers)
    end: JournalFacts = {"state": name, "reason": reason, "ended": list(attempt.signalled), "left": left}
    alone: StateChange = {"alone": part["alone"]} if "alone" in part else {}
    state = state.change(phase=Phase.ENDED)
    if state.restartable and (attempt.observed.started or not attempt.is_first):
        waits = SetState({"state": "WAITING", "reason": "waits for the other nodes", "left": left, **alone})
        recorded = Journal("attempt_ended", {"attempt": attempt.number, **end}), waits
        return state, (Act.CONCLUDE_LOGS, *recorded, GangEnd(part))
    recorded = Journal("ended", end), SetState({"state": name, "reason": reason, "left": left, **alone})
    reported = SendClient("ended", {"state": name, "reason": reason}), Act.CLOSE_CLIENT, Act.UNLOCK
    saved = Act.CONCLUDE_LOGS, SaveRecord(part)
    return state._replace(final=True), (*saved, *recorded, *reported, GangEnd(part))


# further attempts


def on_gang_reported(state: RunState, _: Notice) -> Step:
    """See whether this node could go on, unless the gang has decided at once that none does."""
    return state, () if state.final else (Act.AWAIT_CLEARED,)


def on_cleared(state: RunState, event: events.Cleared) -> Step:
    """Report that nothing of the attempt is left, or why this node can take part in no other."""
    if state.final:
        return state, ()
    unfit = state.agent_lost_reason
    if not unfit and state.leftovers:
        unfit = "%d processes could not be ended" % len(state.leftovers)
    if not unfit and event.memory_held:
        unfit = "the memory of its GPUs is still in use"
    return state, (GangCleared(unfit, event.progress),)


def on_paused(state: RunState, event: events.Paused) -> Step:
    """Record the attempt that ended, and that another one follows."""
    entry = event.entry
    part = None if state.attempt.idle else state.part
    pausing = Journal(
        "pausing", {"attempt": entry["attempt"], "reason": entry["text"], "seconds": event.seconds}
    )
    earlier = [other for other in event.attempts if other["attempt"] != entry["attempt"]]
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
        "ranks": event.ranks,
    }
    waits: StateChange = {"state": "WAITING", "reason": event.text, "attempts": [*earlier, last]}
    return state, (pausing, SetState(waits, roster=True))


def on_concluded(state: RunState, event: events.Concluded) -> Step:
    """Record the end: the last attempt's as this node saw it, unless it has come about in between."""
    if state.final:
        return state, ()
    name, reason = own_end(state, event.end.get("state"), str(event.end.get("reason") or ""))
    account: JournalFacts = {"ended": list(state.attempt.signalled), "left": list(state.leftovers)}
    recorded = (
        Journal("ended", {"state": name, "reason": reason, **account}),
        SetState({"state": name, "reason": reason, "gave_up": event.end.get("gave_up")}, roster=True),
    )
    reported = SendClient("ended", {"state": name, "reason": reason}), Act.CLOSE_CLIENT, Act.UNLOCK
    return state._replace(final=True), (*recorded, *reported)


def own_end(state: RunState, given: Optional[EndState], reason: str) -> Tuple[StateName, str]:
    """Say how the run ended for this node."""
    idle = state.attempt.idle
    if given and (state.agent_lost_reason or not idle):
        return given, reason
    if state.part is not None:  # of an earlier attempt, where this node was fit for no other
        return state.part["state"], state.part["reason"]
    return ("SUCCEEDED", NOT_NEEDED) if idle else ("FAILED", "the run ended before this node's part did")
