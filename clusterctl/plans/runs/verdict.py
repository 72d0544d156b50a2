"""How a run ended, as every verb shows it: its nodes' record; and the command that shows more about the cause.

The best complete record counts, or without one what each node reports of itself is put together. A node that the
others lost has the part that they have written of it; one of which nothing is known is UNKNOWN. Not here: what is made
of a record (`protocol/end_record.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from posixpath import dirname
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from clusterctl.codes.lookup import find_entry, word
from clusterctl.plans.diagnose.kept import KeptDiagnosis, kept_to_json
from clusterctl.plans.diagnose.slow import Slowness
from clusterctl.plans.runs.documents import SmallerEntry
from clusterctl.plans.runs.speed import SpeedVerdict, speed_to_json
from clusterctl.plans.runs.state import (
    NO_OFFSETS,
    Attempt,
    NodeState,
    Parts,
    attempts_of,
    find_smaller,
    live_state,
    roster_of,
    run_seconds,
    taking_part,
)
from clusterctl.plans.sync.listed_files import OutsideFiles, with_outside_files
from clusterctl.protocol.end_record import EndRecord, RecordedPart, RunEnd, is_certain, judge_end
from clusterctl.protocol.messages.files import AloneRecord, RunEndSummary
from clusterctl.protocol.messages.gang import NO_PROGRESS
from clusterctl.protocol.ranks import NodeRank
from clusterctl.protocol.root_cause import Cause, Failure, find_symptom, render_ending
from clusterctl.protocol.run_id import RunId, job_name_of
from clusterctl.protocol.run_paths import WorkdirPaths
from clusterctl.protocol.states import FAILED, LOST, STATES, SUCCEEDED, UNKNOWN, RunState
from clusterctl.protocol.tracebacks import strip_rank
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import as_in_project, command_line, quote_word
from clusterctl.translation import english_of, tr

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import (
        AloneEntry,
        AttemptEntry,
        CauseEntry,
        FailureEntry,
        VerdictEntry,
    )
    from clusterctl.protocol.messages.files import JournalEvent

NOTHING_UNREACHABLE: Mapping[str, str] = MappingProxyType({})
NO_PROGRESS_EXIT = 6
ALONE_CODE, SUSPECTED_CODE = "CC-RUN-053", "CC-RUN-050"
MISSING_FILE = "CC-JOB-017"
NOT_ITS_END = (LOST, UNKNOWN)  # what is left of a node that could not record how its part ended


def choose_record(records: Iterable[EndRecord | None], names: Collection[str]) -> EndRecord | None:
    """Choose the complete record that counts: of the latest attempt, and of these the one that has lost fewest nodes.

    All nodes that received the hub's keep the same one. `names` are the nodes of the inventory; what a record reports
    of others is left out.
    """
    complete = [record.only_nodes(names) for record in records if record is not None and record.complete]
    return max(
        (record for record in complete if record.parts),
        key=lambda record: (record.attempt, -len(record.lost_nodes)),
        default=None,
    )


def assemble_record(
    parts: Parts, names: Collection[str], offsets: Mapping[str, float], unreachable: Mapping[str, str]
) -> EndRecord:
    """Put the record together, on our clock; `unreachable` is why a node was given up that was followed."""
    now = taking_part(parts)
    has_begun = any(part.began is not None or part.state == SUCCEEDED for part in now.values() if part)
    by_others = _parts_by_others(now, {*parts, *names}, offsets)
    recorded = [
        _part_of(name, part, by_others.get(name), offsets.get(name, 0.0), unreachable.get(name, ""))
        for name, part in now.items()
        if part is not None or has_begun or name in by_others or name in unreachable
    ]
    recorded += [part for name, part in by_others.items() if name not in parts]
    missing = (
        _count_missing(now, len(recorded)) if has_begun else 0
    )  # a run that never began needs none of them
    recorded += [_unknown_part("")] * missing
    stops = [part.stopped_at for part in recorded if part.stopped_at is not None]
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    return EndRecord("", False, min(stops, default=None), tuple(recorded), attempt)


def with_own_reasons(record: EndRecord, parts: Parts, offsets: Mapping[str, float]) -> EndRecord:
    """Put in why a node was lost, where that node still answers and reports that its agent is gone.

    That explains the loss better than its peers can; it changes neither the state of the run nor who is its cause.
    """
    return replace(
        record,
        parts=tuple(
            replace(
                recorded, failures=tuple(_own_reason(failure, part, offsets) for failure in recorded.failures)
            )
            if recorded.lost
            and (part := parts.get(recorded.node))
            and part.state in (FAILED, LOST)
            and part.reason
            else recorded
            for recorded in record.parts
        ),
    )


def _own_reason(lost: Failure, part: NodeState, offsets: Mapping[str, float]) -> Failure:
    ended = part.since - offsets.get(part.node, 0.0)
    return replace(lost, reason=part.reason, time=ended, lost=False, cut_off=True)


def _count_missing(parts: Parts, known: int) -> int:
    """Count the nodes that take part and of which nothing is known."""
    answered = [part for part in parts.values() if part]
    if any(part.is_queued for part in answered):
        return 0  # one part stands for all nodes
    return max(0, max((part.nnodes for part in answered), default=0) - known)


def _parts_by_others(
    parts: Parts, names: Collection[str], offsets: Mapping[str, float]
) -> dict[str, RecordedPart]:
    """Return what nodes have on record of others; where several have, that with the last sign of life."""
    found: dict[str, RecordedPart] = {}
    for name, part in parts.items():
        record = part.record.shift_to_clock(offsets.get(name, 0.0)) if part and part.record else None
        for other in record.only_nodes(names).parts if record else ():
            if other.node != name and other.lost and _last_sign(other) >= _last_sign(found.get(other.node)):
                found[other.node] = other
    return found


def _last_sign(part: RecordedPart | None) -> float:
    return max((failure.last_seen or 0.0 for failure in part.failures), default=0.0) if part else -1.0


def _part_of(
    name: str, part: NodeState | None, by_others: RecordedPart | None, offset: float, unreachable: str
) -> RecordedPart:
    if by_others is not None:
        return by_others
    if part is not None:
        return _own_part(part, offset)
    if unreachable:
        lost = Failure(name, None, None, None, 0.0, reason=f"lost: {unreachable}", lost=True)
        return RecordedPart(name, NodeRank(0), LOST, unreachable, None, (lost,))
    return _unknown_part(name)


def _unknown_part(name: str) -> RecordedPart:
    return RecordedPart(name, NodeRank(0), UNKNOWN, "", None, ())


def _own_part(part: NodeState, offset: float) -> RecordedPart:
    """Return what a node has on record of itself; without that what its state shows."""
    if part.record is not None:
        for recorded in part.record.shift_to_clock(offset).parts:
            if recorded.node == part.node and not recorded.lost:
                return recorded
    ended = part.since - offset
    failures = [
        Failure(part.node, rank.rank, rank.exit, rank.signal, ended, oom_killed=rank.oom_killed)
        for rank in part.ranks
        if rank.failed or rank.exit == 0
    ]
    if part.state in (FAILED, *NOT_ITS_END) and not any(failure.exit for failure in failures):
        failures.append(Failure(part.node, None, None, None, ended, reason=part.reason or part.state))
    state = UNKNOWN if part.live else part.state
    end = RecordedPart(part.node, part.node_rank, state, part.reason, None, tuple(failures))
    return replace(end, stop_kind=part.stop_kind, alone=part.alone)


@dataclass(frozen=True)
class Verdict:
    """The end of a run; by node: `node_states`, `left_processes` that could not be ended, `gpu_memory` still in use.

    `attempt` is the last one, `smaller` its nodes if it had fewer than the job, `attempts` are those that another
    followed, or was to follow; `gave_up_reason` is why there was no other, `spares` are the nodes that were not needed.
    `after_errors` is what went wrong with its commands then, `outside_files` are files that the run has left outside
    the output directory, `world_sizes` the WORLD_SIZE that workers saw, and the planned one.
    """

    run_id: RunId
    state: RunState
    node_states: Mapping[str, RunState]
    cause: Cause | None
    reasons: Mapping[str, str]
    left_processes: Mapping[str, tuple[str, ...]]
    gpu_memory: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    smaller: SmallerEntry | None = None
    gave_up_reason: str = ""
    spares: tuple[str, ...] = ()
    after_errors: Mapping[str, str] = field(default_factory=dict)
    outside_files: Mapping[str, OutsideFiles] = field(default_factory=dict)
    world_sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unwatched: tuple[str, ...] = ()  # nodes that answer, and where processes run on without their agent
    away: tuple[str, ...] = ()  # nodes that are lost and do not answer either
    losses: Mapping[str, str] = field(default_factory=dict)  # why the others lost a node
    slow: Slowness | None = None  # who made the others wait, by a sample that the nodes took
    speed: SpeedVerdict | None = None  # of one that ran long enough
    hang: KeptDiagnosis | None = None  # where the ranks were before the end, if the nodes have kept that
    alone: AloneRecord | None = None  # of a run whose ranks all ended with 0: why it is FAILED, or a warning
    seconds: float | None = None  # how long its workers ran; None if they never started
    is_assembled: bool = (
        False  # judged on this machine: the run had begun, and no node has the complete record
    )

    @property
    def exit_code(self) -> int:
        """Return 0 only for success on every node, 6 where attempt after attempt got nowhere."""
        if self.state == SUCCEEDED:
            return 0
        return NO_PROGRESS_EXIT if self.gave_up_reason == NO_PROGRESS else 1


def conclude(
    run_id: RunId,
    parts: Parts,
    names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
) -> Verdict | None:
    """Return how a run ended, for every verb; None while it lives.

    That is what the complete record of its nodes shows, whatever became of a node afterwards. Only where no node that
    answers has one is it judged here, by what they report. `names` are the nodes of the inventory, as far as they have
    no part; `offsets` are the nodes' clocks minus ours.
    """
    return conclude_over(run_id, parts, names, offsets) if has_ended(parts) else None


def conclude_over(
    run_id: RunId,
    parts: Parts,
    names: Collection[str] = (),
    offsets: Mapping[str, float] = NO_OFFSETS,
    unreachable: Mapping[str, str] = NOTHING_UNREACHABLE,
) -> Verdict:
    """Return the same of a run that is over, whatever its nodes last reported.

    `unreachable` is why a node was given up that was followed.
    """
    record, summary = _find_record(parts, {*parts, *names}), find_summary(parts)
    over = {name: None if part is not None and part.live else part for name, part in parts.items()}
    seconds = run_seconds(over, 0.0, offsets)  # without a node that was lost in the middle of it
    if record is not None:
        record = with_own_reasons(record.shift_to_clock(offsets.get(record.hub, 0.0)), parts, offsets)
        return replace(make_verdict(run_id, parts, record), seconds=seconds)
    assembled = with_own_reasons(assemble_record(parts, names, offsets, unreachable), parts, offsets)
    if summary is not None:
        return replace(make_verdict(run_id, parts, assembled, RunEnd(summary["state"])), seconds=seconds)
    has_begun = any(part.began is not None for part in parts.values() if part)
    return replace(make_verdict(run_id, parts, assembled), is_assembled=has_begun, seconds=seconds)


def find_summary(parts: Parts) -> RunEndSummary | None:
    """Return how a run ended by the complete record of its latest attempt; None if no node has one."""
    summaries = [part.end for part in parts.values() if part and part.end]
    newest = max(summaries, key=lambda summary: summary["attempt"], default=None)
    return newest if newest is not None and newest["attempt"] >= _latest_attempt(parts) else None


def _find_record(parts: Parts, names: Collection[str]) -> EndRecord | None:
    record = choose_record((part.record for part in parts.values() if part), names)
    return record if record is not None and record.attempt >= _latest_attempt(parts) else None


def _latest_attempt(parts: Parts) -> int:
    return max((part.attempt for part in parts.values() if part), default=1)


def is_recorded(parts: Parts) -> bool:
    """Return whether a node has the complete record of a run's end."""
    return find_summary(parts) is not None or _find_record(parts, set(parts)) is not None


