"""Which failure of a run is the cause and which are consequences.

Which failure is the cause of a failed run, and which are only its consequences.

Decided by what the ranks said, not by who died first: a rank that raises and then cleans up for seconds dies
after the innocent ranks whose connections it closed (measured: 2.6 s after).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from clusterctl.plans.known_errors import (
    BY_SIGNAL,
    ENDED_EARLY,
    FOLLOWING,
    GPU,
    LOADERS,
    NETWORK,
    NODE,
    PROGRAM,
    STARVED,
    Grade,
    Recognised,
    Symptom,
    find_in,
)
from clusterctl.plans.runs.tracebacks import strip_rank
from clusterctl.protocol.leaver import RankEnd, find_leavers

_IN_WORDS = (*GPU, *NETWORK, *NODE, *LOADERS, *FOLLOWING, *PROGRAM)
# Other lines of stderr may speak of something that did no harm, such as a cache that could not be read.
_IN_PASSING = (*GPU, *NETWORK, *NODE[:1], *LOADERS, *FOLLOWING, *NODE[1:], *PROGRAM)
WAITED_FOR = Recognised(FOLLOWING[0])


def recognise(message: str, tail: Sequence[str], by: int | None) -> Recognised | None:
    """Name the symptom that a rank's exception shows, or else its last lines, or else the signal that ended it."""
    if message:
        return find_in(_IN_WORDS, message)
    found = find_in(_IN_PASSING, "\n".join(tail))
    if found is None and by is not None and by in BY_SIGNAL:
        return Recognised(BY_SIGNAL[by])
    return found


def restart_texts() -> tuple[tuple[str, str], ...]:
    """Give every text with the reason for which a run may be started again, the first that fits counts.

    `secondary` tells only of somebody else's failure; what is known and never tried again is `code`.
    """
    return tuple((_restart_word(symptom), symptom.pattern) for symptom in _IN_WORDS)


def _restart_word(symptom: Symptom) -> str:
    return "secondary" if symptom.grade in ("waited", "peer") else symptom.restart or "code"


def all_symptoms() -> tuple[Symptom, ...]:
    """Give every symptom by its code."""
    return tuple(
        sorted((*_IN_WORDS, *BY_SIGNAL.values(), STARVED, ENDED_EARLY), key=lambda symptom: symptom.code)
    )


SHORTEST_GRACE = 0.5  # seconds; a KILL sooner after our stop is not ours
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
LOG_LAG = 0.5  # seconds that a line may take from a rank to us
TERMINATED = 128 + signal.SIGTERM  # the exit code by which a shell or a handler tells of it
OLD = 60.0  # seconds after which an exception that was survived has nothing to do with the end
NO_ADDRESSES: Mapping[str, str] = MappingProxyType({})

# How telling the evidence is, the best first.
OWN, SUDDEN, TORCHRUN, DOUBTFUL, WAITED, PEER_GONE, STOPPED, WELL = range(8)
_GRADES: dict[Grade, int] = {"own": OWN, "doubtful": DOUBTFUL, "waited": WAITED, "peer": PEER_GONE}

_OF_TORCH = re.compile(r"torch\.|RuntimeError\b|\w*Dist\w*Error\b")
_IN_COLLECTIVE = re.compile(r"[/\\]torch[/\\]distributed[/\\]")


@dataclass(frozen=True)
class Failure:
    """One rank, one node's torchrun (rank None), or a node (`reason`), that did not end well.

    Times are seconds on the launcher's clock; `raised_at` is when the traceback of `exception` was heard, `origin`
    the first exception of its chain, `where` the file of its innermost frame, `went_on` whether the rank survived it.
    `frozen`: a signal had stopped it while it lived. `starved`: the kernel killed for want of memory there.
    `after_stop`: its node had been told to end the run before it ended; None if only the clocks can tell.
    A rank that ended with 0 is here too: it is to blame if the others still needed it.
    """

    node: str
    rank: int | None
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
    went_on: bool = False
    frozen: bool = False
    starved: bool = False
    after_stop: bool | None = None


@dataclass(frozen=True)
class Cause:
    """The failure to show first, and those that followed from it.

    `stopped`: our stop cut its clean-up short. `known`: what its text means. `awaited`: it is blamed because the
    others waited for it in vain. `left`: because they lost their connections to it, and only the stop ended it.
    `silent`: where several may be, the ranks that complained of nothing. `ended`: the consequences that are nothing
    but our stop, or torchrun's; an exit code of a rank's own is not.
    """

    failure: Failure
    consequences: tuple[Failure, ...]
    stopped: bool = False
    known: Recognised | None = None
    awaited: bool = False
    left: bool = False
    silent: tuple[Failure, ...] = ()
    ended: tuple[Failure, ...] = ()


