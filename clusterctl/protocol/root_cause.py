"""The one judge of a run's end: which failure is the cause, which only follow, and whether it may be tried again.

The hub asks it for the reason of a restart (`node/gang/attempts.py`), the client for what it shows
(`plans/runs/verdict.py`). What the ranks wrote decides, not which of them ended first: a rank that raises and then
cleans up for seconds ends after the innocent ranks whose connections it closed (measured: 2.6 s after).

    OWN        an exception of the rank's own            DOUBTFUL   that, or the answer to another rank's end
    SUDDEN     killed, crashed, exited without a word    WAITED     a rank did not come, PEER_GONE: or went away
    TORCHRUN   torchrun itself failed                    STOPPED    we ended it, or torchrun did; WELL: exit code 0

The best evidence is the cause, of equals the earliest. A node that is lost goes before all of it but an exception of
a rank's own that was written while the node still answered. What reads a record is in `end_record`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from . import reasons
from .exit_status import render_end
from .frames import CLOCK_SLACK
from .known_errors import ENDED_EARLY, FOLLOWING, KILLS, OOM_KILLED, SymptomMatch, recognise
from .ranks import Rank
from .tracebacks import strip_rank

MIN_GRACE = 0.5  # seconds; a KILL sooner after our stop is not ours
LOG_LAG = 0.5  # seconds that a line may take from a rank to us
ANSWERED_AFTER_STOP = 5.0  # seconds; a node that answers so long after our stop is not why the run ended
TERMINATED = 128 + signal.SIGTERM  # the exit code by which a shell or a handler reports it
OLD = 60.0  # seconds after which an exception that was survived has nothing to do with the end
NO_ADDRESSES: Mapping[str, str] = MappingProxyType({})
WAITED_FOR = SymptomMatch(FOLLOWING[0])

OWN, SUDDEN, TORCHRUN, DOUBTFUL, WAITED, PEER_GONE, STOPPED, WELL = range(8)  # the best first
_GRADES = {"own": OWN, "doubtful": DOUBTFUL, "waited": WAITED, "peer": PEER_GONE}

_WORD = re.compile(r"\w+")
# A process, or the kernel that ended it, closed the connection. "Network error" and the like are no proof of that.
_CLOSED = re.compile(r"(closed|reset) by (remote )?peer", re.IGNORECASE)
_WAITED = re.compile(r"timed? ?out", re.IGNORECASE)
# Gloo: `Read error [10.0.0.2]:4242: ...`; c10d: `addr=[OURS]:4242, remote=[10.0.0.2]:29500`
_ADDRESS = re.compile(r"(\blocal\w*=|\baddr=)?\[([\w.:%]+)\]")
_IN_COLLECTIVE = re.compile(r"[/\\]torch[/\\]distributed[/\\]")


@dataclass(frozen=True)
class Failure:
    """One rank, one node's torchrun (rank None), or a node (`reason`), that did not end well.

    Times are seconds on the launcher's clock, or the hub's; `raised_at` is when the traceback of `exception` arrived,
    `origin` the first exception of its chain, `where` the file of its innermost frame, `own_frame` file, line and
    source of the innermost frame of the user's, `ray_task` task and address (or node) of a Ray task that raised it,
    `survived` whether the rank lived on. `suspended`: a signal had stopped
    it while it lived. `oom_killed`: the kernel killed because memory ran out.
    `after_stop`: its node had the order to end the run before it ended; None if only the clocks show it.
    `lost`: the other nodes receive nothing from the node; `cut_off`: likewise, but we do, and it reports `reason`.
    `last_seen` is the last sign of life of both, None if unknown.
    A rank that ended with 0 is here too: it is to blame if the others still needed it.
    """

    node: str
    rank: Rank | None
    exit: int | None
    signal: int | None
    time: float
    tail: tuple[str, ...] = ()
    exception: str = ""
    message: str = ""
    raised_at: float | None = None
    reason: str = ""
    lost: bool = False
    origin: str = ""
    where: str = ""
    own_frame: tuple[str, ...] = ()
    ray_task: tuple[str, ...] = ()
    survived: bool = False
    suspended: bool = False
    oom_killed: bool = False
    after_stop: bool | None = None
    cut_off: bool = False
    last_seen: float | None = None


@dataclass(frozen=True)
class Cause:
    """The failure to show first, and those that followed from it.

    `stopped`: our stop cut its clean-up short. `symptom_match`: what its text means. `waited_for`: it is blamed
    because the others waited for it. `left`: because they lost their connections to it, and only the stop
    ended it. `silent`: where several may be, the ranks that complained of nothing. `ended`: the consequences that are
    nothing but our stop, or torchrun's; an exit code of a rank's own is not. `weight`: the best evidence that there
    is.
    """

    failure: Failure
    consequences: tuple[Failure, ...]
    stopped: bool = False
    symptom_match: SymptomMatch | None = None
    waited_for: bool = False
    left: bool = False
    silent: tuple[Failure, ...] = ()
    ended: tuple[Failure, ...] = ()
    weight: int = OWN

    @property
    def is_stop(self) -> bool:
        """Return whether nothing is known but ranks that we ended."""
        return self.weight == STOPPED

    @property
    def is_doubtful(self) -> bool:
        """Return whether all that is known may only follow from something else."""
        return self.weight >= DOUBTFUL and not self.failure.lost

    @property
    def has_left(self) -> bool:
        """Return whether it is blamed because it ended while the others still needed it."""
        return self.symptom_match is not None and self.symptom_match.symptom == ENDED_EARLY


def restart_reason(cause: Cause) -> str:
    """Return why a run that ended so may be started again, a word of `restart.on`; CODE if that would not help."""
    failure = cause.failure
    if failure.lost or failure.cut_off:
        return reasons.NODE_LOST
    if cause.is_stop:
        return reasons.CODE
    if failure.reason:
        return reasons.AGENT_KILLED
    if cause.symptom_match is not None or failure.signal is None or failure.exception:
        return reason_of(cause.symptom_match)
    return reasons.AGENT_KILLED if failure.rank is None else reasons.WORKER_CRASHED


def reason_of(known: SymptomMatch | None) -> str:
    """Return for which reason a known text lets a run be started again; CODE for one that is not known."""
    if known is None:
        return reasons.CODE
    return reasons.NETWORK if known.symptom.follows else known.symptom.restart or reasons.CODE


def find_cause(
    failures: Sequence[Failure], stopped_at: float | None, addresses: Mapping[str, str] = NO_ADDRESSES
) -> Cause | None:
    """Choose the cause; what began after `stopped_at`, when we ended the run, is our own doing.

    `addresses` are the nodes' training addresses, which the ranks' words may hold.
    """
    weighted = _with_weights(
        [_without_old_exception(_own_output(each), stopped_at) for each in failures], stopped_at
    )
    ordered = sorted((each for each in weighted if each.weight != WELL), key=lambda each: each.order)
    if not ordered:
        return None
    lost = _find_lost(ordered, stopped_at)
    first = lost or ordered[0]
    awaited, silent = _find_waited_for(ordered, first.weight)
    early, several = _find_left(weighted, first.weight, stopped_at, addresses)
    early = None if awaited and awaited.failure.suspended else early
    chosen = early or awaited or first
    followed = [each for each in ordered if each is not chosen and not _has_same_message(each, chosen)]
    return Cause(
        chosen.failure,
        tuple(each.failure for each in followed),
        stopped=_is_our_stop(chosen.failure, stopped_at),
        symptom_match=SymptomMatch(ENDED_EARLY) if early else WAITED_FOR if awaited else chosen.known,
        waited_for=chosen is awaited,
        left=early is not None and early.asked,
        silent=() if early or awaited else tuple(each.failure for each in silent or several),
        ended=tuple(
            each.failure for each in followed if each.weight == STOPPED and not _chose_its_code(each.failure)
        ),
        weight=first.weight,
    )


def _chose_its_code(failure: Failure) -> bool:
    """Return whether no signal explains a rank's exit code: it may have failed when the stop was under way."""
    return failure.rank is not None and failure.signal is None and failure.exit != TERMINATED