def has_ended(parts: Parts) -> bool:
    """Return whether a run has ended: by a complete record, or because no known part lives."""
    return not any(part.live for part in parts.values() if part) or is_recorded(parts)


def find_lost(parts: Parts) -> set[str]:
    """Return the nodes that are lost for good, by the roster or the complete record of the latest attempt."""
    record = _find_record(parts, _recorded_names(parts))
    lost = {slot.node for slot in roster_of(parts) if slot.lost}
    return lost | set(record.lost_nodes if record is not None else ())


def _recorded_names(parts: Parts) -> set[str]:
    records = [part.record for part in parts.values() if part and part.record]
    return {part.node for record in records for part in record.parts}


def name_state(run_id: RunId, parts: Parts, names: Collection[str] = ()) -> RunState:
    """Name the state of a run; `names` as in `conclude`."""
    return judged_state(conclude(run_id, parts, names), parts)


def judged_state(verdict: Verdict | None, parts: Parts) -> RunState:
    """Name the state by what `conclude` has returned."""
    return verdict.state if verdict is not None else live_state(parts)


def make_verdict(
    run_id: RunId,
    parts: Parts,
    record: EndRecord,
    given: RunEnd | None = None,
) -> Verdict:
    """Return what is shown of an end: that of the record, or a given one, and what each node reports of itself."""
    end = given or judge_end(record)
    recorded = {part.node: part for part in record.parts if part.node}
    node_states = {name: _name_node_state(part, recorded.get(name)) for name, part in parts.items()}
    roster = roster_of(parts)
    node_states.update({slot.node: LOST for slot in roster if slot.lost and slot.node in parts})
    known = {name: part for name, part in parts.items() if part}
    now = {name: part for name, part in taking_part(parts).items() if part}
    lost = {name for name, part in recorded.items() if part.lost} | {
        slot.node for slot in roster if slot.lost
    }
    cause = None if end.cause is None else _with_node_of_task(end.cause, record.addresses)
    return Verdict(
        run_id=run_id,
        state=end.state,
        node_states=node_states,
        cause=cause,
        reasons={name: part.reason for name, part in now.items() if part.reason},
        left_processes={name: part.left_processes for name, part in known.items() if part.left_processes},
        gpu_memory={name: part.gpu_memory for name, part in known.items() if part.gpu_memory},
        attempt=_latest_attempt(parts),
        attempts=attempts_of(parts),
        smaller=find_smaller(parts),
        gave_up_reason=next((part.gave_up_reason for part in now.values() if part.gave_up_reason), ""),
        spares=tuple(slot.node for slot in roster if slot.is_idle),
        after_errors={name: part.after_error for name, part in known.items() if part.after_error},
        outside_files=with_outside_files({name: part.outside_files for name, part in known.items()}),
        world_sizes={
            name: part.unplanned_world_size for name, part in known.items() if part.unplanned_world_size
        },
        away=tuple(name for name in parts if name in lost and parts[name] is None),
        unwatched=tuple(name for name, part in known.items() if part.state == LOST and part.left_processes),
        alone=_alone_of(record, end.state),
        losses={part.node: f"lost: {part.reason}" for part in record.parts if part.lost and part.reason},
    )


