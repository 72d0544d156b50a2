"""Deep check, mesh test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from clusterctl.plans.checks.collective import render_rate, render_time
from clusterctl.plans.diagnose.collective import DeepCheckResult, Group, bus_bandwidth
from clusterctl.plans.diagnose.mesh import MASTER, MESH, MeshResult
from clusterctl.plans.facts.facts import FULL_MESH_LIMIT
from clusterctl.specs.text import plural

BANDWIDTH_FROM = 64 << 10  # bytes; less shows the latency, and no bandwidth


def render_deep(console: Console, deep: DeepCheckResult | None) -> None:
    """Print a line per size of the all_reduce of all nodes, and how far the pairs lie apart."""
    if deep is None:
        console.print("deep check: not done; first mend what forbids a launch")
        return
    all_nodes = deep.full_group
    if all_nodes is not None and not all_nodes.ok:
        console.print(f"deep check: all_reduce of {plural(all_nodes.ranks, 'rank')} failed")
    elif all_nodes is not None:
        console.print(
            f"deep check: all_reduce of {plural(all_nodes.ranks, 'rank')} on {plural(len(all_nodes.nodes), 'node')}"
        )
        for size, seconds in all_nodes.rows:
            bandwidth = bus_bandwidth(size, seconds, all_nodes.ranks)
            rate = f"{render_rate(bandwidth)} on the bus" if size >= BANDWIDTH_FROM and bandwidth else ""
            console.print(f"{_render_bytes(size):>10}  {render_time(seconds):>9}  {rate}".rstrip())
        _render_pairs(console, deep)


def _render_pairs(console: Console, deep: DeepCheckResult) -> None:
    pairs = [group for group in deep.pairs if group.ok]
    if pairs:
        slowest, fastest = (choose(pairs, key=_bandwidth) for choose in (min, max))
        console.print(
            f"  of {plural(len(pairs), 'pair')}: {_describe_group(deep, slowest)} to {_describe_group(deep, fastest)}"
        )


def _bandwidth(group: Group) -> float:
    return group.bandwidth


def _describe_group(deep: DeepCheckResult, group: Group) -> str:
    names = " - ".join(deep.name(node_index) for node_index in group.nodes)
    return f"{render_rate(group.bandwidth)} ({names})"


def _render_bytes(size: float) -> str:
    for unit, unit_size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit_size:
            return f"{size / unit_size:g} {unit}"
    return f"{size:g} B"


def deep_to_json(deep: DeepCheckResult | None) -> dict[str, Any]:
    """Give the deep check's place in `check --json`, nodes by name; nothing where there was none."""
    return {"deep": _deep_to_json(deep)} if deep else {}


def _deep_to_json(deep: DeepCheckResult) -> dict[str, Any]:

    def node_names(node_indices: Sequence[int]) -> list[str]:
        return [deep.name(node_index) for node_index in node_indices]

    conclusion = deep.diagnosis
    return {
        "backend": deep.backend,
        "ranks": deep.ranks,
        "trouble": deep.trouble or None,
        "rounds": [
            {
                "kind": round_result.kind,
                "seconds": round_result.seconds,
                "groups": [
                    {**asdict(group), "nodes": node_names(group.nodes)} for group in round_result.groups
                ],
            }
            for round_result in deep.rounds
        ],
        "found": conclusion
        and {
            "ok": conclusion.ok,
            "nodes": node_names(conclusion.nodes),
            "links": [node_names(link) for link in conclusion.links],
            "slow_nodes": node_names(conclusion.slow_nodes),
            "slow_links": [node_names(link) for link in conclusion.slow_links],
            "rest": conclusion.rest,
        },
    }


def render_mesh(console: Console, mesh: MeshResult | None) -> None:
    """Print the line below the findings, where there was a proof."""
    if mesh is not None:
        console.print(Text(describe_mesh(mesh)))


def describe_mesh(mesh: MeshResult) -> str:
    """Say in one line how many ways are open and how far apart the nodes are."""
    paths = [path for rail in mesh.rails for path in mesh.select_paths(MESH, rail)]
    if not paths:
        return "wire: nothing could be proved"
    open_paths = [path for path in paths if path.open]
    count = f"all {len(paths)}" if len(open_paths) == len(paths) else f"{len(open_paths)} of {len(paths)}"
    sample = " (a sample)" if len(mesh.nodes) > FULL_MESH_LIMIT else ""
    networks = f" in {len(mesh.rails)} networks" if len(mesh.rails) > 1 else ""
    line = f"wire: {count} ways open between {plural(len(mesh.nodes), 'node')}{sample}{networks}, 256 KiB both ways"
    round_trips = sorted(path.least_rtt for path in open_paths if path.least_rtt)
    if round_trips:
        line += f", round trip {_milliseconds(round_trips[0])} to {_milliseconds(round_trips[-1])} ms"
    return f"{line}; {mesh.seconds:.2f} s"


def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f}"


def mesh_to_json(mesh: MeshResult | None) -> dict[str, Any] | None:
    """Give every way that was tried; times in seconds, round trips in microseconds."""
    if mesh is None:
        return None
    paths = [
        {
            "from": path.caller,
            "to": path.peer,
            "network": path.rail or None,
            "port": "master" if path.listener == MASTER else "ephemeral",
            "open": path.open,
            "error": path.error,
            "connect": path.connect,
            "seconds": path.seconds,
            "rtt_us": path.least_rtt,
            "mss": path.mss,
            "retransmitted": path.lost,
        }
        for path in mesh.paths
    ]
    return {"nodes": list(mesh.nodes), "absent": dict(mesh.absent), "seconds": mesh.seconds, "ways": paths}
