"""What a node tells of logs that are too long, in words."""

from __future__ import annotations

from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.sizes import Size


def describe_log_event(event: Untrusted) -> str:
    """Say what happens to a node's logs; nothing for an event that is about something else."""
    kind, limit = event.one_of("event", ("logs_cut", "logs_unbounded")), event.integer("limit", 0)
    if not kind or limit is None:
        return ""
    reached = f"its logs have reached log_limit ({Size(limit)})"
    if kind == "logs_cut":
        return f"{reached}: the middle of the longest is dropped from now on"
    return f"{reached} and grow on: the middle cannot be dropped there: {event.text('why', 300)}"