def _alone_of(record: EndRecord, state: str) -> AloneRecord | None:
    if record.alone is None or state not in (FAILED, SUCCEEDED):
        return None
    return record.alone if is_certain(record.alone) == (state == FAILED) else None


def code_of(alone: AloneRecord) -> str:
    """Return the code of an error, or of a warning where it is not certain."""
    return ALONE_CODE if is_certain(alone) else SUSPECTED_CODE


def describe_alone(alone: AloneRecord) -> tuple[str, str]:
    """Describe it in a sentence, and what fixes it."""
    case = "suspected" if not is_certain(alone) else "groups" if alone["largest"] > 1 else ""
    return word(ALONE_CODE, case, dict(alone))


def _name_node_state(part: NodeState | None, recorded: RecordedPart | None) -> RunState:
    """Name how a node ended: as recorded; of one that the others lost what it reports itself, if that is an end."""
    own = UNKNOWN if part is None or part.live else part.state
    if recorded is None:
        return own
    return own if recorded.lost and own != UNKNOWN else _known_state(recorded.state)


def _known_state(text: str) -> RunState:
    return next((state for state in STATES if state == text), UNKNOWN)


def _with_node_of_task(cause: Cause, addresses: Mapping[str, str]) -> Cause:
    """Name the node of the Ray task that raised the exception, where its address is known."""
    task = cause.failure.ray_task
    nodes = [node for node, address in addresses.items() if address and task[1:] == (address,)]
    nodes = [cause.failure.node] if task[1:] == ("",) else nodes
    return replace(cause, failure=replace(cause.failure, ray_task=(task[0], nodes[0]))) if nodes else cause


