"""Why a run makes no progress: recorded evidence of its ranks in, one sentence with its code out.

The first that holds is the answer:

1. a rank is stopped, by a signal or a debugger; else torchrun, the agent or the guardian of a node
2. a process waits for a file system in the kernel, while others wait for it or nothing goes on
3. a rank has written its traceback, and its process has not ended; or all ranks have ended, and torchrun has not
4. of a process group, ranks have not entered a collective that others wait in: ended, unreachable, GIL held, elsewhere
5. all are in one, but not in the same: another operation, size or type; or groups in another order
6. all are in the same, and none completes
7. no rank waits in a collective: the line of most ranks against those elsewhere
8. it makes progress

A wait counts once it is longer than PATIENCE and than what this job has shown to be usual. What nodes kept when a run
stalled, or before it was ended, is judged in the same way: KeptDiagnosis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from clusterctl.codes.lookup import word
from clusterctl.plans.diagnose.evidence import (
    MAX_AGE,
    Entry,
    GroupRecord,
    NodeEvidence,
    RankEvidence,
    Watcher,
    parse_evidence,
)
from clusterctl.protocol.tracebacks import final_exception
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names, fold_ranges
from clusterctl.specs.text import begin_commands, render_duration
from clusterctl.translation import english_of, tr, trn

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import HangEntry
    from clusterctl.protocol.messages.files import KeptReason

PATIENCE = 5.0  # seconds
MIN_STALLED_WAIT = 1.0  # seconds, where the nodes have seen no progress for as long as the job allows
USUAL_GAPS = 1.5  # times the longest time between two collectives
IDLE_CPU = 0.05  # processors
SAME_ON_ALL = ("all_reduce", "allreduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "barrier")
MAX_RANGES = 12
WATCHERS_CODE = "CC-HANG-013"


@dataclass(frozen=True)
class Judgement:
    """The answer: a case of a code, the facts of its sentence, and the ranks that it is about."""

    code: str
    case: str
    facts: Mapping[str, object] = field(default_factory=dict)
    suspects: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    seconds: float | None = None

    @property
    def sentence(self) -> str:
        """Return the judgement in one sentence."""
        return word(self.code, self.case, self.facts)[0]

    @property
    def fix(self) -> str:
        """Return what to do next."""
        return word(self.code, self.case, self.facts)[1]

    @property
    def hangs(self) -> bool:
        """Return whether something is wrong."""
        return self.code not in ("CC-HANG-009", "CC-HANG-010", "CC-HANG-011", "CC-HANG-012")


@dataclass(frozen=True)
class Wait:
    """The oldest collective of a process group that does not end, and what each rank has entered in its place."""

    group: GroupRecord
    number: int
    entered: Mapping[int, Entry]
    waiting: tuple[int, ...]
    missing: tuple[int, ...]

    @property
    def age(self) -> float:
        """Return the seconds since the first rank entered it."""
        return max(self.entered[rank].age for rank in self.waiting)

    @property
    def entry(self) -> Entry:
        """Return what most ranks have entered."""
        return majority(self.entered)[0]


def judge(
    ranks: Iterable[RankEvidence],
    silent_nodes: Sequence[str] = (),
    world: int | None = None,
    least_wait: float = PATIENCE,
    watchers: Sequence[Watcher] = (),
) -> Judgement:
    """Judge what the ranks of a run report; `silent_nodes` did not answer, `world` is how many ranks there are.

    `watchers` are the processes of the nodes that start and watch the ranks.
    """
    by_rank = {rank.rank: rank for rank in ranks}
    waits = find_waits(by_rank, world, least_wait)
    found = (
        _stopped(by_rank, waits) or _halted(watchers) or _in_kernel(by_rank, waits) or _zombie(by_rank, waits)
    )
    found = found or _remains(by_rank, watchers, least_wait)
    if found is not None:
        return found
    if waits:
        return _judge_waits(by_rank, waits, silent_nodes)
    return _without_wait(by_rank, silent_nodes, least_wait)


# what ranks wait in


def find_waits(
    by_rank: Mapping[int, RankEvidence], world: int | None, least_wait: float = PATIENCE
) -> list[Wait]:
    """Find the oldest collective without end of each process group, the longest wait first."""
    groups: dict[tuple[str, str], dict[int, GroupRecord]] = {}
    for rank, evidence in by_rank.items():
        for group in evidence.groups:
            groups.setdefault((group.name, group.about), {})[rank] = reduce_coalesced(group)
    waits = [_find_wait(records, by_rank, world, least_wait) for records in groups.values()]
    return sorted(filter(None, waits), key=lambda wait: -wait.age)


def _find_wait(
    records: Mapping[int, GroupRecord],
    by_rank: Mapping[int, RankEvidence],
    world: int | None,
    least_wait: float,
) -> Wait | None:
    patience = max([least_wait, *(USUAL_GAPS * gap for group in records.values() for gap in gaps(group))])
    pending = {
        entry.number
        for group in records.values()
        for entry in group.entries
        if not entry.done and entry.pair is None and entry.age >= patience
    }
    if not pending:
        return None
    number = min(pending)
    entered = {
        rank: entry
        for rank, group in records.items()
        for entry in group.entries
        if entry.number == number and entry.pair is None
    }
    waiting = tuple(sorted(rank for rank, entry in entered.items() if not entry.done))
    if not waiting:
        return None
    group = records[waiting[0]]
    members = set(group.members) or _members(group, records, by_rank, world)
    behind = (rank for rank in members if rank not in entered and _last_number(records.get(rank)) < number)
    return Wait(group, number, entered, waiting, tuple(sorted(behind)))


def reduce_coalesced(group: GroupRecord) -> GroupRecord:
    """Keep the last entry of each number: of coalesced operations only that one is ever over."""
    last = {(entry.number, entry.pair): entry for entry in group.entries}
    return replace(
        group, entries=tuple(entry for entry in group.entries if last[entry.number, entry.pair] is entry)
    )


def _members(
    group: GroupRecord, records: Mapping[int, object], by_rank: Mapping[int, object], world: int | None
) -> set[int]:
    """Return the ranks of a group: torch reports them of few; all are in the default group, others were seen in it."""
    everyone = {*by_rank, *range(world or 0)}
    return everyone if group.about == "default_pg" else set(records)


def _last_number(group: GroupRecord | None) -> int:
    numbers = [entry.number for entry in group.entries if entry.pair is None] if group else []
    return max(numbers, default=-1)


def gaps(group: GroupRecord) -> Iterator[float]:
    """Yield the seconds between collectives of which the first is over."""
    entries = reduce_coalesced(group).entries
    for before, after in pairwise(entries):
        if before.done:
            yield before.age - after.age


def majority(entered: Mapping[int, Entry]) -> tuple[Entry, tuple[int, ...]]:
    """Return what most ranks have entered, of equally many what the lowest rank has; and those ranks."""
    counts = Counter(entered[rank].signature for rank in sorted(entered))
    usual = counts.most_common(1)[0][0]
    ranks = tuple(rank for rank in sorted(entered) if entered[rank].signature == usual)
    return entered[ranks[0]], ranks


# 1 to 3: what a single process shows


def _stopped(by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait]) -> Judgement | None:
    stopped = [rank for rank in by_rank.values() if rank.process in ("T", "t")]
    if not stopped:
        return None
    case = "traced" if any(rank.traced or rank.process == "t" for rank in stopped) else ""
    return _about(stopped, "CC-HANG-001", case, waits, by_rank, pid=stopped[0].pid or 0)


def _halted(watchers: Sequence[Watcher]) -> Judgement | None:
    for watcher in watchers:
        if watcher.halted:
            return Judgement(WATCHERS_CODE, "", _facts_of(watcher))
    return None


def _remains(
    by_rank: Mapping[int, RankEvidence], watchers: Sequence[Watcher], least_wait: float
) -> Judgement | None:
    """Name a torchrun that has not exited although no rank is left that it could wait for."""
    launchers = [watcher for watcher in watchers if watcher.process == "torchrun"]
    silences = [rank.silent for rank in by_rank.values() if rank.silent is not None]
    all_ended = by_rank and all(rank.ended or rank.problem == "ended" for rank in by_rank.values())
    if not (launchers and silences and all_ended) or min(silences) < least_wait:
        return None
    return Judgement(WATCHERS_CODE, "remains", _facts_of(launchers[0]))


def _facts_of(watcher: Watcher) -> dict[str, object]:
    names = {"guardian": tr("the guardian"), "agent": tr("the agent")}
    process = names.get(watcher.process, watcher.process)
    return {"process": process, "pid": watcher.pid, "node": watcher.node}


def _in_kernel(by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait]) -> Judgement | None:
    missed = {rank for wait in waits for rank in wait.missing}
    blocked = [
        rank
        for rank in by_rank.values()
        if rank.process == "D" and (rank.cpu or 0.0) < IDLE_CPU and (rank.rank in missed or rank.problem)
    ]
    if not blocked:
        return None
    waits_in = blocked[0].waits_in or tr("an unknown function")
    return _about(blocked, "CC-HANG-002", "", waits, by_rank, waits_in=waits_in)


def _zombie(by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait]) -> Judgement | None:
    for rank in by_rank.values():
        exception = uncaught_exception(rank)
        if exception and (rank.silent or 0.0) >= PATIENCE:
            return _about([rank], "CC-HANG-003", "", waits, by_rank, exception=exception)
    return None


def uncaught_exception(rank: RankEvidence) -> str:
    """Return the exception that a living rank has written last and reports as not caught; empty if there is none."""
    if rank.ended or not rank.process or any(frame.function == "<module>" for frame in rank.frames):
        return ""
    return final_exception(rank.stderr) if rank.uncaught and rank.stack else ""


# 4 to 6: what ranks wait for


def _judge_waits(
    by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait], silent_nodes: Sequence[str]
) -> Judgement:
    busy = {rank for wait in waits for rank in wait.waiting}
    for wait in waits:
        suspects = [rank for rank in wait.missing if rank not in busy]
        if suspects:
            return _judge_missing(wait, suspects, by_rank, silent_nodes)
    for wait in waits:
        if not wait.missing:
            return _judge_complete(wait, by_rank)
    return _judge_order(waits, by_rank)


def _judge_missing(
    wait: Wait, suspects: Sequence[int], by_rank: Mapping[int, RankEvidence], silent_nodes: Sequence[str]
) -> Judgement:
    known = [by_rank[rank] for rank in suspects if rank in by_rank]
    operation = _operation(wait)
    ended = [rank for rank in known if rank.ended or rank.problem == "ended"]
    if ended:
        return _about(ended, "CC-HANG-004", "ended", (wait,), by_rank, operation=operation)
    if not known:
        names = fold_names(silent_nodes) or tr("an unknown node")
        facts = {"ranks": name_ranks(suspects), "nodes": names, "operation": operation}
        facts["waiting"] = _waiting((wait,), by_rank)
        return Judgement("CC-HANG-004", "unreachable", facts, tuple(suspects), wait.waiting, wait.age)
    locked = [rank for rank in known if rank.frames and rank.records_problem == "no answer"]
    if locked:
        return _about(
            locked, "CC-HANG-004", "locked", (wait,), by_rank, operation=operation, where=_where(locked)
        )
    return _about(known, "CC-HANG-004", "", (wait,), by_rank, operation=operation, where=_where(known))


def _judge_complete(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> Judgement:
    usual, ranks = majority(wait.entered)
    others = [rank for rank in wait.entered if not _agrees(wait.entered[rank], usual)]
    if others:
        odd = wait.entered[others[0]]
        facts = {
            "ranks": _name([by_rank[rank] for rank in others]),
            "operation": describe_entry(odd),
            "where": _where([by_rank[rank] for rank in others]),
            "others": name_ranks(ranks),
            "usual": describe_entry(usual),
            "elsewhere": _where([by_rank[rank] for rank in ranks]),
            "number": wait.number,
            "group": wait.group.title,
        }
        return Judgement("CC-HANG-005", "", facts, tuple(others), wait.waiting, wait.age)
    facts = {
        "operation": _operation(wait),
        "ranks": name_ranks(sorted(wait.entered)),
        "where": _where([by_rank[rank] for rank in wait.waiting]),
        "duration": render_duration(round(wait.age)),
    }
    return Judgement("CC-HANG-006", "", facts, (), wait.waiting, wait.age)


def _agrees(entry: Entry, usual: Entry) -> bool:
    """Return whether two ranks have entered the same; of some operations each rank may have a size of its own."""
    if entry.operation != usual.operation:
        return False
    sized = entry.operation.strip("_").replace("_coalesced", "") in SAME_ON_ALL
    return not sized or entry.signature == usual.signature


def _judge_order(waits: Sequence[Wait], by_rank: Mapping[int, RankEvidence]) -> Judgement:
    """Name two groups whose ranks wait for each other."""
    pairs = [
        (first, second)
        for number, first in enumerate(waits)
        for second in waits[number + 1 :]
        if {*first.missing} & {*second.waiting} and {*second.missing} & {*first.waiting}
    ]
    first, second = pairs[0] if pairs else (waits[0], waits[-1])
    facts = {
        "ranks": name_ranks(first.waiting),
        "operation": _operation(first),
        "where": _where([by_rank[rank] for rank in first.waiting]),
        "others": name_ranks(second.waiting),
        "usual": _operation(second),
        "elsewhere": _where([by_rank[rank] for rank in second.waiting]),
    }
    suspects = tuple(sorted({*first.waiting, *second.waiting}))
    return Judgement("CC-HANG-005", "order", facts, suspects, suspects, first.age)


# 7 and 8: no rank waits in a collective


def _without_wait(
    by_rank: Mapping[int, RankEvidence], silent_nodes: Sequence[str], least_wait: float
) -> Judgement:
    living = [rank for rank in by_rank.values() if not rank.ended and rank.problem != "ended"]
    newest = [group.entries[-1].age for rank in living for group in rank.groups if group.entries]
    usual = [gap for rank in living for group in rank.groups for gap in gaps(group)]
    if newest and min(newest) < max([least_wait, *(USUAL_GAPS * gap for gap in usual)]):
        duration = f"{min(newest):.1f}"
        return Judgement("CC-HANG-009", "", {"duration": duration, "ranks": name_ranks(_numbers(living))})
    odd, usual_where, others = find_odd(living)
    if odd:
        facts = {"ranks": _name(odd), "where": _where(odd), "others": name_ranks(_numbers(others))}
        facts["elsewhere"] = usual_where
        return Judgement("CC-HANG-007", "", facts, tuple(_numbers(odd)), tuple(_numbers(others)))
    if silent_nodes:
        return Judgement("CC-HANG-008", "", {"nodes": fold_names(silent_nodes)})
    if any(rank.frames for rank in living):
        busy = sum((rank.cpu or 0.0) >= IDLE_CPU for rank in living)
        places = {"ranks": name_ranks(_numbers(living)), "where": _where(living)}
        if not busy:
            return Judgement("CC-HANG-010", "idle", places)
        return Judgement("CC-HANG-010", "", {**places, "busy": busy, "count": len(living)})
    return Judgement("CC-HANG-010", "nothing", {"reason": _reason(living)})


def find_odd(living: Sequence[RankEvidence]) -> tuple[list[RankEvidence], str, list[RankEvidence]]:
    """Find the ranks that are at another line than more than half of all; also that line, and who is there."""
    places = Counter(str(rank.where) for rank in living if rank.where is not None)
    place, count = places.most_common(1)[0] if places else ("", 0)
    if count * 2 <= len(living) or count == len(living):
        return [], place, []
    others = [rank for rank in living if rank.where is not None and str(rank.where) == place]
    return [rank for rank in living if rank not in others], place, others


def _reason(living: Sequence[RankEvidence]) -> str:
    problems = Counter(rank.problem for rank in living if rank.problem)
    return problems.most_common(1)[0][0] if problems else tr("no rank runs")


# texts


def _about(
    suspects: Sequence[RankEvidence],
    code: str,
    case: str,
    waits: Sequence[Wait],
    by_rank: Mapping[int, RankEvidence],
    **facts: object,
) -> Judgement:
    waiting = tuple(sorted({rank for wait in waits for rank in wait.waiting}))
    all_facts = {
        "ranks": _name(suspects),
        "node": suspects[0].node,
        "number": suspects[0].rank,
        "waiting": _waiting(waits, by_rank),
        **facts,
    }
    age = max((wait.age for wait in waits), default=None)
    return Judgement(code, case, all_facts, tuple(_numbers(suspects)), waiting, age)


def _waiting(waits: Sequence[Wait], by_rank: Mapping[int, RankEvidence]) -> str:
    waiting = sorted({rank for wait in waits for rank in wait.waiting})
    if not waiting:
        return tr("no rank waits for it in a collective")
    where = _where([by_rank[rank] for rank in waiting])
    duration = render_duration(round(max(wait.age for wait in waits)))
    return trn(
        "{n} rank has waited for it at {where} for {duration}",
        "{n} ranks have waited for it at {where} for {duration}",
        len(waiting),
        where=where,
        duration=duration,
    )


def _numbers(ranks: Iterable[RankEvidence]) -> list[int]:
    return [rank.rank for rank in ranks]


def _name(ranks: Sequence[RankEvidence]) -> str:
    """Name ranks and their nodes: `rank 3 (gpu02)`."""
    nodes = fold_names(dict.fromkeys(rank.node for rank in ranks))
    return tr("{text} ({nodes})", text=name_ranks(_numbers(ranks)), nodes=nodes)


def name_ranks(ranks: Sequence[int]) -> str:
    """Write ranks shortly: `rank 3`, `ranks 0-2,5`."""
    return trn("rank {ranks}", "ranks {ranks}", len(ranks), ranks=fold_numbers(sorted(ranks)))


def fold_numbers(numbers: Sequence[int]) -> str:
    """Write numbers in order with their ranges: `0-2,5`."""
    texts = list(fold_ranges(numbers))
    return ",".join([*texts[:MAX_RANGES], *(["..."] if len(texts) > MAX_RANGES else [])])


def _where(ranks: Sequence[RankEvidence]) -> str:
    """Name the line at which most of these ranks are."""
    places = Counter(str(rank.where) for rank in ranks if rank.where is not None)
    return places.most_common(1)[0][0] if places else tr("an unknown line")


def _operation(wait: Wait) -> str:
    return tr(
        "{operation} #{number} of group {group}",
        operation=wait.entry.operation,
        number=wait.number,
        group=wait.group.title,
    )


def describe_entry(entry: Entry) -> str:
    """Write an operation with sizes and types: `all_reduce Float [[1000]]`."""
    sizes = "" if entry.sizes == "[]" else entry.sizes
    return " ".join(filter(None, (entry.operation, entry.types, sizes)))


STALL: Final = "stall"
TIME_LIMIT: Final = "time_limit"
STOP: Final = "stop"
REASONS: tuple[KeptReason, ...] = (STALL, TIME_LIMIT, STOP)
MAX_SHOWN = 4  # suspects


@dataclass(frozen=True)
class KeptEvidence:
    """What one node has kept: why, for how many seconds no rank had made progress if that was known, and its ranks."""

    why: KeptReason
    seconds: float | None
    evidence: NodeEvidence


@dataclass(frozen=True)
class KeptDiagnosis:
    """What the evidence of all nodes means; `ranks` are those that it is about, or all if it is about none.

    `all_ranks` are all that were asked.
    """

    why: KeptReason
    seconds: float | None
    judgement: Judgement
    ranks: tuple[RankEvidence, ...]
    all_ranks: tuple[RankEvidence, ...] = ()

    @property
    def summary(self) -> str:
        """Return where the ranks were, and when."""
        shown = self.ranks[:MAX_SHOWN]
        where = next((str(rank.where) for rank in shown if rank.where is not None), "")
        names = fold_numbers([rank.rank for rank in shown])
        nodes = fold_names(dict.fromkeys(rank.node for rank in shown))
        facts = {"ranks": names, "nodes": nodes, "where": where or tr("an unknown line")}
        if self.why == STALL and self.seconds is not None:
            return trn(
                "when no rank had made progress for {span}, rank {ranks} ({nodes}) was at {where}",
                "when no rank had made progress for {span}, ranks {ranks} ({nodes}) were at {where}",
                len(shown),
                **facts,
                span=render_duration(round(self.seconds)),
            )
        if self.why == TIME_LIMIT:
            return trn(
                "just before the time limit, rank {ranks} ({nodes}) was at {where}",
                "just before the time limit, ranks {ranks} ({nodes}) were at {where}",
                len(shown),
                **facts,
            )
        return trn(
            "just before the stop, rank {ranks} ({nodes}) was at {where}",
            "just before the stop, ranks {ranks} ({nodes}) were at {where}",
            len(shown),
            **facts,
        )


def choose_least_wait(reasons: Iterable[str]) -> float:
    """Return the seconds after which a rank that waits may be a hang, by why each node has kept where its ranks are.

    Only nodes with a living agent count: it reports a stall as long as that lasts, a lost one's report may be old.
    """
    return MIN_STALLED_WAIT if STALL in reasons else PATIENCE


def parse_kept(raw: Untrusted, node: str) -> KeptEvidence | None:
    """Read what a node has kept; None if it has nothing."""
    why, time, since = raw.one_of("why", REASONS), raw.moment("time"), raw.moment("since")
    if not why or time is None:
        return None
    seconds = None if since is None else min(MAX_AGE, max(0.0, time - since))
    return KeptEvidence(why, seconds, parse_evidence(raw.record("diagnosis"), node))


def judge_kept(
    kept: Sequence[KeptEvidence], silent_nodes: Sequence[str], world: int | None
) -> KeptDiagnosis | None:
    """Judge what the nodes have kept for the newest reason; None if they have nothing."""
    if not kept:
        return None
    ranks = sorted((rank for each in kept for rank in each.evidence.ranks), key=lambda rank: rank.rank)
    seconds = [each.seconds for each in kept if each.seconds is not None]
    longest = max(seconds, default=None)
    # of a stall the nodes have waited as long as the job allows
    least_wait = min(PATIENCE, longest) if longest else PATIENCE
    watchers = [watcher for each in kept for watcher in each.evidence.watchers]
    judgement = judge(ranks, silent_nodes, world, least_wait, watchers)
    suspects = tuple(rank for rank in ranks if rank.rank in judgement.suspects)
    return KeptDiagnosis(kept[0].why, longest, judgement, suspects or tuple(ranks), tuple(ranks))


def kept_to_json(kept: KeptDiagnosis) -> HangEntry:
    """Return its place in `status --json` and in the verdict."""
    return {
        "why": kept.why,
        "seconds": kept.seconds,
        "summary": english_of(kept.summary),
        "code": kept.judgement.code,
        "sentence": english_of(kept.judgement.sentence),
        "next": english_of(kept.judgement.fix),
        "suspects": list(kept.judgement.suspects),
    }


def render_kept(kept: KeptDiagnosis, command: str = "clusterctl") -> list[str]:
    """Return where ranks were, what that means, and what to do; nothing if they made progress until a time limit."""
    lines = describe_kept(kept)
    return [*lines, *render_advice(kept.judgement, command)] if lines else []


def describe_kept(kept: KeptDiagnosis) -> list[str]:
    """Return where ranks were, and what that means: texts with what ranks wrote in them."""
    judgement = kept.judgement
    if kept.why == TIME_LIMIT and not judgement.hangs:
        return []
    places = [] if judgement.code == WATCHERS_CODE else [kept.summary]  # it is about no rank
    return [*places, tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code)]


def render_advice(judgement: Judgement, command: str) -> list[str]:
    """Return what to do, if there is something: a text of ours, with commands between backticks."""
    advice = begin_commands(judgement.fix, command)
    return [tr("next: {command}", command=advice)] if advice else []
