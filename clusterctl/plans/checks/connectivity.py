"""Results of the mesh test: closed, lossy, slow paths."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    as_root,
    check,
    exclude_option,
    ssh_to,
)
from clusterctl.plans.checks.nics import find_duplicate_address
from clusterctl.plans.diagnose.mesh import MASTER, MESH, TRANSFER_SIZE, MeshPath, MeshResult, render_rail
from clusterctl.plans.facts.records import Nic
from clusterctl.plans.launch.network import training_nic
from clusterctl.specs.nodeset import fold_names

Endpoints = tuple[str, str]  # from, to
Kind = Literal["all", "groups", "node", "into", "out of", "pair", "way"]


@dataclass(frozen=True)
class Pattern:
    """Bad ways with one likely cause; `nodes` are where to look, `groups` who still reaches whom."""

    kind: Kind
    nodes: tuple[str, ...]
    paths: tuple[Endpoints, ...]
    groups: tuple[tuple[str, ...], ...] = ()


def find_patterns(
    names: Sequence[str], tried: Collection[Endpoints], bad: Collection[Endpoints]
) -> list[Pattern]:
    """Explain bad ways by as few causes as possible; each way is in one pattern."""
    failed = [ends for ends in tried if ends in set(bad)]
    if not failed:
        return []
    if len(names) > 2 and len(failed) == len(set(tried)):
        return [Pattern("all", tuple(names), tuple(failed))]
    patterns: list[Pattern] = []
    for find in (_find_isolated, _find_one_sided, _find_pairs):
        explained = {ends for pattern in patterns for ends in pattern.paths}
        unexplained = [ends for ends in tried if ends not in explained]
        patterns += find(names, unexplained, [ends for ends in failed if ends not in explained])
    return patterns


def _find_isolated(
    names: Sequence[str], tried: Collection[Endpoints], bad: Sequence[Endpoints]
) -> Iterator[Pattern]:
    """Find nodes without any open way to the rest, and groups of such."""
    if len(names) < 3:
        return
    groups = sorted(_group_reachable(names, set(tried) - set(bad)), key=len, reverse=True)
    main, *other_groups = groups
    larger_others = [group for group in other_groups if len(group) > 1]
    for group in other_groups:
        inside = set(group)
        paths = tuple(ends for ends in bad if len(inside & set(ends)) == 1)
        if paths and len(group) == 1 and len(main) > 1:
            yield Pattern("node", group, paths)
    if larger_others:
        between_groups = tuple(
            ends for ends in bad if _group_index(groups, ends[0]) != _group_index(groups, ends[1])
        )
        larger_groups = [group for group in groups if len(group) > 1]
        grouped = {name for group in larger_groups for name in group}
        paths = tuple(ends for ends in between_groups if set(ends) <= grouped)
        if paths:
            yield Pattern(
                "groups",
                tuple(name for group in larger_others for name in group),
                paths,
                tuple(larger_groups),
            )


def _group_reachable(names: Sequence[str], open_paths: Collection[Endpoints]) -> list[tuple[str, ...]]:
    """Group nodes between which some way is open, in whichever direction."""
    remaining, groups = list(names), []
    neighbours: dict[str, set[str]] = {name: set() for name in names}
    for caller, peer in open_paths:
        neighbours[caller].add(peer)
        neighbours[peer].add(caller)
    while remaining:
        group, frontier = {remaining[0]}, [remaining[0]]
        while frontier:
            new = neighbours[frontier.pop()] - group
            group |= new
            frontier += new
        groups.append(tuple(name for name in names if name in group))
        remaining = [name for name in remaining if name not in group]
    return groups


def _group_index(groups: Sequence[tuple[str, ...]], name: str) -> int:
    return next(index for index, group in enumerate(groups) if name in group)


def _find_one_sided(
    names: Sequence[str], tried: Collection[Endpoints], bad: Sequence[Endpoints]
) -> Iterator[Pattern]:
    """Find nodes that nobody reaches, and nodes that reach nobody; the ways that are explained do not count."""
    failed = set(bad)
    explained: set[Endpoints] = set()
    kinds: tuple[tuple[Kind, int], ...] = (("into", 1), ("out of", 0))
    for kind, side in kinds:
        for name in names:
            paths = [ends for ends in dict.fromkeys(tried) if ends[side] == name]
            unexplained = [ends for ends in paths if ends in failed and ends not in explained]
            if len(unexplained) > 1 and failed >= set(paths):
                explained |= set(unexplained)
                yield Pattern(kind, (name,), tuple(unexplained))


def _find_pairs(
    _: Sequence[str], tried: Collection[Endpoints], bad: Sequence[Endpoints]
) -> Iterator[Pattern]:
    handled: set[Endpoints] = set()
    for caller, peer in bad:
        reverse = (peer, caller)
        if (caller, peer) in handled:
            continue
        both_directions = reverse in bad or reverse not in tried
        handled |= {(caller, peer), reverse} if both_directions else {(caller, peer)}
        paths = ((caller, peer), reverse) if reverse in bad else ((caller, peer),)
        yield Pattern("pair" if both_directions else "way", (caller, peer), paths)


@check("CC-NET-030", needs=("wire",))
def path_is_closed(context: CheckContext) -> Iterator[Hit]:
    mesh = context.mesh
    if mesh is not None:
        for rail in mesh.rails:
            yield from _find_closed(context, mesh, rail)


def _find_closed(context: CheckContext, mesh: MeshResult, rail: str) -> Iterator[Hit]:
    paths = {path.ends: path for path in mesh.select_paths(MESH, rail)}
    closed = {ends: path for ends, path in paths.items() if _is_closed(path)}
    patterns = find_patterns(mesh.members(rail), list(paths), list(closed))
    for pattern in patterns:
        why = _render_errors({closed[ends].error or "" for ends in pattern.paths})
        open_count = len(paths) - len(closed) if len(patterns) == 1 else 0
        duplicate = (
            None
            if rail
            else _describe_duplicate_address(
                context, pattern.nodes, {name for ends in pattern.paths for name in ends}
            )
        )
        text = f"{_CLOSED[pattern.kind](pattern)}{render_rail(rail)} {why}"
        if duplicate:
            yield across_nodes(pattern.nodes, f"{text}: {duplicate[0]}", "duplicate", command=duplicate[1])
            continue
        text += _render_rest(open_count, pattern)
        if pattern.kind in ("all", "pair") and not rail and _is_master_open(mesh, pattern.nodes):
            text += "; the port of the master is open, so a firewall passes that one only"
        facts = _firewall_facts(context, pattern)
        yield across_nodes(pattern.nodes, text, "firewall" if facts else None, **facts)


def _describe_duplicate_address(
    context: CheckContext, names: Iterable[str], candidates: Collection[str]
) -> tuple[str, str] | None:
    """Say which of some nodes has the training address of one of the named, and how to take it away there."""
    for name in names:
        duplicate = find_duplicate_address(context, name, candidates)
        if duplicate is not None:
            owner, address = duplicate
            node = next(candidate for candidate in context.nodes if candidate.name == owner)
            text = f"{owner} has {name}'s training address too ({address})"
            return text, as_root(node, context.facts[owner], f"ip addr del {address}")
    return None


def _is_closed(path: MeshPath) -> bool:
    return path.step in ("connect", "greet") and path.error is not None and not path.unproven


_CLOSED: Mapping[Kind, Callable[[Pattern], str]] = {
    "all": lambda found: f"none of the {len(found.paths)} ways between {fold_names(found.nodes)} is open",
    "groups": lambda found: f"{' and '.join(map(fold_names, found.groups))} do not reach each other",
    "node": lambda found: f"{found.nodes[0]} reaches nobody and nobody reaches it",
    "into": lambda found: f"nobody reaches {found.nodes[0]}, but it reaches others",
    "out of": lambda found: f"{found.nodes[0]} reaches nobody, but others reach it",
    "pair": lambda found: f"{found.nodes[0]} <-> {found.nodes[1]} blocked",
    "way": lambda found: f"{found.nodes[0]} -> {found.nodes[1]} blocked",
}
_SUSPECTS: Mapping[Kind, str] = {
    "groups": "another network or VLAN?",
    "node": "its NIC, cable, VLAN or firewall?",
    "into": "a firewall on {0}?",
    "out of": "a firewall on {0}?",
    "pair": "a firewall, or no way between their networks?",
    "way": "a firewall on {1}?",
}


def _render_errors(errors: Collection[str]) -> str:
    return f"({'; '.join(sorted(errors)[:2])})"


def _render_rest(open_count: int, pattern: Pattern) -> str:
    """Say that all else is well, and what that makes likely."""
    suspect = _SUSPECTS.get(pattern.kind, "").format(*pattern.nodes)
    text = f", all {open_count} other ways are open" if open_count else ""
    return f"{text}: {suspect}" if suspect else text


def _is_master_open(mesh: MeshResult, names: Iterable[str]) -> bool:
    members = set(names)
    return any(path.open for path in mesh.select_paths(MASTER) if set(path.ends) <= members)


def _firewall_facts(context: CheckContext, pattern: Pattern) -> dict[str, str]:
    """Give the command that shows the rules of the node that is called, and what they must let pass."""
    target = next((name for name in reversed(pattern.nodes) if name in context.facts), None)
    if target is None:
        return {}
    node, facts = next(other for other in context.nodes if other.name == target), context.facts[target]
    caller_names = {ends[1 - ends.index(target)] for ends in pattern.paths if target in ends}
    callers = [str(context.networks[other.name].ip) for other in context.nodes if other.name in caller_names]
    more = f" and {len(callers) - 3} more" if len(callers) > 3 else ""
    return {
        "command": as_root(node, facts, "nft list ruleset"),
        "ports": f"{facts.ports.first or 32768}-{facts.ports.last or 60999}",
        "callers": ", ".join(callers[:3]) + more,
    }


@check("CC-NET-033", needs=("wire",))
def master_port_is_closed(context: CheckContext) -> Iterator[Hit]:
    mesh = context.mesh
    if mesh is None:
        return
    # Of many nodes not all call node 0's other ports: then it counts that they reach anybody.
    open_by_ends = {path.ends: path.open for path in mesh.select_paths(MESH)}
    callers = {path.caller for path in mesh.select_paths(MESH) if path.open}
    paths = [
        path
        for path in mesh.select_paths(MASTER)
        if _is_closed(path) and open_by_ends.get(path.ends, path.caller in callers)
    ]
    if paths:
        names = [path.caller for path in paths]
        why = _render_errors({path.error or "" for path in paths})
        connection = f"{fold_names(names)} -> {paths[0].peer}, port {mesh.master_port}"
        contrast = (
            "other ports of it are open"
            if all(path.ends in open_by_ends for path in paths)
            else "other nodes are reached"
        )
        text = f"{connection}: blocked {why}; {contrast}"
        yield across_nodes([*names, paths[0].peer], text)


@check("CC-NET-035", needs=("wire",))
def missing_from_mesh_test(context: CheckContext) -> Iterator[Hit]:
    for node in context.nodes:
        why = context.mesh.absent.get(node.name) if context.mesh else None
        if why is None or context.mesh is None:
            continue
        if node.name == context.mesh.ports_taken:
            yield Hit(
                (node.name,), why, case="ports", facts={"command": ssh_to(node, "ss -tlnp")}, severity="error"
            )
        else:
            yield Hit((node.name,), why, case="")


@check("CC-NET-036", needs=("wire",))
def unknown_peer_answers(context: CheckContext) -> Iterator[Hit]:
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        if path.unproven:
            ip = context.networks[path.peer].ip
            node = next(candidate for candidate in context.nodes if candidate.name == path.caller)
            duplicate = _describe_duplicate_address(
                context, (path.peer,), [candidate.name for candidate in context.nodes]
            )
            command = (
                as_root(node, context.facts[path.caller], f"arping -D -c 3 {ip}")
                if path.caller in context.facts
                else ""
            )
            text = f"{path.caller} -> {path.peer} ({ip}): answered by another node"
            text, command = (f"{text}: {duplicate[0]}", duplicate[1]) if duplicate else (text, command)
            yield across_nodes((path.peer,), text, "" if command else None, command=command)


@check("CC-NET-037", needs=("wire",))
def addresses_are_translated(context: CheckContext) -> Iterator[Hit]:
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        if path.own and path.seen and path.own != path.seen:
            evidence = f"{path.caller} calls from {path.own} and {path.peer} sees {path.seen}"
            yield across_nodes((path.caller,), evidence)


SLOW_RTT = 5000  # microseconds
SLOW_SECONDS = 2.0
SLOW_FACTOR = 10  # as slow as others
HEADER_BYTES = 120  # bytes of a packet that no segment carries, generously
LARGEST_MTU = 16000  # above it the kernel keeps segments smaller than the MTU by itself
COMMON_MTU, SMALL_MTU = 1500, 1400
LARGE_TRANSFER = 32 << 10  # bytes; a direction that has carried so many lets large packets pass


@check("CC-NET-031", needs=("wire",))
def large_packets_are_lost(context: CheckContext) -> Iterator[Hit]:
    mesh = context.mesh
    given_fixes: set[str] = set()
    if mesh is not None:
        for rail in mesh.rails:
            yield from _find_lost_packets(context, mesh, rail, given_fixes)


def _find_lost_packets(
    context: CheckContext, mesh: MeshResult, rail: str, given_fixes: set[str]
) -> Iterator[Hit]:
    """Find who loses large packets on one rail; `given_fixes` are the remedies that need no second mention."""
    paths = [path for path in mesh.select_paths(MESH, rail) if path.step in ("transfer", "done")]
    tried = list(dict.fromkeys(ends for path in paths for ends in (path.ends, path.ends[::-1])))
    lossy = {ends: path for path in paths if path.error for ends in _lost_directions(path)}
    for pattern in find_patterns(mesh.members(rail), tried, list(lossy)):
        mss = lossy[pattern.paths[0]].mss
        segment = f", segments of {mss} bytes" if mss else ""
        text = (
            f"{_WHERE[pattern.kind](pattern)}{render_rail(rail)}: {_render_amount(lossy, pattern)}{segment}"
        )
        rail_fixes = [f"give NICs, switches and tunnels{render_rail(rail)} one MTU, such as {COMMON_MTU}"]
        fixes = [
            line
            for line in (rail_fixes if rail else _lower_mtu_commands(context, pattern))
            if line not in given_fixes
        ]
        given_fixes.update(fixes)
        yield across_nodes(pattern.nodes, text, "" if fixes else None, commands="\n".join(fixes))


def _lost_directions(path: MeshPath) -> list[Endpoints]:
    """Tell in which direction bytes were lost: what the caller did not get, or what the other never confirmed.

    One that has carried large packets is not to blame where the other has not: its acknowledgements ride on data that
    are lost there.
    """
    received = {path.ends[::-1]: path.got, path.ends: TRANSFER_SIZE if path.acked is None else path.acked}
    incomplete = [ends for ends in (path.ends, path.ends[::-1]) if received[ends] < TRANSFER_SIZE]
    return [ends for ends in incomplete if received[ends] < LARGE_TRANSFER] or incomplete or [path.ends]


def _render_amount(lossy: Mapping[Endpoints, MeshPath], pattern: Pattern) -> str:
    """Say how little of the bulk came through at least."""
    smallest = TRANSFER_SIZE
    for ends in pattern.paths:
        path = lossy[ends]
        smallest = min(smallest, (path.acked or 0) if ends == path.ends else path.got)
    return f"{smallest >> 10} of {TRANSFER_SIZE >> 10} KiB arrived"


_WHERE: Mapping[Kind, Callable[[Pattern], str]] = {
    "all": lambda found: f"on all {len(found.paths)} ways between {fold_names(found.nodes)}",
    "groups": lambda found: f"between {' and '.join(map(fold_names, found.groups))}",
    "node": lambda found: f"to and from {found.nodes[0]}",
    "into": lambda found: f"whatever goes to {found.nodes[0]}",
    "out of": lambda found: f"whatever comes from {found.nodes[0]}",
    "pair": lambda found: f"{found.nodes[0]} <-> {found.nodes[1]}",
    "way": lambda found: f"{found.nodes[0]} -> {found.nodes[1]}",
}


def _lower_mtu_commands(context: CheckContext, pattern: Pattern) -> list[str]:
    """Give the commands that lower the sender's MTU; the switch may be the better place."""
    targets = set(pattern.nodes[:1] if pattern.kind == "way" else pattern.nodes[:2])
    commands = []
    for node in context.nodes:
        facts = context.facts.get(node.name)
        nic = _find_training_nic(context, node.name)
        if node.name in targets and facts is not None and nic is not None and nic.name:
            mtu = COMMON_MTU if (nic.mtu or 0) > COMMON_MTU else SMALL_MTU
            commands.append(as_root(node, facts, f"ip link set {shlex.quote(nic.name)} mtu {mtu}"))
    return commands


