"""Signs of life of a run on the screen: time left, start skew, what each rank said last, and who says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterctl.console.sanitize import sanitize
from clusterctl.plans.pulse import Pulse
from clusterctl.plans.spans import render_span
from clusterctl.plans.stalls import Parts, find_stall, measure_rest, measure_skew

MOST_LINES = 16
LONGEST_LINE = 160


def render_pulse(parts: Parts, offsets: Mapping[str, float], now: float) -> str:
    """Say what is known of the whole run: `time limit 12 h, 3 h 20 min left; ranks began within 0.02 s`."""
    said = []
    limit = next((part.time_limit for part in parts.values() if part and part.time_limit), None)
    rest, skew = measure_rest(parts, offsets, now), measure_skew(parts, offsets)
    if limit is not None:
        said.append(
            f"time limit {render_span(limit)}" + ("" if rest is None else f", {render_span(rest)} left")
        )
    if skew is not None:
        said.append(f"ranks began within {skew:.2f} s")
    attempt = max((part.attempt for part in parts.values() if part), default=1)
    return "; ".join(said + ([f"attempt {attempt}"] if attempt > 1 else []))


def render_last_lines(parts: Parts) -> Iterator[str]:
    """Give the last line of each rank: `gpu02 r3 | step 1200 loss 0.31`; of many ranks those of the first."""
    spoken = [(name, pulse) for name, part in parts.items() if part for pulse in part.pulses if pulse.line]
    ordered = sorted(spoken, key=lambda pair: pair[1].rank)
    width = max((len(_label(*pair)) for pair in ordered[:MOST_LINES]), default=0)
    for name, pulse in ordered[:MOST_LINES]:
        yield f"{_label(name, pulse).ljust(width)} | {sanitize(pulse.line)[:LONGEST_LINE]}"
    if len(ordered) > MOST_LINES:
        yield f"and {len(ordered) - MOST_LINES} more ranks; --json has all"


def _label(name: str, pulse: Pulse) -> str:
    return f"{name} r{pulse.rank}"


def pulse_to_json(pulse: Pulse | None, offset: float, now: float) -> dict[str, Any]:
    """Give a rank's signs of life for `status --json`; times by our clock."""
    if pulse is None:
        return {"process": None, "last_line": None, "written": None, "stalled": None}
    return {
        "process": pulse.process or None,
        "last_line": pulse.line,
        "written": None if pulse.written is None else round(pulse.written - offset, 3),
        "stalled": find_stall(pulse, now + offset) or None,
    }
