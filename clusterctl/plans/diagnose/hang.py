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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterctl.codes.lookup import find_entry, word
from clusterctl.plans.diagnose.evidence import (
    Entry,
    RankEvidence,
    Watcher,
)
from clusterctl.plans.diagnose.waits import (
    PATIENCE,
    USUAL_GAPS,
    WORLD,
    Wait,
    find_blocked,
    find_cycle,
    find_waits,
    gaps,
    majority,
)
from clusterctl.protocol.tracebacks import final_exception
from clusterctl.specs.nodeset import fold_names, fold_ranges
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    pass

IDLE_CPU, BUSY_CPU = 0.05, 0.5  # processors
SAME_ON_ALL = ("all_reduce", "allreduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "barrier")
OF_ONE_RANK = ("broadcast", "reduce", "gather", "scatter")  # each rank names the same other one
SPLIT = ("alltoall", "all_to_all")
MAX_RANGES = 12
MAX_POSITIONS = 4
SEVERAL = {
    "": "several",
    "busy": "several-busy",
    "locked": "several-locked",
    "ended": "several-ended",
}  # cases
SECOND_LOOK = 2.0  # seconds between two looks
WATCHERS_CODE = "CC-HANG-013"


@dataclass(frozen=True)
class Judgement:
    """The answer: a case of a code, the facts of its sentence, and the ranks that it is about.

    `by_stacks`: that ranks wait is known by their stacks alone.
    """

    code: str
    case: str
    facts: Mapping[str, object] = field(default_factory=dict)
    suspects: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    seconds: float | None = None
    by_stacks: bool = False

    @property
    def sentence(self) -> str:
        """Return the judgement in one sentence."""
        return word(self.code, self._wording, self.facts)[0]

    @property
    def fix(self) -> str:
        """Return what to do next."""
        return word(self.code, self._wording, self.facts)[1]

    @property
    def _wording(self) -> str:
        """Return the case whose sentence has as many subjects."""
        several = SEVERAL.get(self.case, self.case)
        return several if len(self.suspects) > 1 and several in find_entry(self.code).cases else self.case

    @property
    def is_thin(self) -> bool:
        """Return whether a second look at the stacks may change the answer: for how long is not recorded."""
        return (
            self.code in ("CC-HANG-002", "CC-HANG-007", "CC-HANG-010")
            or self.case in ("locked", "silent", "thread", "process")
            or self.by_stacks
        )

    @property
    def hangs(self) -> bool:
        """Return whether something is wrong."""
        return self.code not in ("CC-HANG-009", "CC-HANG-010", "CC-HANG-011", "CC-HANG-012")


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
    if any(wait.is_long for wait in waits):
        return _judge_waits(by_rank, waits, silent_nodes)
    return _without_wait(by_rank, waits, silent_nodes, least_wait)


def confirm(judgement: Judgement, seen_once: Sequence[RankEvidence]) -> Judgement:
    """Return the answer of a second look, unless it takes two and is about ranks that have answered only the first."""
    about = {*judgement.suspects, *judgement.waiting}
    nodes = dict.fromkeys(rank.node for rank in seen_once if rank.rank in about)
    return (_judge_silent(list(nodes)) or judgement) if judgement.is_thin else judgement


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
    all_ended = by_rank and all(rank.has_ended for rank in by_rank.values())
    if not (launchers and silences and all_ended) or min(silences) < least_wait:
        return None
    return Judgement(WATCHERS_CODE, "remains", _facts_of(launchers[0]))


def _facts_of(watcher: Watcher) -> dict[str, object]:
    names = {"guardian": tr("the guardian"), "agent": tr("the agent")}
    process = names.get(watcher.process, watcher.process)
    return {"process": process, "pid": watcher.pid, "node": watcher.node}


def _in_kernel(by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait]) -> Judgement | None:
    missed = {rank for wait in waits if may_hang(wait) for rank in wait.missing}
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
        works = rank.moved or _is_busy(rank)  # a thread that uploads a checkpoint ends by itself
        if rank.left and not exception and not works and (rank.silent or 0.0) >= PATIENCE:
            return _about([rank], "CC-HANG-003", rank.left[0][0], waits, by_rank, name=_name_left(rank))
    return None


