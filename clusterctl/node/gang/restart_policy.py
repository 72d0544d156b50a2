"""When a run that has ended badly is started again: for which reasons, how often, and after which pause.

Why an attempt ended is judged as the client judges, by `protocol/root_cause.py`. It is loaded only when an attempt has
ended badly: an agent that is starting, or whose run is not started again, does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence, Tuple

from ...protocol.exit_status import is_stall
from ...protocol.messages.gang import MAX_RESTARTS, REASON
from ...protocol.reasons import CODE, STALLED
from ...protocol.untrusted import Untrusted
from .timeouts import LONGEST_PAUSE

if TYPE_CHECKING:
    from ...protocol.end_record import EndRecord
    from ...protocol.messages.files import AttemptEnd, GangRecord, RestartSpec
    from ...protocol.root_cause import Cause


MOST_WITHOUT_PROGRESS = 3  # attempts in a row without progress
WARM_SECONDS = 5.0
FIRST_PAUSE = 1.0  # seconds; each is twice the one before


class Policy(NamedTuple):
    """When a run is started again, as the job says."""

    max_restarts: int
    on: Tuple[str, ...]
    progress: str
    pause: float  # seconds before the first restart
    warm: float  # of these the last, in which gates may import torch already
    never: bool = False  # of a run whose job does not mention restarts

    def pause_before(self, restart: int) -> float:
        """Return the seconds before the first, second ... restart."""
        return min(LONGEST_PAUSE, self.pause * 2.0 ** (restart - 1))

    def refuse(self, reason: str, restarts: int) -> Optional[str]:
        """Return why an attempt that ended for a reason is the last, after so many restarts; None if it need not be."""
        if reason not in self.on:
            return CODE if reason == CODE else REASON
        return MAX_RESTARTS if restarts >= self.max_restarts else None

    def lacks_progress(self, history: Sequence[AttemptEnd], entry: AttemptEnd) -> bool:
        """Whether this attempt is one too many without progress, after those before it."""
        before = [other for other in history if other["attempt"] != entry["attempt"]]
        last = [*before, entry][-MOST_WITHOUT_PROGRESS:]
        return len(last) == MOST_WITHOUT_PROGRESS and all(other["progress"] is False for other in last)


NEVER = Policy(0, (), "", 0.0, 0.0, never=True)


def read_policy(spec: RestartSpec) -> Policy:
    """Read the spec's `restart`."""
    progress, pause = spec.get("progress") or "**", float(spec.get("pause") or FIRST_PAUSE)
    return Policy(spec["max"], tuple(spec["on"]), progress, pause, float(spec.get("warm", WARM_SECONDS)))


LONGEST_TEXT = 300  # characters


class RestartReason(NamedTuple):
    """Why it ended: a word of the job's `restart.on`, or "code"; on which node; a line for people."""

    reason: str
    node: str
    text: str


def judge_record(record: GangRecord) -> RestartReason:
    """Choose the failure of a gang's record that the others follow from."""
    from ...protocol.end_record import parse_record  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import find_cause, restart_reason  # noqa: PLC0415, RUF100 - see above

    end_record = parse_record(Untrusted(record))
    if end_record is None:
        return RestartReason(CODE, "", "")
    cause = find_cause(end_record.failures, end_record.stopped_at, end_record.addresses)
    stalled = next((part for part in end_record.parts if is_stall(part.reason)), None)
    if stalled is not None and (cause is None or cause.is_doubtful):
        return RestartReason(STALLED, stalled.node, stalled.reason)
    if cause is None or cause.is_stop:
        return _without_failures(end_record)
    return RestartReason(restart_reason(cause), cause.failure.node, _describe(cause))


def _without_failures(end_record: EndRecord) -> RestartReason:
    """Read the reason out of what the nodes themselves report, where no process failed."""
    from ...protocol.known_errors import recognise  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import reason_of  # noqa: PLC0415, RUF100 - see above

    for part in end_record.parts:
        if part.state in ("FAILED", "FAILED_SETUP"):
            known = recognise(part.reason, (), None)
            return RestartReason(reason_of(known), part.node, f"{part.node}: {part.reason}")
    bad = [part for part in end_record.parts if part.state != "SUCCEEDED"]
    return RestartReason(CODE, bad[0].node if bad else "", bad[0].reason if bad else "")


def _describe(cause: Cause) -> str:
    """Describe it in a line: `rank 1 on gpu02, killed by SIGKILL`."""
    from ...protocol.root_cause import render_ending  # noqa: PLC0415, RUF100 - see above
    from ...protocol.tracebacks import strip_rank  # noqa: PLC0415, RUF100 - see above

    failure = cause.failure
    subject = f"rank {failure.rank} on {failure.node}" if failure.rank is not None else failure.node
    if failure.lost:
        return f"{subject} is lost"
    if cause.waited_for:
        return f"{subject} did not respond; the others waited for it"
    if cause.has_left:
        return f"{subject} left while the others still needed it"
    if failure.exception:
        return f"{subject}: {strip_rank(failure.exception)}"[:LONGEST_TEXT]
    if failure.reason:
        return f"{subject}: {failure.reason}"
    return f"{subject if failure.rank is not None else f'torchrun on {subject}'}, {render_ending(failure)}"
