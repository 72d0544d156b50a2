"""What the proof on the wire showed: one line for people, every way for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from clusterctl.plans.neighbours import FULL
from clusterctl.plans.wire import MASTER, MESH, Wire
from clusterctl.specs.counted import counted


def render_wire(console: Console, wire: Wire | None) -> None:
    """Print the line below the findings, where there was a proof."""
    if wire is not None:
        console.print(Text(describe_wire(wire)))


def describe_wire(wire: Wire) -> str:
    """Say in one line how many ways are open and how far apart the nodes are."""
    ways = [way for rail in wire.rails for way in wire.through(MESH, rail)]
    if not ways:
        return "wire: nothing could be proved"
    good = [way for way in ways if way.open]
    share = f"all {len(ways)}" if len(good) == len(ways) else f"{len(good)} of {len(ways)}"
    sample = " (a sample)" if len(wire.nodes) > FULL else ""
    nets = f" in {len(wire.rails)} networks" if len(wire.rails) > 1 else ""
    line = (
        f"wire: {share} ways open between {counted(len(wire.nodes), 'node')}{sample}{nets}, 256 KiB both ways"
    )
    trips = sorted(way.least_rtt for way in good if way.least_rtt)
    if trips:
        line += f", round trip {_milliseconds(trips[0])} to {_milliseconds(trips[-1])} ms"
    return f"{line}; {wire.seconds:.2f} s"


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f}"


def wire_to_json(wire: Wire | None) -> dict[str, Any] | None:
    """Give every way that was tried; times in seconds, round trips in microseconds."""
    if wire is None:
        return None
    ways = [
        {
            "from": way.caller,
            "to": way.peer,
            "network": way.rail or None,
            "port": "master" if way.door == MASTER else "ephemeral",
            "open": way.open,
            "error": way.error,
            "connect": way.connect,
            "seconds": way.seconds,
            "rtt_us": way.least_rtt,
            "mss": way.mss,
            "retransmitted": way.lost,
        }
        for way in wire.ways
    ]
    return {"nodes": list(wire.nodes), "absent": dict(wire.absent), "seconds": wire.seconds, "ways": ways}