def weight_of(failure: Failure, stopped_at: float | None) -> int:
    """Rank the evidence of one failure by itself: OWN, SUDDEN, TORCHRUN, and from DOUBTFUL on what may only follow."""
    return _with_weights([_own_output(failure)], stopped_at)[0].weight


# ---- the weight of one failure ----


@dataclass(frozen=True, eq=False)
class _Weighted:
    """A failure, what its words mean, how much they say, and whether it ended after the order to end."""

    failure: Failure
    known: SymptomMatch | None
    weight: int
    asked: bool

    @property
    def moment(self) -> float:
        """Return when it failed, as far as that is known."""
        failure = self.failure
        return failure.raised_at if failure.exception and failure.raised_at is not None else failure.time

    @property
    def order(self) -> tuple[int, float]:
        """Return the place in the order of blame."""
        return self.weight, self.moment


def _with_weights(failures: Sequence[Failure], stopped_at: float | None) -> list[_Weighted]:
    """Weigh each failure once: there may be thousands, and the hub has other things to do."""
    first_ends: dict[str, float] = {}  # by node: when the first rank ended that torchrun did not end
    agent_ends: dict[str, float] = {}  # by node: when torchrun, the agent or its guardian was killed
    for each in failures:
        if each.rank is not None and each.signal != signal.SIGTERM and not _ended_well(each):
            first_ends[each.node] = min(each.time, first_ends.get(each.node, each.time))
        if each.reason and not each.lost:
            agent_ends[each.node] = min(each.time, agent_ends.get(each.node, each.time))
    weighed = []
    for each in failures:
        known = find_symptom(each)
        by_torchrun = _is_torchruns_stop(each, first_ends) or _ended_with_agent(each, agent_ends)
        stopped = by_torchrun or _is_our_stop(each, stopped_at)
        asked = by_torchrun or _was_stopped(each, stopped_at)
        weighed.append(_Weighted(each, known, _weight(each, known, stopped_at, stopped=stopped), asked))
    return weighed


