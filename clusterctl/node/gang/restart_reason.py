"""Why an attempt ended: the reason by which the hub decides whether to try again, judged as the client judges.

The judge is `protocol/root_cause.py`. It is loaded only when an attempt has ended badly: an agent that is starting, or
whose run is not started again, does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, NamedTuple

from ...protocol.reasons import CODE
from ...protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from ...protocol.end_record import Record
    from ...protocol.root_cause import Cause

LONGEST_TEXT = 300  # characters


class Blame(NamedTuple):
    """Why it ended: a word of the job's `restart.on`, or "code"; on which node; a line for people."""

    reason: str
    node: str
    text: str


def blame(record: Dict[str, Any]) -> Blame:
    """Choose the failure of a gang's record that the others follow from."""
    from ...protocol.end_record import parse_record  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import find_cause, restart_reason  # noqa: PLC0415, RUF100 - see above

    told = parse_record(Untrusted(record))
    if told is None:
        return Blame(CODE, "", "")
    cause = find_cause(told.failures, told.stopped_at, told.addresses)
    if cause is None or cause.is_stop:
        return _without_failures(told)
    return Blame(restart_reason(cause), cause.failure.node, _describe(cause))


def _without_failures(told: Record) -> Blame:
    """Read the reason out of what the nodes themselves report, where no process failed."""
    from ...protocol.known_errors import recognise  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import reason_of  # noqa: PLC0415, RUF100 - see above

    for part in told.parts:
        if part.state in ("FAILED", "FAILED_SETUP"):
            known = recognise(part.reason, (), None)
            return Blame(reason_of(known), part.node, f"{part.node}: {part.reason}")
    bad = [part for part in told.parts if part.state != "SUCCEEDED"]
    return Blame(CODE, bad[0].node if bad else "", bad[0].reason if bad else "")


def _describe(cause: Cause) -> str:
    """Describe it in a line: `rank 1 on gpu02, killed by SIGKILL`."""
    from ...protocol.root_cause import render_ending  # noqa: PLC0415, RUF100 - see above
    from ...protocol.tracebacks import strip_rank  # noqa: PLC0415, RUF100 - see above

    failure = cause.failure
    who = f"rank {failure.rank} on {failure.node}" if failure.rank is not None else failure.node
    if failure.lost:
        return f"{who} is lost"
    if cause.awaited:
        return f"{who} did not come, the others waited for it"
    if cause.has_left:
        return f"{who} left while the others still needed it"
    if failure.exception:
        return f"{who}: {strip_rank(failure.exception)}"[:LONGEST_TEXT]
    if failure.reason:
        return f"{who}: {failure.reason}"
    return f"{who if failure.rank is not None else f'torchrun on {who}'}, {render_ending(failure)}"
