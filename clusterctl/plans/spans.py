"""Spans of time in words: 42 s, 3 h 12 min."""

from __future__ import annotations

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def render_span(seconds: float) -> str:
    """Write a span in its two largest units, whole seconds: `2 d 3 h`, `1 h 30 min`, `42 s`."""
    rest = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts) or "0 s"
