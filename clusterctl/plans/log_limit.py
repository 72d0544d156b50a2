"""What a node tells of logs that are too long, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl.specs.sizes import Size


def describe_log_event(event: Mapping[str, Any]) -> str:
    """Say what happens to a node's logs; nothing for an event that is about something else."""
    kind, limit = event.get("event"), event.get("limit")
    if kind not in ("logs_cut", "logs_unbounded") or not isinstance(limit, int):
        return ""
    reached = f"its logs have reached log_limit ({Size(limit)})"
    if kind == "logs_cut":
        return f"{reached}: the middle of the longest is dropped from now on"
    return f"{reached} and grow on: the middle cannot be dropped there: {event.get('why')}"
