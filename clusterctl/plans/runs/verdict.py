"""How a run ended, decided from what its nodes say; and the command that shows more about the cause."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clusterctl.codes.lookup import find_entry
from clusterctl.plans.diagnose.hang import KeptDiagnosis, kept_to_json
from clusterctl.plans.diagnose.slow import Slowness
from clusterctl.plans.runs.gang_record import (
    NO_PROGRESS,
    Attempt,
    choose_record,
    find_reported_loss,
    with_losses,
)
from clusterctl.plans.runs.state import NodeState, attempts_of, roster_of, run_state, taking_part
from clusterctl.plans.sync.outside_files import OutsideFiles, outside_to_json, with_outside_files
from clusterctl.protocol.end_record import EndRecord, RecordedPart
from clusterctl.protocol.exit_status import is_stall
from clusterctl.protocol.root_cause import (
    NO_ADDRESSES,
    Cause,
    Failure,
    find_cause,
    render_ending,
    weight_of,
)
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import (
    CANCELLED,
    FAILED,
    FAILED_SETUP,
    LIVE,
    LOST,
    SUCCEEDED,
    TIMEOUT,
    UNKNOWN,
)
from clusterctl.protocol.tracebacks import strip_rank
from clusterctl.specs.text import quote_word
from clusterctl.translation import english_of

STOPPED_BY = "stopped by "  # how the reason begins when a person asked for the end
CONSEQUENCE = 3
NO_OFFSETS: Mapping[str, float] = MappingProxyType({})
NO_PROGRESS_EXIT = 6


@dataclass(frozen=True)
class Verdict:
    """The end of a run; by node: `node_states`, `left_processes` that could not be ended, `gpu_memory` still in use.

    `attempt` is the last one, `attempts` are those that another followed, or was to follow; `gave_up_reason` is why
    there was no other, `spares` are the nodes that were not needed. `after_errors` is what went wrong with its
    commands then, `outside_files` are files that the run has left outside the output directory, `world_sizes` the
    WORLD_SIZE that workers saw, and the planned one.
    """

    run_id: RunId
    state: str
    node_states: Mapping[str, str]
    cause: Cause | None
    reasons: Mapping[str, str]
    left_processes: Mapping[str, tuple[str, ...]]
    gpu_memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    gave_up_reason: str = ""
    spares: tuple[str, ...] = ()
    after_errors: Mapping[str, str] = field(default_factory=dict)
    outside_files: Mapping[str, OutsideFiles] = field(default_factory=dict)
    world_sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unwatched: tuple[str, ...] = ()  # nodes that answer, and where processes run on without their agent
    away: tuple[str, ...] = ()  # nodes that are lost and do not answer either
    losses: Mapping[str, str] = field(default_factory=dict)  # why the others lost a node
    slow: Slowness | None = None  # who made the others wait, by a sample that the nodes took
    hang: KeptDiagnosis | None = None  # where the ranks were before the end, if the nodes have kept that

    @property
    def exit_code(self) -> int:
        """Give 0 only for success on every node, 6 where attempt after attempt got nowhere."""
        if self.state == SUCCEEDED:
            return 0
        return NO_PROGRESS_EXIT if self.gave_up_reason == NO_PROGRESS else 1


def judge(
    run_id: RunId,
    parts: Mapping[str, NodeState | None],
    failures: Sequence[Failure],
    *,
    stopped_at: float | None = None,
    addresses: Mapping[str, str] = NO_ADDRESSES,
    unanswered: Collection[str] = (),
) -> Verdict:
    """Judge a run: success only if every node's torchrun ended with 0 and saw the planned WORLD_SIZE.

    `addresses` are the nodes' on the training network; `unanswered` are nodes whose part others tell.
    """
    taking_part_now, roster = taking_part(parts), roster_of(parts)
    absent = set(parts) - set(taking_part_now)
    failures = [failure for failure in failures if failure.node not in absent]
    end_on_request = _state_between_attempts(taking_part_now) or _requested_state(
        taking_part_now, failures, stopped_at
    )
    cause = None if end_on_request else find_cause(failures, stopped_at, addresses)
    cause = None if cause is None else _with_node_of_task(cause, addresses)
    if cause is not None and cause.is_stop and _failed_otherwise(taking_part_now, failures):
        cause = None
    if cause is not None and cause.is_doubtful and _has_stalled(taking_part_now):
        cause = None  # what the ranks wrote then follows from that
    replaced = {slot.node for slot in roster if slot.lost}
    lost_nodes = {failure.node for failure in failures if failure.lost} | replaced
    node_states = {
        name: LOST
        if name in lost_nodes and name in unanswered
        else _name_node_state(part, is_lost=name in lost_nodes)
        for name, part in parts.items()
    }
    known = {name: part for name, part in parts.items() if part}
    known_now = {name: part for name, part in taking_part_now.items() if part}
    return Verdict(
        run_id=run_id,
        state=end_on_request or _name_run_state(parts, cause),
        node_states={**node_states, **dict.fromkeys(replaced & set(parts), LOST)},
        away=tuple(name for name, state in node_states.items() if state == LOST and name in lost_nodes),
        cause=cause,
        reasons={name: part.reason for name, part in known_now.items() if part.reason},
        left_processes={name: part.left_processes for name, part in known.items() if part.left_processes},
        gpu_memory={name: part.gpu_memory for name, part in known.items() if part.gpu_memory},
        attempt=max((part.attempt for part in known.values()), default=1),
        attempts=attempts_of(parts),
        gave_up_reason=next((part.gave_up_reason for part in known_now.values() if part.gave_up_reason), ""),
        spares=tuple(slot.node for slot in roster if slot.is_idle),
        after_errors={name: part.after_error for name, part in known.items() if part.after_error},
        outside_files=with_outside_files({name: part.outside_files for name, part in known.items()}),
        world_sizes={
            name: part.unplanned_world_size for name, part in known.items() if part.unplanned_world_size
        },
        unwatched=tuple(
            name
            for name, part in known.items()
            if part.state == LOST and part.left_processes and name not in lost_nodes
        ),
    )


def judge_recorded(
    run_id: RunId,
    parts: Mapping[str, NodeState | None],
    names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> Verdict | None:
    """Judge a run that has ended by what its nodes have on record; None while it lives, or if they have nothing.

    `names` are the nodes of the inventory, as far as they have no part; `offsets` are the nodes' clocks minus ours.
    """
    record = choose_record((part.record for part in parts.values() if part), {*parts, *names})
    if record is None or run_state(fill_parts(parts, record)) in LIVE:
        return None
    record = record.shift_to_clock(offsets.get(record.hub, 0.0))
    contradicting = {
        recorded.node: part
        for recorded in record.parts
        if (part := parts.get(recorded.node)) is not None and not part.live and _contradicts(part, recorded)
    }
    failures = [
        failure for failure in record.failures if not failure.lost and failure.node not in contradicting
    ]
    stop_times = [record.stopped_at]
    for part in contradicting.values():
        own = _own_account(part, offsets.get(part.node, 0.0))
        failures += own.failures
        stop_times.append(own.stopped_at)
    stopped_at = min((moment for moment in stop_times if moment is not None), default=None)
    return judge_with_record(run_id, parts, record, failures, stopped_at)


def _with_node_of_task(cause: Cause, addresses: Mapping[str, str]) -> Cause:
    """Name the node of the Ray task that raised the exception, where its address is known."""
    task = cause.failure.ray_task
    nodes = [node for node, address in addresses.items() if address and task[1:] == (address,)]
    nodes = [cause.failure.node] if task[1:] == ("",) else nodes
    return replace(cause, failure=replace(cause.failure, ray_task=(task[0], nodes[0]))) if nodes else cause


def judge_with_record(
    run_id: RunId,
    parts: Mapping[str, NodeState | None],
    record: EndRecord | None,
    failures: Sequence[Failure],
    stopped_at: float | None,
) -> Verdict:
    """Judge by what is known of each node, and by the record that counts; all times are by one clock."""
    if record is None:
        return judge(run_id, parts, failures, stopped_at=stopped_at)
    if run_state(parts) != SUCCEEDED:  # else no node is missing, whatever one has recorded of another
        failures = with_losses(record, failures, stopped_at)
    filled = fill_parts(parts, record)
    verdict = judge(
        run_id,
        filled,
        failures,
        stopped_at=stopped_at,
        addresses=record.addresses,
        unanswered=[name for name, part in parts.items() if part is None],
    )
    losses = {part.node: f"lost: {part.reason}" for part in record.parts if part.lost}
    return replace(verdict, losses=losses)


def _contradicts(part: NodeState, recorded: RecordedPart) -> bool:
    """Tell whether a node reports another end than the record gives it: others lost it, or one of them lies."""
    if part.node != recorded.node:
        return False
    # with `ends_with: node 0` a node has succeeded however its program ended after node 0's
    has_failed = part.state != SUCCEEDED and any(rank.failed for rank in part.ranks)
    hides_failures = not recorded.failures and has_failed
    return recorded.lost or hides_failures or (part.state == SUCCEEDED) != (recorded.state == SUCCEEDED)


def _own_account(part: NodeState, offset: float) -> RecordedPart:
    """Give what a node whose end the chosen record does not give has on record of itself, by our clock."""
    if part.record is not None:
        shifted = part.record.shift_to_clock(offset)
        for recorded in shifted.parts:
            if recorded.node == part.node and not _contradicts(part, recorded):
                return replace(recorded, stopped_at=shifted.stopped_at)
    ended = part.since - offset
    failures = [
        Failure(part.node, rank.rank, rank.exit, rank.signal, ended, oom_killed=rank.oom_killed)
        for rank in part.ranks
        if rank.failed
    ]
    if not failures and part.state in (FAILED, LOST, UNKNOWN):
        failures = [Failure(part.node, None, None, None, ended, reason=part.reason or part.state)]
    return RecordedPart(part.node, part.node_rank, part.state, part.reason, None, tuple(failures))


def name_state(run_id: RunId, parts: Mapping[str, NodeState | None], names: Collection[str] = ()) -> str:
    """Name the state of a run as `launch` does at its end; `names` as in `judge_recorded`."""
    return judged_state(judge_recorded(run_id, parts, names), parts)


def judged_state(verdict: Verdict | None, parts: Mapping[str, NodeState | None]) -> str:
    """Name the state by what `judge_recorded` has found; without a verdict by the parts alone.

    The word of a few is enough for a failure, not for the success of nodes that do not answer.
    """
    if verdict is None:
        return _state_without_record(parts)
    answered = sum(part is not None for part in parts.values())
    if verdict.state == SUCCEEDED and 2 * answered <= len(verdict.node_states):
        return run_state(parts)
    return verdict.state


def _state_without_record(parts: Mapping[str, NodeState | None]) -> str:
    """Name the state by the parts alone: a node that stopped for another one was not cancelled by a person."""
    state, known = run_state(parts), [part for part in taking_part(parts).values() if part]
    if (
        state in LIVE
        or state in (SUCCEEDED, FAILED, FAILED_SETUP, TIMEOUT)
        or any(map(_was_asked_to_end, known))
    ):
        return state
    if 2 * sum(bool(find_reported_loss(part.reason)) for part in known) > len(known):
        return LOST
    caused = any(part.state == CANCELLED and part.reason for part in known)
    return FAILED if state == CANCELLED and caused else state


def fill_parts(
    parts: Mapping[str, NodeState | None], record: EndRecord | None
) -> dict[str, NodeState | None]:
    """Put what the other nodes know in the place of what a node cannot say itself."""
    template = next((part for part in parts.values() if part), None)
    recorded = {part.node: part for part in record.parts} if record and template else {}
    filled = dict(parts)
    for name, recorded_part in recorded.items():
        if filled.get(name) is None and template is not None and (name in filled or not recorded_part.lost):
            filled_part = replace(
                template, state=recorded_part.state, reason=recorded_part.reason, ranks=(), left_processes=()
            )
            filled_part = replace(filled_part, outside_files=None, world_size_seen=None)
            filled[name] = replace(filled_part, node=name, node_rank=recorded_part.node_rank)
    return filled


def _state_between_attempts(parts: Mapping[str, NodeState | None]) -> str:
    """Name the end of a run that was waiting for its next attempt; what had failed before was to be tried again."""
    known = [part for part in parts.values() if part]
    if not all(part.roster for part in known):
        return ""
    if known and all(part.state == CANCELLED and part.reason.startswith(STOPPED_BY) for part in known):
        return CANCELLED
    return TIMEOUT if known and all(part.state == TIMEOUT for part in known) else ""


def _requested_state(
    parts: Mapping[str, NodeState | None], failures: Sequence[Failure], stopped_at: float | None
) -> str:
    """Name the state of a run that a person or its time limit ended, else nothing.

    Either reaches the nodes one after the other; those that fail meanwhile only follow from it. A node that calls
    itself cancelled had no failure when it was asked: however its ranks leave then, they were asked to.
    """
    known = [part for part in parts.values() if part]
    stopped = any(part.state == CANCELLED and _was_asked_to_end(part) for part in known)
    end_state = CANCELLED if stopped else TIMEOUT if any(part.state == TIMEOUT for part in known) else ""
    asked_nodes = {name for name, part in parts.items() if part and _was_asked_to_end(part)}
    own_failures = [
        failure
        for failure in failures
        if failure.signal is None and (failure.lost or failure.node not in asked_nodes)
    ]
    return end_state if all(weight_of(failure, stopped_at) >= CONSEQUENCE for failure in own_failures) else ""


def _failed_otherwise(parts: Mapping[str, NodeState | None], failures: Sequence[Failure]) -> bool:
    """Tell whether a node failed without a process that failed: then the ranks that were stopped explain nothing."""
    known = {failure.node for failure in failures}
    return any(
        part and part.reason and part.state in (FAILED, FAILED_SETUP) and name not in known
        for name, part in parts.items()
    )


def _has_stalled(parts: Mapping[str, NodeState | None]) -> bool:
    """Tell whether a node ended its part because no rank made progress."""
    return any(part and part.state == FAILED and is_stall(part.reason) for part in parts.values())


def _was_asked_to_end(part: NodeState) -> bool:
    return part.state == TIMEOUT or (part.state == CANCELLED and part.reason.startswith(STOPPED_BY))


def _name_run_state(parts: Mapping[str, NodeState | None], cause: Cause | None) -> str:
    state = run_state(parts)
    if cause is not None and state not in (FAILED, FAILED_SETUP):
        return LOST if cause.failure.lost or _left_no_end(cause.failure, parts) else FAILED
    return UNKNOWN if state in LIVE else state


def _left_no_end(failure: Failure, parts: Mapping[str, NodeState | None]) -> bool:
    """Tell whether the node that is the cause could not record its own end: its agent and guardian are gone."""
    part = parts.get(failure.node)
    state = part.state if part is not None and failure.rank is None and failure.reason else ""
    return state == LOST or (state == UNKNOWN and failure.cut_off)


def _name_node_state(part: NodeState | None, *, is_lost: bool) -> str:
    """Name how a node ended; one that the others lost, and that reports its own end, has ended so."""
    if part is None:
        return LOST if is_lost else UNKNOWN
    return LOST if is_lost and part.state in (UNKNOWN, *LIVE) else part.state


def verdict_to_json(verdict: Verdict) -> dict[str, object]:
    """Give the verdict's place in the NDJSON of `launch --json`."""
    cause = verdict.cause
    return {
        "state": verdict.state,
        "exit_code": verdict.exit_code,
        "nodes": dict(verdict.node_states),
        "reasons": dict(verdict.reasons),
        "left": {name: list(processes) for name, processes in verdict.left_processes.items()},
        "gpu_memory": {name: list(held) for name, held in verdict.gpu_memory.items()},
        "attempt": verdict.attempt,
        "attempts": [attempt_to_json(attempt) for attempt in verdict.attempts],
        "gave_up": verdict.gave_up_reason or None,
        "spares": list(verdict.spares),
        "after": dict(verdict.after_errors),
        "outside": {name: outside_to_json(files) for name, files in verdict.outside_files.items()},
        "world_sizes": {name: observed for name, (observed, _) in verdict.world_sizes.items()},
        "cause": cause_to_json(cause, verdict.run_id) if cause else None,
        "hang": kept_to_json(verdict.hang) if verdict.hang else None,
        "slow": english_of(verdict.slow.judgement.sentence) if verdict.slow else None,
    }