def find_cause(
    failures: Sequence[Failure], stopped_at: float | None, addresses: Mapping[str, str] = NO_ADDRESSES
) -> Cause | None:
    """Choose the cause; what began after `stopped_at`, when we ended the run, is our own doing.

    `addresses` are the nodes' training addresses, which the ranks' words may hold.
    """
    told = [_without_old_words(_own_words(failure), stopped_at) for failure in failures]
    bad = [failure for failure in told if not _ended_well(failure)]
    if not bad:
        return None
    ordered = sorted(bad, key=lambda failure: (_weigh(failure, stopped_at, bad), _moment(failure)))
    first, weight = ordered[0], _weigh(ordered[0], stopped_at, bad)
    awaited, silent = _find_awaited(ordered, weight, stopped_at)
    early, several = _find_left(told, weight, stopped_at, addresses)
    early = None if awaited and awaited.frozen else early
    chosen = early or awaited or first
    consequences = tuple(each for each in ordered if each is not chosen and not _says_the_same(each, chosen))
    known = Recognised(ENDED_EARLY) if early else WAITED_FOR if awaited else find_symptom(chosen)
    return Cause(
        chosen,
        consequences,
        stopped=_is_our_stop(chosen, stopped_at),
        known=known,
        awaited=chosen is awaited,
        left=early is not None and _was_asked(early, stopped_at, bad),
        silent=() if early or awaited else silent or several,
        ended=tuple(
            each
            for each in consequences
            if _weigh(each, stopped_at, bad) == STOPPED and not _chose_its_code(each)
        ),
    )


def _chose_its_code(failure: Failure) -> bool:
    """Tell whether a rank ended with a code that no signal explains: it may have failed when the stop was under way."""
    return failure.rank is not None and failure.signal is None and failure.exit != TERMINATED


def _says_the_same(one: Failure, other: Failure) -> bool:
    """Tell whether two witnesses lost the same node."""
    return one.lost and other.lost and one.node == other.node


def weigh(failure: Failure, stopped_at: float | None) -> int:
    """Rank the evidence of one failure by itself: OWN, SUDDEN, TORCHRUN, and from DOUBTFUL on what may only follow."""
    return _weigh(_own_words(failure), stopped_at, ())


def _weigh(failure: Failure, stopped_at: float | None, others: Sequence[Failure]) -> int:
    if _ended_well(failure):
        return WELL
    stopped = _is_our_stop(failure, stopped_at) or _is_torchruns_stop(failure, others)
    if failure.exception:
        return _weigh_words(failure, stopped_at, stopped=stopped)
    if stopped or _left_when_asked(failure):
        return STOPPED
    grade = _grade(find_symptom(failure), failure)
    if grade != OWN:
        return grade
    return SUDDEN if failure.rank is not None or failure.reason else TORCHRUN


def _weigh_words(failure: Failure, stopped_at: float | None, *, stopped: bool) -> int:
    grade = _grade(find_symptom(failure), failure)
    if grade != OWN:
        return grade
    if stopped_at is not None and (failure.raised_at or failure.time) > stopped_at + LOG_LAG:
        return PEER_GONE
    if stopped and failure.went_on:
        return DOUBTFUL
    return OWN if failure.rank is not None else TORCHRUN


def find_symptom(failure: Failure) -> Recognised | None:
    """Name what the failure's words or ending are known to mean."""
    said = _said(failure)
    if said and not _is_of_torch(said):
        said = said.partition("\n")[0]  # what follows may be anybody's
    by = failure.signal if failure.rank is not None else None
    if failure.starved and not said:
        return Recognised(STARVED)
    return recognise(said, () if failure.reason else failure.tail, by) or _find_in_origin(failure)


def _find_in_origin(failure: Failure) -> Recognised | None:
    """Name what the first exception of a chain is known to mean, if it is the rank's own failure."""
    known = recognise(failure.origin, (), None) if failure.origin else None
    return known if known is not None and known.symptom.grade == "own" else None


def _said(failure: Failure) -> str:
    return strip_rank(failure.message or failure.exception)


def is_consequence(failure: Failure) -> bool:
    """Tell whether the last words only tell that somebody else went away or did not come."""
    return _grade(find_symptom(failure), failure) in (WAITED, PEER_GONE)


def _grade(known: Recognised | None, failure: Failure) -> int:
    """Grade a text; that a connection broke may be a plain program's own trouble, and a collective's error nobody's."""
    grade = _GRADES[known.symptom.grade] if known else OWN
    of_torch = not failure.exception or _is_of_torch(strip_rank(failure.exception))
    if grade in (WAITED, PEER_GONE) and not of_torch and failure.rank is not None:
        return DOUBTFUL
    if known is None and failure.exception and of_torch and _IN_COLLECTIVE.search(failure.where):
        return DOUBTFUL
    return grade


def _is_of_torch(said: str) -> bool:
    return bool(_OF_TORCH.match(said))


def _own_words(failure: Failure) -> Failure:
    """Of a chain of exceptions take the first, where either it or the last only tells of others."""
    if not failure.origin or failure.origin == failure.exception:
        return failure
    first = replace(failure, exception=failure.origin, message=failure.origin, where="")
    return first if is_consequence(first) or is_consequence(failure) else failure