def _weight(failure: Failure, known: SymptomMatch | None, stopped_at: float | None, *, stopped: bool) -> int:
    if _ended_well(failure):
        return WELL
    if not failure.exception and (stopped or _left_when_asked(failure)):
        return STOPPED
    grade = _grade(known, failure)
    if grade != OWN:
        return grade
    if failure.exception:
        return _exception_weight(failure, stopped_at, stopped=stopped)
    return SUDDEN if failure.rank is not None or failure.reason else TORCHRUN


def _exception_weight(failure: Failure, stopped_at: float | None, *, stopped: bool) -> int:
    if stopped_at is not None and (failure.raised_at or failure.time) > stopped_at + LOG_LAG:
        return PEER_GONE
    if stopped and failure.survived:
        return DOUBTFUL
    return OWN if failure.rank is not None else TORCHRUN


def find_symptom(failure: Failure) -> SymptomMatch | None:
    """Name what the failure's words or ending are known to mean."""
    said = _message_of(failure)
    if said and not _is_of_torch(said):
        said = said.partition("\n")[0]  # what follows may be anybody's
    if failure.oom_killed and not said:
        return SymptomMatch(OOM_KILLED)
    # by the signal of torchrun nothing is known, but what it wrote before a KILL is not why
    if failure.rank is None:
        tail = () if failure.reason or failure.signal in KILLS else failure.tail
        return recognise(said, tail, None) or _find_in_origin(failure)
    source = failure.own_frame[2] if len(failure.own_frame) > 2 else ""
    return recognise(said, failure.tail, failure.signal, source) or _find_in_origin(failure)


def _find_in_origin(failure: Failure) -> SymptomMatch | None:
    """Name what the first exception of a chain is known to mean, if it is the rank's own failure."""
    known = recognise(failure.origin, (), None) if failure.origin else None
    return known if known is not None and known.symptom.grade == "own" else None


def _message_of(failure: Failure) -> str:
    return strip_rank(failure.message or failure.exception)


def is_consequence(failure: Failure) -> bool:
    """Return whether the last words only report that another rank went away or did not come."""
    return _grade(find_symptom(failure), failure) in (WAITED, PEER_GONE)


def _grade(known: SymptomMatch | None, failure: Failure) -> int:
    """Grade a text; that a connection broke may be a plain program's own error, and a collective's error no rank's."""
    grade = _GRADES.get(known.symptom.grade, OWN) if known else OWN
    of_torch = not failure.exception or _is_of_torch(strip_rank(failure.exception))
    if grade in (WAITED, PEER_GONE) and not of_torch and failure.rank is not None:
        return DOUBTFUL
    if known is None and failure.exception and of_torch and _IN_COLLECTIVE.search(failure.where):
        return DOUBTFUL
    return grade


def _is_of_torch(message: str) -> bool:
    found = _WORD.match(message)
    word = found[0] if found else ""
    return (
        word == "RuntimeError"
        or message.startswith("torch.")
        or (word.endswith("Error") and "Dist" in word[: -len("Error")])
    )


