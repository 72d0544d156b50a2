"""Deep check, mesh test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from clusterctl.plans.checks.collective import render_rate, render_time
from clusterctl.plans.diagnose.collective import Deep, Group, bus_bandwidth
from clusterctl.plans.diagnose.mesh import MASTER, MESH, Wire
from clusterctl.plans.facts.facts import FULL
from clusterctl.specs.text import counted

TELLING = 64 << 10  # bytes; less shows the latency, and no bandwidth


def render_deep(console: Console, deep: Deep | None) -> None:
    """Print a line per size of the all_reduce of all nodes, and how far the pairs lie apart."""
    if deep is None:
        console.print("deep check: not done; first mend what forbids a launch")
        return
    whole = deep.whole
    if whole is not None and not whole.ok:
        console.print(f"deep check: all_reduce of {counted(whole.ranks, 'rank')} failed")
    elif whole is not None:
        console.print(
            f"deep check: all_reduce of {counted(whole.ranks, 'rank')} on {counted(len(whole.nodes), 'node')}"
        )
        for size, seconds in whole.rows:
            width = bus_bandwidth(size, seconds, whole.ranks)
            rate = f"{render_rate(width)} on the bus" if size >= TELLING and width else ""
            console.print(f"{_size(size):>10}  {render_time(seconds):>9}  {rate}".rstrip())
        _render_pairs(console, deep)


def _render_pairs(console: Console, deep: Deep) -> None:
    pairs = [group for group in deep.pairs if group.ok]
    if pairs:
        least, most = (bound(pairs, key=_width) for bound in (min, max))
        console.print(f"  of {counted(len(pairs), 'pair')}: {_tell(deep, least)} to {_tell(deep, most)}")


def _width(group: Group) -> float:
    return group.bandwidth


def _tell(deep: Deep, group: Group) -> str:
    names = " - ".join(deep.name(number) for number in group.nodes)
    return f"{render_rate(group.bandwidth)} ({names})"


def _size(size: float) -> str:
    for unit, step in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:g} {unit}"
    return f"{size:g} B"


def deep_to_json(deep: Deep | None) -> dict[str, Any]:
    """Give the deep check's place in `check --json`, nodes by name; nothing where there was none."""
    return {"deep": _to_json(deep)} if deep else {}


def _to_json(deep: Deep) -> dict[str, Any]:

    def named(numbers: Sequence[int]) -> list[str]:
        return [deep.name(number) for number in numbers]

    found = deep.found
    return {
        "backend": deep.backend,
        "ranks": deep.ranks,
        "trouble": deep.trouble or None,
        "rounds": [
            {
                "kind": one.kind,
                "seconds": one.seconds,
                "groups": [{**asdict(group), "nodes": named(group.nodes)} for group in one.groups],
            }
            for one in deep.rounds
        ],
        "found": found
        and {
            "ok": found.ok,
            "nodes": named(found.nodes),
            "links": [named(link) for link in found.links],
            "slow_nodes": named(found.slow_nodes),
            "slow_links": [named(link) for link in found.slow_links],
            "rest": found.rest,
        },
    }


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