def _without_old_words(failure: Failure, stopped_at: float | None) -> Failure:
    """Forget an exception that a rank had survived when something else ended it."""
    if not failure.went_on or failure.signal is None:
        return failure
    recent = failure.time - (failure.raised_at or failure.time) < OLD
    if recent and _is_our_stop(failure, stopped_at):
        return failure
    return replace(failure, exception="", message="", origin="", where="", raised_at=None)


# ---- ranks that say nothing ----


def _find_awaited(
    ordered: Sequence[Failure], weight: int, stopped_at: float | None
) -> tuple[Failure | None, tuple[Failure, ...]]:
    """Where all only complain of waiting, those who do not complain were waited for: one of them, or several."""
    if weight != WAITED:
        return None, ()
    silent = tuple(failure for failure in ordered if _weigh(failure, stopped_at, ordered) == STOPPED)
    suspects = [failure for failure in silent if failure.frozen] or silent
    return (suspects[0], ()) if len(suspects) == 1 else (None, silent)


def _find_left(
    told: Sequence[Failure], weight: int, stopped_at: float | None, addresses: Mapping[str, str]
) -> tuple[Failure | None, tuple[Failure, ...]]:
    """Find the rank that left while the others needed it, or several of which it may be any."""
    ranks = [failure for failure in told if failure.rank is not None]
    ends = [_as_end(failure, stopped_at, told) for failure in ranks] if weight in (WAITED, PEER_GONE) else []
    found = tuple(ranks[place] for place in find_leavers(ends, addresses))
    if weight == WAITED:  # for whom that only the stop ended, see _find_awaited
        found = tuple(failure for failure in found if not _was_asked(failure, stopped_at, told))
    return (found[0], ()) if len(found) == 1 else (None, found)


def _as_end(failure: Failure, stopped_at: float | None, told: Sequence[Failure]) -> RankEnd:
    asked = _was_asked(failure, stopped_at, told)
    complains, well = is_consequence(failure), _ended_well(failure)
    in_time = stopped_at is None or min(_moment(failure), failure.time) <= stopped_at + CLOCK_SLACK
    return RankEnd(
        failure.node,
        failure.time,
        exited_0=well,
        asked=asked,
        silent=asked and not complains and _weigh(failure, stopped_at, told) >= STOPPED,
        by_itself=failure.signal is None,
        complaint=_said(failure) or "\n".join(failure.tail) if complains and in_time and not well else "",
    )


def _was_asked(failure: Failure, stopped_at: float | None, others: Sequence[Failure]) -> bool:
    """Tell whether a rank ended after it had been told to, by us or by torchrun when another of its node had failed."""
    told = failure.after_stop
    if told is None:
        told = stopped_at is not None and failure.time >= stopped_at - CLOCK_SLACK
    return told or _is_torchruns_stop(failure, others)


def _ended_well(failure: Failure) -> bool:
    return failure.exit == 0 and failure.signal is None


def _moment(failure: Failure) -> float:
    return failure.raised_at if failure.exception and failure.raised_at is not None else failure.time


def _is_our_stop(failure: Failure, stopped_at: float | None) -> bool:
    """Tell whether our own TERM, or the KILL that follows it after the grace, ended the process (or torchrun)."""
    if stopped_at is None:
        return False
    after = failure.time - stopped_at
    if failure.rank is None and not failure.reason:
        return after >= 0
    told = after >= -CLOCK_SLACK if failure.after_stop is None else failure.after_stop
    by_term = failure.signal == signal.SIGTERM and told
    return by_term or (failure.signal == signal.SIGKILL and after >= SHORTEST_GRACE)


def _left_when_asked(failure: Failure) -> bool:
    """Tell whether a rank handles SIGTERM: it saves what it has, says nothing, and leaves with a code of its own."""
    return bool(failure.after_stop) and failure.rank is not None and failure.signal is None


def _is_torchruns_stop(failure: Failure, others: Sequence[Failure]) -> bool:
    """Tell whether torchrun ended this rank because another one of the same node had failed before."""
    if failure.signal != signal.SIGTERM and not _ended_well(failure):
        return False
    latest = failure.time + (0.0 if failure.signal is None else CLOCK_SLACK)
    return any(
        other.node == failure.node
        and other.rank is not None
        and other.signal != signal.SIGTERM
        and not _ended_well(other)
        and other.time <= latest
        for other in others
    )


def advised_command(cause: Cause, run: str) -> str:
    """Give the command that shows more about what is known of the cause; nothing if there is none."""
    if cause.known is None:
        return ""
    rank = {} if cause.failure.rank is None else {"rank": str(cause.failure.rank)}
    return cause.known.symptom.fill({**cause.known.names, **rank, "node": cause.failure.node, "run": run})


def render_ending(failure: Failure) -> str:
    """Say how it ended: `exit code 1`, `killed by SIGKILL`, or the reason."""
    if failure.signal is not None:
        return f"killed by {signal_name(failure.signal)}"
    return f"exit code {failure.exit}" if failure.exit is not None else failure.reason or "ended"


def signal_name(number: int) -> str:
    """Give a signal's name, e.g. SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
