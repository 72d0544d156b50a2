"""`check`: results of the test of the network and of the deep check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from clusterctl.console.text import wrap_text
from clusterctl.plans.checks.collective import render_rate, render_time
from clusterctl.plans.diagnose.collective import DeepCheckResult, Group, bus_bandwidth
from clusterctl.plans.diagnose.mesh import MASTER, MESH, MeshResult
from clusterctl.plans.facts.facts import FULL_MESH_LIMIT
from clusterctl.translation import to_translate, tr, trn

BANDWIDTH_FROM = 64 << 10  # bytes; less shows the latency, and no bandwidth


def render_deep(console: Console, deep: DeepCheckResult | None) -> None:
    """Print a line per size of the all_reduce of all nodes, and the slowest and the fastest pair."""
    if deep is None:
        console.print(Text(tr("deep check: skipped; fix the errors below first")))
        return
    all_nodes = deep.full_group
    if all_nodes is not None and not all_nodes.ok:
        console.print(Text(tr("deep check: all_reduce of {ranks} failed", ranks=_count_ranks(all_nodes))))
    elif all_nodes is not None:
        ranks = _count_ranks(all_nodes)
        nodes = trn("{n} node", "{n} nodes", len(all_nodes.nodes))
        console.print(Text(tr("deep check: all_reduce of {ranks} on {nodes}", ranks=ranks, nodes=nodes)))
        for size, seconds in all_nodes.rows:
            bandwidth = bus_bandwidth(size, seconds, all_nodes.ranks)
            has_rate = size >= BANDWIDTH_FROM and bandwidth
            rate = tr("{rate} bus bandwidth", rate=render_rate(bandwidth)) if has_rate else ""
            console.print(f"{_render_bytes(size):>10}  {render_time(seconds):>9}  {rate}".rstrip())
        _render_pairs(console, deep)


def _count_ranks(group: Group) -> str:
    return trn("{n} rank", "{n} ranks", group.ranks)


def _render_pairs(console: Console, deep: DeepCheckResult) -> None:
    pairs = [group for group in deep.pairs if group.ok]
    if pairs:
        slowest, fastest = (choose(pairs, key=_bandwidth) for choose in (min, max))
        line = trn(
            "  {n} pair: {slowest} to {fastest}",
            "  {n} pairs: {slowest} to {fastest}",
            len(pairs),
            slowest=_describe_group(deep, slowest),
            fastest=_describe_group(deep, fastest),
        )
        console.print(Text(line), soft_wrap=True)


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
    """Print the result of the test of the network, if there was one."""
    if mesh is not None:
        for line in wrap_text(describe_mesh(mesh), console.width, indent="    "):
            console.print(Text(line), soft_wrap=True)


_CONNECTIONS: Mapping[
    tuple[bool, bool], str
] = {  # by whether all work, and whether there are several networks
    (True, False): to_translate("network: all {total} connections work"),
    (True, True): to_translate("network: all {total} connections in {networks} networks work"),
    (False, False): to_translate("network: {open} of {total} connections work"),
    (False, True): to_translate("network: {open} of {total} connections in {networks} networks work"),
}


def describe_mesh(mesh: MeshResult) -> str:
    """Say in one line how many connections work and how long a round trip takes."""
    paths = [path for rail in mesh.rails for path in mesh.select_paths(MESH, rail)]
    if not paths:
        return tr("network: no connection could be tested")
    open_paths = [path for path in paths if path.open]
    message = _CONNECTIONS[len(open_paths) == len(paths), len(mesh.rails) > 1]
    line = tr(message, open=len(open_paths), total=len(paths), networks=len(mesh.rails))
    if len(mesh.nodes) > FULL_MESH_LIMIT:
        line = tr("{line} (a sample)", line=line)
    round_trips = sorted(path.least_rtt for path in open_paths if path.least_rtt)
    if not round_trips:
        return line
    low, high = round_trips[0] / 1000, round_trips[-1] / 1000
    return tr("{line}, round trip {low:.2f} to {high:.2f} ms", line=line, low=low, high=high)


def mesh_to_json(mesh: MeshResult | None) -> dict[str, Any] | None:
    """Give every connection that was tried; times in seconds, round trips in microseconds."""
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
