"""How a process ended and which time limit it had, in words.

A span of time has one form: `42 s`, `7m05s`, `2h05m`, `3d04h`; a second unit that is zero is left out: `10m`.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .messages.files import AloneRecord

# `alone` of a spec whose job and script distinguish no node from another.
SUSPECTED: Literal["suspected"] = "suspected"


def split_status(status: int) -> tuple[int | None, int | None]:
    """Split a wait status into exit code and signal; one of them is None."""
    number = status & 0x7F
    return (None, number) if number else ((status >> 8) & 0xFF, None)


def describe_end(code: int | None, number: int | None) -> str:
    """Describe how a process ended, after its name: `exited with 1`, `was killed by SIGKILL`."""
    if number is None and code is not None:
        return f"exited with {code}"
    return render_end(code, number) if number is None else f"was {render_end(code, number)}"


def render_end(code: int | None, number: int | None) -> str:
    """Describe how a process ended, by itself: `exit code 1`, `killed by SIGKILL`."""
    if number is not None:
        return f"killed by {signal_name(number)}"
    return "ended" if code is None else f"exit code {code}"


def signal_name(number: int) -> str:
    """Return a signal's name, e.g. SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def largest_units(seconds: float) -> tuple[tuple[str, int], ...]:
    """Split a span into its largest unit and the next one, each as (unit, count); a zero is no second unit."""
    remaining, found = max(0, round(seconds)), []
    for unit, size in _UNITS:
        count, remaining = divmod(remaining, size)
        if count:
            found.append((unit, count))
        elif found:
            break
    return tuple(found[:2]) or (("s", 0),)


def describe_duration(seconds: float) -> str:
    """Write a span in English, below a minute with the fraction that it has: `1.5 s`, `1h30m`."""
    if seconds < 60:
        return f"{seconds:g} s"
    return "".join(f"{count:02}{unit}" for unit, count in largest_units(seconds)).lstrip("0")


def describe_limit(seconds: float) -> str:
    """Return which time limit it was: `time limit of 1h30m`."""
    return f"time limit of {describe_duration(seconds)}"


STALL_TEXT = "no rank made progress for "


def describe_stall(seconds: float) -> str:
    """Return why an attempt is ended in which no rank makes progress."""
    return STALL_TEXT + describe_duration(round(seconds))


def is_stall(reason: str) -> bool:
    """Return whether a part's reason is that it was ended because no rank made progress, there or on another node."""
    return STALL_TEXT in reason[:200]


def describe_alone(alone: AloneRecord) -> str:
    """Describe of a part that succeeded that its ranks had no process group of the planned size; "" if not certain."""
    if not alone["largest"]:
        return ""
    if alone["largest"] == 1:
        return f"ran alone: no process group of {alone['planned']} was formed"
    return f"formed process groups of {alone['largest']}, planned were {alone['planned']}"
