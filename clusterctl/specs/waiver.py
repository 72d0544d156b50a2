"""A finding that somebody has looked at and lives with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """A finding that does not count; `nodes` is a pattern, `file` where the waiver was written."""

    code: str
    nodes: str
    reason: str
    file: str