def _own_output(failure: Failure) -> Failure:
    """Of a chain of exceptions take the first, where either it or the last only reports others."""
    if not failure.origin or failure.origin == failure.exception:
        return failure
    first = replace(failure, exception=failure.origin, message=failure.origin, where="")
    return first if is_consequence(first) or is_consequence(failure) else failure


def _without_old_exception(failure: Failure, stopped_at: float | None) -> Failure:
    """Forget an exception that a rank had survived when something else ended it."""
    if not failure.survived or failure.signal is None:
        return failure
    recent = failure.time - (failure.raised_at or failure.time) < OLD
    if recent and _is_our_stop(failure, stopped_at):
        return failure
    return replace(failure, exception="", message="", origin="", where="", raised_at=None)


def _ended_well(failure: Failure) -> bool:
    return failure.exit == 0 and failure.signal is None


def _was_stopped(failure: Failure, stopped_at: float | None) -> bool:
    """Return whether a rank ended after its node had the order to end the run."""
    if failure.after_stop is not None:
        return failure.after_stop
    return stopped_at is not None and failure.time >= stopped_at - CLOCK_SLACK


def _is_our_stop(failure: Failure, stopped_at: float | None) -> bool:
    """Return whether our own TERM, or the KILL that follows it after the grace, ended the process (or torchrun)."""
    if stopped_at is None:
        return False
    after = failure.time - stopped_at
    if failure.rank is None and not failure.reason:
        return after >= 0
    by_term = failure.signal == signal.SIGTERM and _was_stopped(failure, stopped_at)
    return by_term or (failure.signal == signal.SIGKILL and after >= MIN_GRACE)


def _left_when_asked(failure: Failure) -> bool:
    """Return whether a rank handles SIGTERM: it saves what it has, writes nothing, and exits with a code of its own."""
    return bool(failure.after_stop) and failure.rank is not None and failure.signal is None


def _is_torchruns_stop(failure: Failure, first_ends: Mapping[str, float]) -> bool:
    """Return whether torchrun ended this rank because another one of the same node had failed before."""
    if failure.signal != signal.SIGTERM and not _ended_well(failure):
        return False
    latest = failure.time + (0.0 if failure.signal is None else CLOCK_SLACK)
    return first_ends.get(failure.node, float("inf")) <= latest


def _ended_with_agent(failure: Failure, agent_ends: Mapping[str, float]) -> bool:
    """Return whether a rank was killed because nothing looked after it any more."""
    by_kill = failure.rank is not None and failure.signal in KILLS
    return by_kill and agent_ends.get(failure.node, float("inf")) <= failure.time + CLOCK_SLACK


# ---- nodes that are gone ----


def _find_lost(ordered: Sequence[_Weighted], stopped_at: float | None) -> _Weighted | None:
    """Find the node whose loss is the cause, unless a rank had failed by itself while the node still answered.

    A node that answered long after the stop is judged like any other failure: it was given up because it did not end.
    """
    lost = [each for each in ordered if each.failure.lost or each.failure.cut_off]
    first = min(lost, key=_last_sign, default=None)
    if first is None:
        return None
    seen = first.failure.last_seen
    if seen is not None and stopped_at is not None and seen > stopped_at + ANSWERED_AFTER_STOP:
        return None
    others = [each for each in ordered if not (each.failure.lost or each.failure.cut_off)]
    own = any(each.weight == OWN and _was_raised_before(each.failure, seen) for each in others)
    return None if own else first


def _last_sign(lost: _Weighted) -> float:
    return lost.failure.time if lost.failure.last_seen is None else lost.failure.last_seen


def _was_raised_before(failure: Failure, moment: float | None) -> bool:
    """Return whether an exception was certainly written before; one that the rank survived may be any time's."""
    if moment is None or not failure.raised_at or failure.survived:
        return False
    return failure.raised_at < moment


def _has_same_message(one: _Weighted, other: _Weighted) -> bool:
    """Return whether both say that the same node is lost."""
    return one.failure.lost and other.failure.lost and one.failure.node == other.failure.node


# ---- ranks that say nothing ----


def _find_waited_for(
    ordered: Sequence[_Weighted], weight: int
) -> tuple[_Weighted | None, tuple[_Weighted, ...]]:
    """Where all only complain of waiting, those who do not complain were waited for: one of them, or several."""
    if weight != WAITED:
        return None, ()
    silent = tuple(each for each in ordered if each.weight == STOPPED)
    suspects = [each for each in silent if each.failure.suspended] or silent
    return (suspects[0], ()) if len(suspects) == 1 else (None, silent)


