"""What the signs of life of a run mean: who stalls, how far apart the ranks began, how much time is left."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.plans.pulse import Pulse
from clusterctl.plans.spans import render_span
from clusterctl.plans.state import NodeState

QUIET_LIMIT = 600.0  # seconds without a line after which a rank may hang
BLOCKED_LIMIT = 30.0  # the same for one whose process waits in the kernel, as for a file server that is gone

Parts = Mapping[str, NodeState | None]


def find_stall(pulse: Pulse, now: float) -> str:
    """Say why a rank may hang, or nothing; `now` is by the node's clock."""
    quiet = 0.0 if pulse.written is None else now - pulse.written
    if pulse.process == "D" and quiet >= BLOCKED_LIMIT:
        return f"waits in the kernel (state D), no output for {render_span(quiet)}"
    return f"no output for {render_span(quiet)}" if quiet >= QUIET_LIMIT else ""


def find_stalls(parts: Parts, offsets: Mapping[str, float], now: float) -> dict[str, dict[int, str]]:
    """Give the ranks that may hang, by node; `offsets` are the nodes' clocks minus ours."""
    found = {
        name: {
            pulse.rank: why
            for pulse in part.pulses
            if (why := find_stall(pulse, now + offsets.get(name, 0.0)))
        }
        for name, part in parts.items()
        if part
    }
    return {name: stalls for name, stalls in found.items() if stalls}


def measure_skew(parts: Parts, offsets: Mapping[str, float]) -> float | None:
    """Give the seconds between the first and the last living rank's start; None where that is not known of two."""
    moments = [
        pulse.started - offsets.get(name, 0.0)
        for name, part in parts.items()
        for pulse in (part.pulses if part else ())
        if pulse.started is not None
    ]
    return max(moments) - min(moments) if len(moments) > 1 else None


def measure_rest(parts: Parts, offsets: Mapping[str, float], now: float) -> float | None:
    """Give the seconds that the time limit leaves a living run; None without a limit."""
    rests = [
        part.began - offsets.get(name, 0.0) + part.time_limit - now
        for name, part in parts.items()
        if part and part.live and part.began is not None and part.time_limit is not None
    ]
    return max(0.0, min(rests)) if rests else None