def verdict_to_json(verdict: Verdict) -> VerdictEntry:
    """Return the verdict's place in the NDJSON of `launch --json`."""
    cause = verdict.cause
    return {
        "state": verdict.state,
        "exit_code": verdict.exit_code,
        "seconds": None if verdict.seconds is None else round(verdict.seconds, 3),
        "nodes": dict(verdict.node_states),
        "reasons": dict(verdict.reasons),
        "left": {name: list(processes) for name, processes in verdict.left_processes.items()},
        "gpu_memory": {name: list(held) for name, held in verdict.gpu_memory.items()},
        "attempt": verdict.attempt,
        "attempts": [attempt_to_json(attempt) for attempt in verdict.attempts],
        "smaller": verdict.smaller,
        "gave_up": verdict.gave_up_reason or None,
        "spares": list(verdict.spares),
        "after": dict(verdict.after_errors),
        "outside": {name: asdict(files) for name, files in verdict.outside_files.items()},
        "world_sizes": {name: observed for name, (observed, _) in verdict.world_sizes.items()},
        "cause": cause_to_json(cause, verdict.run_id) if cause else None,
        "alone": alone_to_json(verdict.alone) if verdict.alone else None,
        "hang": kept_to_json(verdict.hang) if verdict.hang else None,
        "recorded": not verdict.is_assembled,
        "slow": english_of(verdict.slow.judgement.sentence) if verdict.slow else None,
        "speed": speed_to_json(verdict.speed) if verdict.speed else None,
    }