def _find_left(
    weighted: Sequence[_Weighted], weight: int, stopped_at: float | None, addresses: Mapping[str, str]
) -> tuple[_Weighted | None, tuple[_Weighted, ...]]:
    """Find the rank that left while the others needed it, or several of which it may be any."""
    ranks = [each for each in weighted if each.failure.rank is not None]
    ends = [_as_end(each, stopped_at) for each in ranks] if weight in (WAITED, PEER_GONE) else []
    found = tuple(ranks[index] for index in find_leavers(ends, addresses))
    if weight == WAITED:  # for whom that only the stop ended, see _find_waited_for
        found = tuple(each for each in found if not each.asked)
    return (found[0], ()) if len(found) == 1 else (None, found)


def _as_end(each: _Weighted, stopped_at: float | None) -> RankEnd:
    failure = each.failure
    complaint, well = _complaint(each), _ended_well(failure)
    in_time = stopped_at is None or min(each.moment, failure.time) <= stopped_at + CLOCK_SLACK
    return RankEnd(
        failure.node,
        failure.time,
        exited_0=well,
        asked=each.asked,
        silent=each.asked and not complaint and each.weight >= STOPPED,
        by_itself=failure.signal is None,
        complaint=complaint if in_time and not well else "",
    )


class RankEnd(NamedTuple):
    """How a rank ended.

    `asked`: it had been stopped before, by clusterctl or torchrun. `silent`: it ended for that reason alone, and
    reported nothing. `by_itself`: it ended with a code of its own, so it may have worked until it was asked.
    `complaint`: what it reported of another rank, before the stop.
    """

    node: str
    time: float
    exited_0: bool = False
    asked: bool = False
    silent: bool = False
    by_itself: bool = False
    complaint: str = ""


def find_leavers(ranks: Sequence[RankEnd], addresses: Mapping[str, str]) -> tuple[int, ...]:
    """Return the index of the rank that left first; several where any of one node's may be it, none if unknown.

    `addresses` are the nodes' training addresses. Exit code 0 without being asked is proof, however long the process
    took to end; else a single silent rank is meant by all the others.
    """
    complaints = [rank.complaint for rank in ranks if rank.complaint]
    accused = [_named_nodes(complaint, addresses) for complaint in complaints]
    nodes: frozenset[str] = frozenset().union(*accused)
    left = [index for index, rank in enumerate(ranks) if rank.exited_0 and not rank.asked]
    if left:
        known = all(accused) and len(complaints) == sum(not rank.exited_0 for rank in ranks)
        on_named = [index for index in left if ranks[index].node in nodes]
        others = known and all(ranks[index].node in addresses for index in left)
        left = on_named or ([] if others else left)
        return (min(left, key=lambda index: ranks[index].time),) if left else ()
    if not any(map(_CLOSED.search, complaints)) or any(map(_WAITED.search, complaints)):
        return ()
    silent: list[int] = [index for index, rank in enumerate(ranks) if rank.silent and _may_be(rank, nodes)]
    alone = len(silent) == 1 or (nodes and len({ranks[index].node for index in silent}) == 1)
    return tuple(silent) if alone else ()


def _may_be(rank: RankEnd, nodes: frozenset[str]) -> bool:
    return rank.node in nodes if nodes else not rank.by_itself


def _named_nodes(complaint: str, addresses: Mapping[str, str]) -> frozenset[str]:
    """Name the nodes whose address a complaint holds, but for the complaining rank's own end of the connection."""
    found = {text for own, text in _ADDRESS.findall(complaint) if not own}
    return frozenset(node for node, address in addresses.items() if address and address in found)


def _complaint(each: _Weighted) -> str:
    """Return what a rank wrote of others that went away or did not come, also in the last lines before a signal."""
    failure, known = each.failure, each.known
    if failure.signal in KILLS and not failure.exception:
        known = find_symptom(replace(failure, signal=None))
    follows = _grade(known, failure) in (WAITED, PEER_GONE)
    return _message_of(failure) or "\n".join(failure.tail) if follows else ""


def render_ending(failure: Failure) -> str:
    """Describe how it ended: `exit code 1`, `killed by SIGKILL`, or the reason that its node gave."""
    if failure.signal is None and failure.exit is None and failure.reason:
        return failure.reason
    return render_end(failure.exit, failure.signal)
