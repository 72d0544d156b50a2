"""Processes with torch imported that wait on the nodes for the next launch: what the nodes report of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clusterctl.plans.runs.state import NodeState
from clusterctl.protocol.untrusted import Untrusted

MOST_SERVERS = 1
MOST_MODULES = 100


@dataclass(frozen=True)
class WarmServer:
    """One node's; `age` and `remaining` are in seconds, `memory` is what would be free without it, in bytes."""

    pid: int
    python: str
    torch: str
    preload: tuple[str, ...]
    age: float
    remaining: float
    memory: int


def parse_warm_servers(answer: Untrusted) -> tuple[WarmServer, ...]:
    """Read a node's answer."""
    now = answer.moment("time") or 0.0
    return tuple(
        WarmServer(
            entry.count("pid"),
            entry.text("python"),
            entry.text("torch"),
            entry.texts("preload", MOST_MODULES),
            max(0.0, now - (entry.moment("since") or 0.0)),
            max(0.0, (entry.moment("until") or 0.0) - now),
            entry.count("bytes"),
        )
        for entry in answer.records("servers", MOST_SERVERS)
    )


def may_be_warm(states: Iterable[NodeState], offsets: Mapping[str, float], now: float) -> set[str]:
    """Name the nodes on which a run has left a process whose time is not up."""
    return {
        state.node
        for state in states
        if state.warm_until is not None and state.warm_until - offsets.get(state.node, 0.0) > now
    }
