"""How far the nodes are, as a value; rendered as the lines of a live display or as one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.specs.counted import counted

SHOWN = 3  # the nodes that are waited for longest
WIDEST_NAME = 24


@dataclass(frozen=True)
class Awaited:
    """A node that is not through: what it is at, for how many seconds, and the bytes it was sent so far."""

    name: str
    what: str
    seconds: float
    sent: int = 0


@dataclass(frozen=True)
class Progress:
    """Phases side by side, each with the number of nodes that are through; `awaited` has the slowest first.

    `rate` is in bytes per second; `turned` names what all do together once everybody is through.
    """

    through: Sequence[tuple[str, int]]
    total: int
    seconds: float
    awaited: Sequence[Awaited] = ()
    queued: int = 0
    failed: int = 0
    sent: int = 0
    rate: float = 0.0
    turned: str = ""


def render_lines(progress: Progress) -> list[str]:
    """Write the overall line, then the slowest nodes with what they are at."""
    shown = progress.awaited[:SHOWN]
    width = min(WIDEST_NAME, max((len(one.name) for one in shown), default=0))
    lines = [f"{_overall(progress)}  {progress.seconds:.1f} s{_freight(progress)}"]
    lines += [f"  {one.name:<{width}}  {one.seconds:5.1f} s  {_doing(one)}" for one in shown]
    if rest := _rest(progress):
        lines.append(f"  {rest}")
    elif progress.turned and not shown:
        lines.append(f"  {progress.turned}")
    return lines


def render_sentence(progress: Progress) -> str:
    """Say in one plain line what is still awaited."""
    shown = [f"{one.name} ({_doing(one)}, {one.seconds:.0f} s)" for one in progress.awaited[:SHOWN]]
    waiting = ", ".join(filter(None, [*shown, _rest(progress)]))
    text = f"{_overall(progress)} after {progress.seconds:.0f} s{_freight(progress)}"
    return "; ".join(filter(None, [text, f"waiting for {waiting}" if waiting else progress.turned]))


def _overall(progress: Progress) -> str:
    counts = "  ".join(f"{phase} {count}/{progress.total}" for phase, count in progress.through)
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{counts} {counted(progress.total, 'node').partition(' ')[2]}{failed}"


def _freight(progress: Progress) -> str:
    if not progress.sent:
        return ""
    return f"  {render_size(progress.sent)} sent, {render_size(int(progress.rate))}/s"


def _doing(one: Awaited) -> str:
    return f"{one.what}, {render_size(one.sent)} sent" if one.sent else one.what


def _rest(progress: Progress) -> str:
    more = len(progress.awaited) - len(progress.awaited[:SHOWN])
    told = [f"{more} more" if more else "", f"{progress.queued} not begun" if progress.queued else ""]
    return ", ".join(filter(None, told))


def render_size(size: int) -> str:
    """Write a number of bytes for people."""
    from rich.filesize import decimal

    return decimal(size)