def _find_training_nic(context: CheckContext, name: str) -> Nic | None:
    facts = context.facts.get(name)
    return training_nic(context.networks[name], facts) if facts is not None else None


@check("CC-NET-032", needs=("wire",))
def path_is_slow(context: CheckContext) -> Iterator[Hit]:
    mesh = context.mesh
    if mesh is not None:
        for rail in mesh.rails:
            yield from _find_slow(mesh, rail)


def _find_slow(mesh: MeshResult, rail: str) -> Iterator[Hit]:
    paths = [path for path in mesh.select_paths(MESH, rail) if path.open]
    if len(paths) < 3:
        return
    usual_rtt = sorted(path.least_rtt or 0 for path in paths)[len(paths) // 4]
    usual_seconds = median_low(path.seconds or 0.0 for path in paths)
    slow = {path.ends: path for path in paths if _is_slow(path, usual_rtt, usual_seconds)}
    for pattern in find_patterns(mesh.members(rail), [path.ends for path in paths], list(slow)):
        path = max((slow[ends] for ends in pattern.paths), key=lambda candidate: candidate.seconds or 0.0)
        pace, usual_pace = _render_pace(path.least_rtt, path.seconds), _render_pace(usual_rtt, usual_seconds)
        evidence = f"{_WHERE[pattern.kind](pattern)}{render_rail(rail)}: {pace}; elsewhere {usual_pace}"
        yield across_nodes(pattern.nodes, evidence, exclude=exclude_option(pattern.nodes[-1:]))


def _is_slow(path: MeshPath, usual_rtt: float, usual_seconds: float) -> bool:
    has_slow_rtt = (path.least_rtt or 0) > max(SLOW_RTT, SLOW_FACTOR * usual_rtt)
    return has_slow_rtt or (path.seconds or 0.0) > max(SLOW_SECONDS, SLOW_FACTOR * usual_seconds)


def _render_pace(rtt: float | None, seconds: float | None) -> str:
    return f"round trip {(rtt or 0) / 1000:.2f} ms, 256 KiB both ways {seconds or 0.0:.2f} s"


@check("CC-NET-034", needs=("wire",))
def path_is_narrower(context: CheckContext) -> Iterator[Hit]:
    names_by_text: dict[str, list[str]] = {}
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        mtus = [nic.mtu for name in path.ends if (nic := _find_training_nic(context, name)) and nic.mtu]
        if path.open and path.mss and len(mtus) == 2 and path.mss + HEADER_BYTES < min(mtus) <= LARGEST_MTU:
            names_by_text.setdefault(
                f"segments of {path.mss} bytes, the NICs' MTU is {min(mtus)}", []
            ).extend(path.ends)
    for text, names in names_by_text.items():
        node_names = [node.name for node in context.nodes if node.name in names]
        yield across_nodes(node_names, f"between {fold_names(node_names)}: {text}")