def _name_left(rank: RankEvidence) -> str:
    """Name the threads or processes that a rank waits for at its end, and the line of the only thread."""
    names = ", ".join(name for kind, name in rank.left if kind == rank.left[0][0])
    others = [frame for frame in rank.active if frame.own]
    return tr("{text} (at {where})", text=names, where=others[0]) if others else names


def uncaught_exception(rank: RankEvidence) -> str:
    """Return the exception that a living rank has written last and reports as not caught; empty if there is none."""
    if rank.ended or not rank.process or any(frame.function == "<module>" for frame in rank.frames):
        return ""
    return final_exception(rank.stderr) if rank.uncaught and rank.stack else ""


# 4 to 6: what ranks wait for


def may_hang(wait: Wait) -> bool:
    """Return whether a wait takes long, or nothing is known of how long; another one may end at once."""
    return wait.is_certain and (wait.is_long or bool(wait.call))


def _judge_waits(
    by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait], silent_nodes: Sequence[str]
) -> Judgement:
    blocked = find_blocked(waits, by_rank)
    known = [wait for wait in waits if wait.is_certain]
    for wait in filter(may_hang, known):
        suspects = [rank for rank in wait.missing if rank not in blocked]
        if suspects:
            return _judge_missing(wait, suspects, by_rank, silent_nodes)
    for wait in waits:
        if wait.is_long and not wait.missing and (wait.is_certain or len(wait.entered) == len(by_rank)):
            return _judge_complete(wait, by_rank)
    circle = find_cycle(known)
    return _judge_cycle(circle, by_rank) if circle else _judge_unknown(waits, blocked, by_rank)


def _judge_missing(
    wait: Wait, suspects: Sequence[int], by_rank: Mapping[int, RankEvidence], silent_nodes: Sequence[str]
) -> Judgement:
    known = [by_rank[rank] for rank in suspects if rank in by_rank]
    operation = _counterpart(wait, by_rank)
    ended = [rank for rank in known if rank.has_ended]
    if ended:
        return _about(ended, "CC-HANG-004", "ended", (wait,), by_rank, operation=operation)
    if not known:
        names = fold_names(silent_nodes) or tr("an unknown node")
        facts = {"ranks": name_ranks(suspects), "nodes": names, "operation": operation}
        facts["waiting"] = _waiting((wait,), by_rank, for_several=len(suspects) > 1)
        return Judgement("CC-HANG-004", "unreachable", facts, tuple(suspects), wait.waiting, wait.age)
    silent = [rank for rank in known if not rank.frames]
    if len(silent) == len(known):
        return _about(silent, "CC-HANG-004", "silent", (wait,), by_rank, operation=operation)
    known = [rank for rank in known if rank.frames]
    locked = [rank for rank in known if rank.records_problem == "no answer"]
    if locked:
        return _about(
            locked, "CC-HANG-004", "locked", (wait,), by_rank, operation=operation, where=_where(locked)
        )
    case = "busy" if all(map(_is_busy, known)) else ""
    where = describe_line(known, [by_rank[rank] for rank in wait.waiting])
    return _about(known, "CC-HANG-004", case, (wait,), by_rank, operation=operation, where=where)


def _is_busy(rank: RankEvidence) -> bool:
    return rank.process == "R" or (rank.cpu or 0.0) >= BUSY_CPU


