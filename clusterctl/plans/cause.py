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

# What a healthy rank writes when another rank went away. Texts from Gloo, NCCL and the c10d store.
CONSEQUENCES = re.compile(
    r"connection closed by peer|connection reset by peer|broken pipe|connection refused, remote="
    r"|connection was likely closed|failed to recv, got 0 bytes|socket timeout"
    r"|ncclremoteerror|ncclsystemerror|nccl communicator was aborted|watchdog caught collective operation timeout"
    r"|timed out waiting \d+ms for|process group watchdog thread terminated|signalexception",
    re.IGNORECASE,
)
_RANK_MARK = re.compile(r"\[rank\d+\]: ?")  # torch puts it before every line of an uncaught traceback
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_KNOWN_ENDING = re.compile(r"(Error|Exception|Interrupt|Exit)$")


@dataclass(frozen=True)
class Failure:
    """One rank, or one node's torchrun (rank None), that did not end well; `time` on the launcher's clock."""

    node: str
    rank: int | None
    exit: int | None
    signal: int | None
    time: float
    tail: tuple[str, ...]
    reason: str = ""
    lost: bool = False


@dataclass(frozen=True)
class Cause:
    """The failure to show first, and those that followed from it; `stopped`: our stop cut its clean-up short."""

    failure: Failure
    exception: str
    consequences: tuple[Failure, ...]
    stopped: bool = False


def find_cause(failures: Sequence[Failure], stopped_at: float | None) -> Cause | None:
    """Choose the cause; a death by SIGTERM after `stopped_at` is our own doing and never the cause."""
    if not failures:
        return None
    ordered = sorted(failures, key=lambda failure: (_weight(failure, stopped_at), failure.time))
    first, rest = ordered[0], ordered[1:]
    return Cause(first, find_exception(first.tail), tuple(rest), _is_our_stop(first, stopped_at))


def _weight(failure: Failure, stopped_at: float | None) -> int:
    """Rank the kinds of evidence: 0 a rank's own words, 1 a sudden death, 2 torchrun's, 3 a consequence, 4 our stop."""
    said = find_exception(failure.tail)
    if said and not CONSEQUENCES.search(" ".join(failure.tail[-6:])):
        return 0 if failure.rank is not None else 2
    if _is_our_stop(failure, stopped_at):
        return 4
    if CONSEQUENCES.search("\n".join(failure.tail)):
        return 3
    return 1 if failure.rank is not None else 2


def _is_our_stop(failure: Failure, stopped_at: float | None) -> bool:
    """Tell whether our own TERM, or the KILL that follows it after the grace, ended the process."""
    if stopped_at is None:
        return False
    after = failure.time - stopped_at
    by_term = failure.signal == signal.SIGTERM and after >= -CLOCK_SLACK
    return by_term or (failure.signal == signal.SIGKILL and after >= SHORTEST_GRACE)


def find_exception(lines: Sequence[str]) -> str:
    """Give the last exception line of a traceback, e.g. `ValueError: no such file`, or nothing."""
    inside, found = False, ""
    for line in (_RANK_MARK.sub("", line, count=1) for line in lines):
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and (match := _EXCEPTION.match(line)) and _is_exception(match):
            found, inside = line.strip(), False
    return found


def _is_exception(match: re.Match[str]) -> bool:
    name = match[1]
    return bool(_KNOWN_ENDING.search(name)) or match[2] is not None or "." in name


def render_ending(failure: Failure) -> str:
    """Say how a process ended: `exit code 1`, `killed by SIGKILL`."""
    if failure.signal is not None:
        return f"killed by {signal_name(failure.signal)}"
    return f"exit code {failure.exit}" if failure.exit is not None else failure.reason or "ended"


def signal_name(number: int) -> str:
    """Give a signal's name, e.g. SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