def render_smaller(smaller: SmallerEntry | None) -> list[str]:
    """Return the line for a run that has gone on without some of its nodes."""
    return [tr("the last attempt ran on {nodes} of {of} nodes (min_nodes)", **smaller)] if smaller else []


def attempt_to_json(attempt: Attempt) -> AttemptEntry:
    """Return one of the attempts that have ended; times by the clock of the node that reported it."""
    return {
        "attempt": attempt.number,
        "reason": attempt.reason,
        "text": attempt.text,
        "node": attempt.node or None,
        "began": attempt.began,
        "ended": attempt.ended,
        "progress": attempt.progress,
    }


def alone_to_json(alone: AloneRecord) -> AloneEntry:
    """Return its place in the JSON of a verdict."""
    return {**alone, "code": code_of(alone)}


def cause_to_json(cause: Cause, run_id: str) -> CauseEntry:
    """Return a cause as JSON: what failed first, what it wrote, what is known of it, and what followed."""
    code = cause.symptom_match.symptom.code if cause.symptom_match else None
    file, line, *_ = (*cause.failure.own_frame, "", "")
    meaning, advice = describe_symptom(cause, run_id)
    return {
        **_failure_to_json(cause.failure),
        "exception": strip_rank(cause.failure.exception),
        "file": as_in_project(file) or None,
        "line": int(line) if re.fullmatch(r"\d{1,9}", line) else None,
        "code": code,
        "meaning": english_of(meaning),
        "advice": english_of(advice),
        "command": advised_command(cause, run_id, run_id),
        "stderr": list(cause.failure.tail),
        "consequences": [_failure_to_json(failure) for failure in cause.consequences],
    }


def _failure_to_json(failure: Failure) -> FailureEntry:
    return {
        "node": failure.node,
        "rank": failure.rank,
        "ending": render_ending(failure),
        "time": failure.time,
    }