def _judge_complete(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> Judgement:
    usual, ranks = majority(wait.entered)
    others = [rank for rank in wait.entered if not _agrees(wait.entered[rank], usual)]
    by_peer = _group_by_peer(wait, by_rank)
    if others:
        facts = {
            "operations": _list_entered(wait, [*others, *ranks], by_rank),
            "number": wait.number,
            "group": _name_group(wait, by_rank),
        }
        return Judgement("CC-HANG-005", "", facts, tuple(others), wait.waiting, wait.age)
    if len(by_peer) > 1:
        parts = [
            tr(
                "rank {peer} by {ranks} at {where}",
                peer=peer,
                ranks=name_ranks(each),
                where=_where_of(each, by_rank),
            )
            for peer, each in by_peer.items()
        ]
        facts = {"operation": _operation(wait, by_rank), "parts": tr("; ").join(parts)}
        return Judgement("CC-HANG-005", "peer", facts, wait.waiting, wait.waiting, wait.age)
    facts = {
        "operation": _operation(wait, by_rank),
        "ranks": name_ranks(sorted(wait.entered)),
        "where": _where([by_rank[rank] for rank in wait.waiting]),
        "duration": render_duration(round(wait.age)),
    }
    is_known = list(by_peer.values()) == [sorted(wait.entered)]
    case = (
        "splits" if _kind(usual) in SPLIT else "root" if _kind(usual) in OF_ONE_RANK and not is_known else ""
    )
    return Judgement("CC-HANG-006", case, facts, (), wait.waiting, wait.age)


def _group_by_peer(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> dict[int, list[int]]:
    """Group the ranks that wait in a broadcast or the like by the rank that they name."""
    found: dict[int, list[int]] = {}
    for rank in wait.waiting:
        peer = by_rank[rank].peer
        if peer is not None and _kind(majority(wait.entered)[0]) in OF_ONE_RANK:
            found.setdefault(peer, []).append(rank)
    return found


def _list_entered(wait: Wait, ranks: Sequence[int], by_rank: Mapping[int, RankEvidence]) -> str:
    """Write what ranks have entered, those with the same in one part: `rank 1 (gpu02): barrier at train.py:5`."""
    groups: dict[str, list[int]] = {}
    for rank in ranks:
        groups.setdefault(describe_entry(wait.entered[rank]), []).append(rank)
    parts = [
        tr(
            "{ranks}: {operation} at {where}",
            ranks=_name([by_rank[rank] for rank in each]),
            operation=operation,
            where=_where_of(each, by_rank),
        )
        for operation, each in groups.items()
    ]
    return tr("; ").join(parts[:MAX_POSITIONS])


def _kind(entry: Entry) -> str:
    """Return the name of an operation without what marks its variants."""
    return entry.operation.strip("_").replace("_coalesced", "").replace("_base", "").replace("_single", "")


def _agrees(entry: Entry, usual: Entry) -> bool:
    """Return whether two ranks have entered the same; of some operations each rank may have a size of its own."""
    if entry.operation != usual.operation:
        return False
    return _kind(entry) not in SAME_ON_ALL or entry.signature == usual.signature


def _judge_cycle(cycle: Sequence[Wait], by_rank: Mapping[int, RankEvidence]) -> Judgement:
    """Name groups, or pairs, whose ranks wait for each other; of each those that the one before waits for."""
    before = [*cycle[-1:], *cycle[:-1]]
    parts, suspects = [], []
    for last, wait in zip(before, cycle, strict=True):
        ranks = sorted({*last.missing} & {*wait.waiting}) or list(wait.waiting)
        suspects += ranks
        facts = {"operation": _operation(wait, by_rank), "where": _where_of(ranks, by_rank)}
        parts.append(tr("{ranks} in {operation} at {where}", ranks=name_ranks(ranks), **facts))
    case = "pairs" if any(wait.is_pair for wait in cycle) else "order"
    facts = {"parts": tr("; ").join(parts[:MAX_POSITIONS])}
    waiting = tuple(sorted({rank for wait in cycle for rank in wait.waiting}))
    return Judgement("CC-HANG-005", case, facts, tuple(sorted({*suspects})), waiting, cycle[0].age)


def _judge_unknown(
    waits: Sequence[Wait], blocked: Collection[int], by_rank: Mapping[int, RankEvidence]
) -> Judgement:
    """Describe what ranks wait in if it is not known for which others, and where those are that do not wait."""
    wait = waits[0]
    free = [rank for rank in by_rank.values() if rank.rank not in blocked]
    facts = {
        "ranks": _name([by_rank[rank] for rank in wait.waiting]),
        "operation": _operation(wait, by_rank),
        "where": _where_of(wait.waiting, by_rank),
        "duration": render_duration(round(wait.age)),
        "others": _list_positions(free) if free else tr("every rank waits in a recorded operation"),
    }
    return Judgement("CC-HANG-004", "unknown", facts, (), wait.waiting, wait.age)


# 7 and 8: no rank waits in a collective


def _without_wait(
    by_rank: Mapping[int, RankEvidence],
    waits: Sequence[Wait],
    silent_nodes: Sequence[str],
    least_wait: float,
) -> Judgement:
    living = [rank for rank in by_rank.values() if not rank.has_ended]
    newest = [group.entries[-1].age for rank in living for group in rank.groups if group.entries]
    usual = [gap for rank in living for group in rank.groups for gap in gaps(group)]
    if newest and min(newest) < max([least_wait, *(USUAL_GAPS * gap for gap in usual)]):
        duration = f"{min(newest):.1f}"
        return Judgement("CC-HANG-009", "", {"duration": duration, "ranks": name_ranks(_numbers(living))})
    return (
        _judge_calls(by_rank, waits, least_wait)
        or _judge_odd(living, least_wait)
        or _judge_silent(silent_nodes)
        or describe_quiet(living)
    )


def _judge_calls(
    by_rank: Mapping[int, RankEvidence], waits: Sequence[Wait], least_wait: float
) -> Judgement | None:
    """Name the ranks that are not in a call that others wait in and torch does not record: init_process_group."""
    calls = [wait for wait in waits if wait.call and wait.is_certain]
    blocked = {rank for wait in waits for rank in wait.waiting}
    if not calls or not _are_silent((by_rank[rank] for wait in calls for rank in wait.waiting), least_wait):
        return None
    for wait in calls:
        suspects = [rank for rank in wait.missing if rank in by_rank and rank not in blocked]
        moved = [rank for rank in (*suspects, *wait.waiting) if by_rank[rank].moved]
        # stages of a pipeline send and receive all the time
        if (
            suspects
            and not moved
            and not (wait.is_pair and any(_is_busy(by_rank[rank]) for rank in suspects))
        ):
            return replace(_judge_missing(wait, suspects, by_rank, ()), by_stacks=True)
    circle = find_cycle([wait for wait in waits if wait.is_certain])
    moved = [rank for wait in circle for rank in wait.waiting if by_rank[rank].moved]
    return replace(_judge_cycle(circle, by_rank), by_stacks=True) if circle and not moved else None


def _are_silent(ranks: Iterable[RankEvidence], seconds: float) -> bool:
    """Return whether one of some ranks has written nothing for so long, or it is not known when it has."""
    return any(rank.silent is None or rank.silent >= seconds for rank in ranks)


def _judge_odd(living: Sequence[RankEvidence], least_wait: float) -> Judgement | None:
    odd, usual_where, others = find_odd(living)
    moves = any(rank.moved or _is_busy(rank) for rank in odd) or any(rank.moved for rank in others)
    if not odd or moves or not _are_silent(others, least_wait):
        return None
    facts = {"ranks": _name(odd), "where": _list_lines(odd), "others": name_ranks(_numbers(others))}
    facts["elsewhere"] = usual_where
    return Judgement("CC-HANG-007", "", facts, tuple(_numbers(odd)), tuple(_numbers(others)))


def _judge_silent(silent_nodes: Sequence[str]) -> Judgement | None:
    return Judgement("CC-HANG-008", "", {"nodes": fold_names(silent_nodes)}) if silent_nodes else None


def describe_quiet(living: Sequence[RankEvidence]) -> Judgement:
    """Describe where ranks are that wait in no collective, and what else is known of them."""
    unknown = [rank for rank in living if not rank.frames or rank.records_problem == "no answer"]
    if len(unknown) == len(living):
        return Judgement("CC-HANG-010", "nothing", {"reason": _reason(living)})
    busy = sum(rank.process == "R" or (rank.cpu or 0.0) >= IDLE_CPU for rank in living)
    newest = min(
        ((group.entries[-1], group) for rank in living for group in rank.groups if group.entries),
        key=lambda pair: pair[0].age,
        default=None,
    )
    recorded = tr("none has been recorded yet")
    if newest is not None:
        entry, group = newest
        facts = {"operation": entry.operation, "number": entry.number, "group": group.title}
        duration = render_duration(round(entry.age))
        recorded = tr(
            "the last, {operation} #{number} of {group}, began {duration} ago", **facts, duration=duration
        )
    facts = {"positions": _list_positions(living) + _describe_moves(living), "recorded": recorded}
    if unknown:
        return Judgement("CC-HANG-010", "partly", {**facts, "ranks": _name(unknown)})
    return Judgement("CC-HANG-010", "" if busy else "idle", {**facts, "busy": busy, "count": len(living)})


def _describe_moves(living: Sequence[RankEvidence]) -> str:
    """Write what a second look has shown, if there was one."""
    seen = [rank for rank in living if rank.moved is not None]
    moved = [rank for rank in seen if rank.moved]
    if not seen:
        return ""
    if not moved:
        return tr("; no stack has changed within {seconds:g} s", seconds=SECOND_LOOK)
    return tr(
        "; changed within {seconds:g} s: {ranks}", seconds=SECOND_LOOK, ranks=name_ranks(_numbers(moved))
    )


def find_odd(living: Sequence[RankEvidence]) -> tuple[list[RankEvidence], str, list[RankEvidence]]:
    """Find the ranks that are at another line than more than half of all; also that line, and who is there."""
    places = Counter(str(rank.where) for rank in living if rank.where is not None)
    place, count = places.most_common(1)[0] if places else ("", 0)
    if count * 2 <= len(living) or count == len(living):
        return [], place, []
    others = [rank for rank in living if rank.where is not None and str(rank.where) == place]
    usual = set(_numbers(others))
    return [rank for rank in living if rank.rank not in usual], place, others


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
        "waiting": _waiting(waits, by_rank, for_several=len(suspects) > 1),
        **facts,
    }
    age = max((wait.age for wait in waits), default=None)
    return Judgement(code, case, all_facts, tuple(_numbers(suspects)), waiting, age)


def _waiting(waits: Sequence[Wait], by_rank: Mapping[int, RankEvidence], *, for_several: bool = False) -> str:
    """Write how many ranks wait, where and for how long; for how long is not known of calls that are not recorded."""
    waiting = sorted({rank for wait in waits for rank in wait.waiting})
    if not waiting:
        return tr("no rank waits for it in a collective")
    age = max(wait.age for wait in waits)
    facts = {"where": _where_of(waiting, by_rank), "duration": render_duration(round(age))}
    if not age:
        return trn("{n} rank waits at {where}", "{n} ranks wait at {where}", len(waiting), **facts)
    if for_several:
        return trn(
            "{n} rank has waited for them at {where} for {duration}",
            "{n} ranks have waited for them at {where} for {duration}",
            len(waiting),
            **facts,
        )
    return trn(
        "{n} rank has waited for it at {where} for {duration}",
        "{n} ranks have waited for it at {where} for {duration}",
        len(waiting),
        **facts,
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


def _where_of(ranks: Iterable[int], by_rank: Mapping[int, RankEvidence]) -> str:
    return _where([by_rank[rank] for rank in ranks])


def _where(ranks: Sequence[RankEvidence]) -> str:
    """Name the line at which most of these ranks are."""
    places = Counter(str(rank.where) for rank in ranks if rank.where is not None)
    return places.most_common(1)[0][0] if places else tr("an unknown line")


def describe_line(suspects: Sequence[RankEvidence], waiting: Sequence[RankEvidence]) -> str:
    """Name the line at which most suspects are, and the call there; what is below it if others wait at that line."""
    where = _where(suspects)
    rank = next((one for one in suspects if str(one.where) == where), None)
    if rank is None:
        return where
    inner = next((frame for frame in rank.active if not frame.standard), rank.active[0])
    if where == _where(waiting) and inner != rank.where:
        return tr("{where}, below it {inner}", where=where, inner=inner)
    return _with_note(rank)


def _with_note(rank: RankEvidence) -> str:
    """Name the line of a rank with the call there, and what else explains that it does not go on."""
    if any(frame.function in ("interaction", "cmdloop") for frame in rank.frames):
        return tr("{where}, at a breakpoint", where=rank.where)
    exception = final_exception(rank.stderr) if "Exception in thread " in rank.stderr else ""
    if exception:
        return tr(
            "{where}, and a thread has ended with {exception}", where=_with_call(rank), exception=exception
        )
    return _with_call(rank)


def _with_call(rank: RankEvidence) -> str:
    """Name the line of a rank, with the call there unless it computes."""
    if rank.call and rank.where == rank.active[0] and (rank.cpu or 0.0) < IDLE_CPU:
        return f"{rank.where}: {rank.call}"
    return str(rank.where)


def _list_positions(ranks: Sequence[RankEvidence]) -> str:
    """Write where ranks are, those at the same line together: `ranks 0-1 at train.py:5; rank 2 at train.py:9`."""
    places: dict[str, list[int]] = {}
    for rank in ranks:
        places.setdefault(_with_call(rank) if rank.where else tr("an unknown line"), []).append(rank.rank)
    parts = [tr("{ranks} at {where}", ranks=name_ranks(each), where=where) for where, each in places.items()]
    return tr("; ").join([*parts[:MAX_POSITIONS], *(["..."] if len(parts) > MAX_POSITIONS else [])])


def _list_lines(ranks: Sequence[RankEvidence]) -> str:
    """Write the lines at which ranks are."""
    lines = list(dict.fromkeys(_with_call(rank) for rank in ranks if rank.where is not None))
    return ", ".join(lines[:MAX_POSITIONS]) or tr("an unknown line")


def _operation(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> str:
    """Name what ranks wait in: `all_reduce #7 of group default_pg`, `recv from rank 0`, `new_group()`."""
    facts = {"operation": wait.operation, "number": wait.number, "group": _name_group(wait, by_rank)}
    if wait.peer is not None:
        if _sends(wait):
            return tr("{operation} to rank {peer}", **facts, peer=wait.peer)
        return tr("{operation} from rank {peer}", **facts, peer=wait.peer)
    if wait.call:
        return f"{wait.operation}()"
    if wait.is_pair:
        return tr("{operation} #{number} between two ranks of group {group}", **facts)
    return tr("{operation} #{number} of group {group}", **facts)


def _sends(wait: Wait) -> bool:
    return wait.operation.lower().find("send") >= 0


def _counterpart(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> str:
    """Name what missing ranks have not entered: the same, or the other half of a send or a receive."""
    if not wait.is_pair:
        return _operation(wait, by_rank)
    facts = {"operation": wait.operation, "rank": wait.waiting[0]}
    if _sends(wait):
        return tr("the recv for {operation} of rank {rank}", **facts)
    return tr("the send for {operation} of rank {rank}", **facts)


def _name_group(wait: Wait, by_rank: Mapping[int, RankEvidence]) -> str:
    """Name a group, with its ranks unless they are all."""
    group = wait.group
    if group is None:
        return ""
    if not group.members or group.about == WORLD or len(group.members) >= len(by_rank):
        return group.title
    return tr("{group} ({ranks})", group=group.title, ranks=name_ranks(group.members))


def describe_entry(entry: Entry) -> str:
    """Write an operation with sizes and types: `all_reduce Float [[1000]]`."""
    sizes = "" if entry.sizes == "[]" else entry.sizes
    return " ".join(filter(None, (entry.operation, entry.types, sizes)))
