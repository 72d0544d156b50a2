"""Which failure is the cause of a failed run, and which are only its consequences.

Decided by what the ranks said, not by who died first: a rank that raises and then cleans up for seconds dies
after the innocent ranks whose connections it closed (measured: 2.6 s after).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

TAIL_LINES = 20
SHORTEST_GRACE = 0.5  # seconds; a KILL sooner after our stop is not ours
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
LOG_LAG = 0.5  # seconds that a line may take from a rank to us

# What a healthy rank writes when another rank went away. Texts from Gloo, NCCL and the c10d store.
CONSEQUENCES = re.compile(
    r"connection closed by peer|connection reset by peer|broken pipe|connection refused, remote="
    r"|connection was likely closed|failed to recv, got 0 bytes|socket timeout|remote worker crashing"
    r"|ncclremoteerror|ncclsystemerror|nccl communicator was aborted|watchdog caught collective operation timeout"
    r"|timed out waiting \d+ms for|process group watchdog thread terminated|signalexception",
    re.IGNORECASE,
)
_RANK_MARK = re.compile(r"\[rank\d+\]: ?")  # torch puts it before every line of an uncaught traceback
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_USUAL_NAME = re.compile(r"(Error|Exception|Interrupt|Exit)$")
_WITHOUT_TRACEBACK = re.compile(r"(SyntaxError|IndentationError|TabError): ")


@dataclass(frozen=True)
class Failure:
    """One rank, one node's torchrun (rank None), or a node (`reason`), that did not end well.

    Times are seconds on the launcher's clock; `raised_at` is when the traceback of `exception` was heard.
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


@dataclass(frozen=True)
class Cause:
    """The failure to show first, and those that followed from it; `stopped`: our stop cut its clean-up short."""

    failure: Failure
    consequences: tuple[Failure, ...]
    stopped: bool = False


def find_cause(failures: Sequence[Failure], stopped_at: float | None) -> Cause | None:
    """Choose the cause; what began after `stopped_at`, when we ended the run, is our own doing."""
    if not failures:
        return None
    ordered = sorted(failures, key=lambda failure: (weigh(failure, stopped_at), _moment(failure)))
    return Cause(ordered[0], tuple(ordered[1:]), _is_our_stop(ordered[0], stopped_at))


def weigh(failure: Failure, stopped_at: float | None) -> int:
    """Rank the evidence: 0 a rank's own words, 1 a sudden death, 2 torchrun's words, 3 a consequence, 4 our stop."""
    if failure.exception and not is_consequence(failure):
        late = stopped_at is not None and (failure.raised_at or failure.time) > stopped_at + LOG_LAG
        return 3 if late else 0 if failure.rank is not None else 2
    if _is_our_stop(failure, stopped_at):
        return 4
    if is_consequence(failure):
        return 3
    return 1 if failure.rank is not None or failure.reason else 2


def is_consequence(failure: Failure) -> bool:
    """Tell whether the last words only tell that somebody else went away."""
    return bool(CONSEQUENCES.search(failure.message or "\n".join(failure.tail)))


def _moment(failure: Failure) -> float:
    return failure.raised_at if failure.exception and failure.raised_at is not None else failure.time


def _is_our_stop(failure: Failure, stopped_at: float | None) -> bool:
    """Tell whether our own TERM, or the KILL that follows it after the grace, ended the process."""
    if stopped_at is None:
        return False
    after = failure.time - stopped_at
    by_term = failure.signal == signal.SIGTERM and after >= -CLOCK_SLACK
    return by_term or (failure.signal == signal.SIGKILL and after >= SHORTEST_GRACE)


def starts_traceback(line: str) -> bool:
    """Tell whether a line of stderr begins a Python traceback."""
    return "Traceback (most recent call last)" in line


def is_exception_line(line: str, *, inside: bool) -> bool:
    """Tell whether a line ends a traceback by naming the exception; syntax errors come without a traceback."""
    bare = strip_rank(line)
    if _WITHOUT_TRACEBACK.match(bare):
        return True
    match = _EXCEPTION.match(bare) if inside else None
    return match is not None and bool(_USUAL_NAME.search(match[1]) or match[2] is not None or "." in match[1])


def strip_rank(line: str) -> str:
    """Drop torch's `[rank1]: ` from the beginning of a line."""
    return _RANK_MARK.sub("", line, count=1)


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