def attempt_to_json(attempt: Attempt) -> dict[str, object]:
    """Give one of the attempts that have ended; times by the clock of the node that reported it."""
    return {
        "attempt": attempt.number,
        "reason": attempt.reason,
        "text": attempt.text,
        "node": attempt.node or None,
        "began": attempt.began,
        "ended": attempt.ended,
        "progress": attempt.progress,
    }


def cause_to_json(cause: Cause, run_id: str) -> dict[str, object]:
    """Give a cause as JSON: what failed first, what it said, what is known of it, and what followed."""
    code = cause.symptom_match.symptom.code if cause.symptom_match else None
    entry = find_entry(code or "")
    return {
        **_failure_to_json(cause.failure),
        "exception": strip_rank(cause.failure.exception),
        "code": code,
        "meaning": entry.title.en,
        "advice": entry.do.en,
        "command": advised_command(cause, run_id),
        "stderr": list(cause.failure.tail),
        "consequences": [_failure_to_json(failure) for failure in cause.consequences],
    }


def _failure_to_json(failure: Failure) -> dict[str, object]:
    return {
        "node": failure.node,
        "rank": failure.rank,
        "ending": render_ending(failure),
        "time": failure.time,
    }


def render_command(code: str, values: Mapping[str, str]) -> str:
    """Give the command that shows more about a code; nothing where it needs a name that `values` lacks.

    Each value is quoted for the shell, and so stands outside of the command's own quotes, but for a group of a pattern
    that matches only word characters.
    """
    quoted = {name: quote_word(value) for name, value in values.items()}
    try:
        return find_entry(code).command.format_map(quoted)
    except KeyError:
        return ""


def advised_command(cause: Cause, run: str) -> str:
    """Give the command that shows more about what is known of the cause; nothing if there is none."""
    if cause.symptom_match is None:
        return ""
    rank = {} if cause.failure.rank is None else {"rank": str(cause.failure.rank)}
    names = {**cause.symptom_match.values, **rank, "node": cause.failure.node, "run": run}
    return render_command(cause.symptom_match.symptom.code, names)