def render_command(code: str, values: Mapping[str, str]) -> str:
    """Return the command that shows more about a code; nothing where it needs a name that `values` lacks.

    Each value is quoted for the shell, and so stands outside of the command's own quotes, but for a group of a pattern
    that matches only word characters.
    """
    quoted = {name: quote_word(value) for name, value in values.items()}
    try:
        return find_entry(code).command.format_map(quoted)
    except KeyError:
        return ""


def describe_symptom(cause: Cause, run_id: str) -> tuple[str, str]:
    """Return what is known of the cause, and advice in a sentence; nothing of one that no text shows."""
    missing = find_missing_output(cause, run_id)
    if missing is not None:
        return word(MISSING_FILE, "output", {"nodes": missing.nodes, "owner": missing.owner})
    entry = find_entry(cause.symptom_match.symptom.code if cause.symptom_match else "")
    return tr(entry.title), tr(entry.do)


def advised_command(cause: Cause, run_id: str, run: str) -> str:
    """Return the command that shows more about what is known of the cause, or fixes it; nothing if there is none.

    `run` is how the command calls the run.
    """
    if cause.symptom_match is None:
        return ""
    missing = find_missing_output(cause, run_id)
    if missing is not None:
        source = f"{missing.owner}:${{output_dir}}/{missing.path}"
        target = (
            f"{missing.nodes}:{dirname(f'${{output_dir}}/{missing.path}')}/"  # is made if it is not there
        )
        return command_line("cp", "--run", run, source, target, command="clusterctl")
    rank = {} if cause.failure.rank is None else {"rank": str(cause.failure.rank)}
    names = {**cause.symptom_match.values, **rank, "node": cause.failure.node, "run": run}
    return render_command(cause.symptom_match.symptom.code, names)


@dataclass(frozen=True)
class MissingOutput:
    """A file that ranks of some nodes look for in `${output_dir}`, where those of `owner` did not miss it."""

    path: str  # below the output directory
    nodes: str
    owner: str


def find_missing_output(cause: Cause, run_id: str) -> MissingOutput | None:
    """Return the file of the output directory that only some nodes miss; None for any other cause."""
    known = cause.symptom_match
    path = _missing_output(cause.failure, run_id)
    if known is None or known.symptom.code != MISSING_FILE or not path:
        return None
    others = sorted(cause.consequences, key=lambda failure: failure.rank or 0)
    missed = {
        failure.node for failure in (cause.failure, *others) if _missing_output(failure, run_id) == path
    }
    owner = next((one.node for one in others if one.rank is not None and one.node not in missed), "")
    return MissingOutput(path, fold_names(sorted(missed)), owner) if owner else None


def _missing_output(failure: Failure, run_id: str) -> str:
    """Return the path below the output directory of the file that a rank misses there; empty for anything else."""
    match, job = find_symptom(failure), job_name_of(RunId(run_id))
    if match is None or match.symptom.code != MISSING_FILE or not job:
        return ""
    return match.values.get("path", "").partition(f"/{WorkdirPaths('').outputs}/{job}/")[2]


def describe_world_event(event: Untrusted) -> str:
    """Return that processes of a node were started with another WORLD_SIZE; nothing for any other event."""
    observed, planned = event.integer("seen", 0), event.integer("planned", 0)
    if cast("JournalEvent", event.text("event", 40)) != "world_size" or observed is None or planned is None:
        return ""
    return describe_unplanned(observed, planned)


def describe_unplanned(observed: int, planned: int) -> str:
    """Return what was seen and what it means."""
    message, fix = word("CC-RUN-051", "", {"observed": observed, "planned": planned})
    return tr("{code}: {text}; {fix}", code="CC-RUN-051", text=message, fix=fix)


def render_unplanned(world_sizes: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the check of a run that has ended; `world_sizes` are what was seen and what was planned, by node."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, pair in world_sizes.items():
        groups.setdefault(pair, []).append(name)
    return [f"{fold_names(names)}: {describe_unplanned(*pair)}" for pair, names in groups.items()]
