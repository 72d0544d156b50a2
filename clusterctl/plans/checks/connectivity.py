"""Results of the mesh test: blocked, lossy and slow connections."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    as_root,
    check,
    exclude_option,
    join_items,
    join_parts,
    run_on_each,
    run_on_nodes,
)
from clusterctl.plans.checks.nics import find_duplicate_address
from clusterctl.plans.diagnose.network_tests import TRANSFER_SIZE, render_rail
from clusterctl.plans.launch.network import training_nic
from clusterctl.protocol.messages.checks import MASTER, MESH, MeshPath, MeshResult
from clusterctl.protocol.messages.facts import Nic
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import to_translate, tr, trn

Endpoints = tuple[str, str]  # from, to
Kind = Literal["all", "groups", "node", "into", "out of", "pair", "way"]
BEFORE_TRANSFER = ("connect", "greet")
_CLOSED: Mapping[Kind, str] = {
    "all": to_translate("all {count} connections between {nodes} fail"),
    "groups": to_translate("{groups} cannot reach each other"),
    "node": to_translate("{node} cannot reach any node, and no node can reach it"),
    "into": to_translate("no node can reach {node}, but it can reach others"),
    "out of": to_translate("{node} cannot reach any node, but others can reach it"),
    "pair": to_translate("{node} <-> {peer} blocked"),
    "way": to_translate("{node} -> {peer} blocked"),
}
_SUSPECTS: Mapping[Kind, str] = {
    "groups": to_translate("different networks or VLANs?"),
    "node": to_translate("its NIC, cable, VLAN or firewall?"),
    "into": to_translate("a firewall on {node}?"),
    "out of": to_translate("a firewall on {node}?"),
    "pair": to_translate("a firewall, or no route between their networks?"),
    "way": to_translate("a firewall on {peer}?"),
}
SLOW_RTT = 5000  # microseconds
SLOW_SECONDS = 2.0
SLOW_FACTOR = 10  # as slow as others
HEADER_BYTES = 120  # bytes of a packet that no segment carries, generously
MAX_MTU = 16000  # above it the kernel keeps segments smaller than the MTU
COMMON_MTU, SMALL_MTU = 1500, 1400
LARGE_TRANSFER = 32 << 10  # bytes; a direction that has carried so many lets large packets pass
_WHERE: Mapping[Kind, str] = {
    "all": to_translate("on all {count} connections between {nodes}"),
    "groups": to_translate("between {groups}"),
    "node": to_translate("to and from {node}"),
    "into": to_translate("to {node}"),
    "out of": to_translate("from {node}"),
    "pair": to_translate("{node} <-> {peer}"),
    "way": to_translate("{node} -> {peer}"),
}


@dataclass(frozen=True)
class Pattern:
    """Failed connections with one likely cause; `nodes` are where to look, `groups` which still reach each other."""

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
    """Find nodes that no node reaches, and nodes that reach none; connections that are explained do not count."""
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
    for mesh, rail in _each_rail(context):
        yield from _find_closed(context, mesh, rail)


def _each_rail(context: CheckContext) -> Iterator[tuple[MeshResult, str]]:
    if context.mesh is not None:
        yield from ((context.mesh, rail) for rail in context.mesh.rails)


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
        where = f"{_describe_pattern(_CLOSED, pattern)}{render_rail(rail)}"
        text = tr("{problem} {reasons}", problem=where, reasons=why)
        if duplicate:
            evidence = tr("{subject}: {text}", subject=text, text=duplicate[0])
            yield across_nodes(pattern.nodes, evidence, "duplicate", command=duplicate[1])
            continue
        text = _with_suspect(text, open_count, pattern)
        if pattern.kind in ("all", "pair") and not rail and _is_master_open(mesh, pattern.nodes):
            text = tr("{text}; the master port is open, so a firewall allows only that one", text=text)
        facts = _firewall_facts(context, pattern)
        yield across_nodes(pattern.nodes, text, "firewall" if facts else None, **facts)


def _describe_duplicate_address(
    context: CheckContext, names: Iterable[str], candidates: Collection[str]
) -> tuple[str, str] | None:
    """Describe which of some nodes has the training address of one of the named, and how to remove it there."""
    for name in names:
        duplicate = find_duplicate_address(context, name, candidates)
        if duplicate is not None:
            owner, address = duplicate
            node = next(candidate for candidate in context.nodes if candidate.name == owner)
            text = tr(
                "{owner} also has {node}'s training address ({address})",
                owner=owner,
                node=name,
                address=address,
            )
            line = as_root(context.facts[node.name], f"ip addr del {address}")
            return text, run_on_nodes(context.program, [owner], line)
    return None


def _is_closed(path: MeshPath) -> bool:
    return path.step in BEFORE_TRANSFER and path.error is not None and not path.unproven


def _describe_pattern(texts: Mapping[Kind, str], found: Pattern) -> str:
    """Return between which nodes something was seen."""
    return tr(
        texts[found.kind],
        count=len(found.paths),
        nodes=fold_names(found.nodes),
        groups=tr(" and ").join(map(fold_names, found.groups)),
        node=found.nodes[0],
        peer=found.nodes[-1],
    )


def _render_errors(errors: Collection[str]) -> str:
    return tr("({reasons})", reasons=join_parts(map(translate_node_text, sorted(errors)[:2])))


def _with_suspect(text: str, open_count: int, pattern: Pattern) -> str:
    """Add that all else works, and the likely cause."""
    if open_count:
        text = trn(
            "{text}, the other {n} connection works",
            "{text}, all {n} other connections work",
            open_count,
            text=text,
        )
    suspect = _SUSPECTS.get(pattern.kind)
    if suspect is None:
        return text
    guess = tr(suspect, node=pattern.nodes[0], peer=pattern.nodes[-1])
    return tr("{subject}: {text}", subject=text, text=guess)


def _is_master_open(mesh: MeshResult, names: Iterable[str]) -> bool:
    members = set(names)
    return any(path.open for path in mesh.select_paths(MASTER) if set(path.ends) <= members)


def _firewall_facts(context: CheckContext, pattern: Pattern) -> dict[str, str]:
    """Return the command that shows the rules of the node that is called, and what they must let pass."""
    target = next((name for name in reversed(pattern.nodes) if name in context.facts), None)
    if target is None:
        return {}
    facts = context.facts[target]
    caller_names = {ends[1 - ends.index(target)] for ends in pattern.paths if target in ends}
    callers = [str(context.networks[other.name].ip) for other in context.nodes if other.name in caller_names]
    shown = join_items(callers[:3])
    if len(callers) > 3:
        shown = tr("{addresses} and {count} more", addresses=shown, count=len(callers) - 3)
    return {
        "command": run_on_nodes(context.program, [target], as_root(facts, "nft list ruleset")),
        "ports": f"{facts.ports.first or 32768}-{facts.ports.last or 60999}",
        "callers": shown,
    }


@check("CC-NET-033", needs=("wire",))
def master_port_is_closed(context: CheckContext) -> Iterator[Hit]:
    mesh = context.mesh
    if mesh is None:
        return
    # Of many nodes not all call node 0's other ports: then it counts that they reach any node.
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
        message = (
            to_translate("{nodes} -> {peer}, port {port}: blocked {reasons}; its other ports are open")
            if all(path.ends in open_by_ends for path in paths)
            else to_translate("{nodes} -> {peer}, port {port}: blocked {reasons}; other nodes can be reached")
        )
        text = tr(message, nodes=fold_names(names), peer=paths[0].peer, port=mesh.master_port, reasons=why)
        yield across_nodes([*names, paths[0].peer], text)


@check("CC-NET-035", needs=("wire",))
def missing_from_mesh_test(context: CheckContext) -> Iterator[Hit]:
    for node in context.nodes:
        why = context.mesh.absent.get(node.name) if context.mesh else None
        if why is None or context.mesh is None:
            continue
        if node.name == context.mesh.ports_taken:
            command = run_on_nodes(context.program, [node.name], "ss -tlnp")
            yield Hit((node.name,), why, case="ports", facts={"command": command}, severity="error")
        else:
            yield Hit((node.name,), why, case="")


@check("CC-NET-036", needs=("wire",))
def unknown_peer_answers(context: CheckContext) -> Iterator[Hit]:
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        if path.unproven:
            ip = context.networks[path.peer].ip
            duplicate = _describe_duplicate_address(
                context, (path.peer,), [candidate.name for candidate in context.nodes]
            )
            text = tr(
                "{node} -> {peer} ({ip}): answered by another node", node=path.caller, peer=path.peer, ip=ip
            )
            command = ""
            if duplicate:
                text, command = tr("{subject}: {text}", subject=text, text=duplicate[0]), duplicate[1]
            elif path.caller in context.facts:
                line = as_root(context.facts[path.caller], f"arping -D -c 3 {ip}")
                command = run_on_nodes(context.program, [path.caller], line)
            yield across_nodes((path.peer,), text, "" if command else None, command=command)


@check("CC-NET-037", needs=("wire",))
def addresses_are_translated(context: CheckContext) -> Iterator[Hit]:
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        if path.own and path.seen and path.own != path.seen:
            evidence = tr(
                "{node} connects from {own}, but {peer} sees {seen}",
                node=path.caller,
                own=path.own,
                peer=path.peer,
                seen=path.seen,
            )
            yield across_nodes((path.caller,), evidence)


@check("CC-NET-031", needs=("wire",))
def large_packets_are_lost(context: CheckContext) -> Iterator[Hit]:
    treated: set[str] = set()
    for mesh, rail in _each_rail(context):
        yield from _find_lost_packets(context, mesh, rail, treated)


def _find_lost_packets(
    context: CheckContext, mesh: MeshResult, rail: str, treated: set[str]
) -> Iterator[Hit]:
    """Find the nodes that lose large packets on one rail; `treated` are the nodes and rails that have a fix already."""
    paths = [path for path in mesh.select_paths(MESH, rail) if path.step not in BEFORE_TRANSFER]
    tried = list(dict.fromkeys(ends for path in paths for ends in (path.ends, path.ends[::-1])))
    lossy = {ends: path for path in paths if path.error for ends in _lost_directions(path)}
    for pattern in find_patterns(mesh.members(rail), tried, list(lossy)):
        mss = lossy[pattern.paths[0]].mss
        text = tr(
            to_translate("{where}: {kib} of {total} KiB arrived, segments of {mss} bytes")
            if mss
            else to_translate("{where}: {kib} of {total} KiB arrived"),
            where=f"{_describe_pattern(_WHERE, pattern)}{render_rail(rail)}",
            kib=_least_received(lossy, pattern) >> 10,
            total=TRANSFER_SIZE >> 10,
            mss=mss,
        )
        if rail:
            fix = tr(
                "set the same MTU on all NICs, switches and tunnels{rail}, such as {mtu}",
                rail=render_rail(rail),
                mtu=COMMON_MTU,
            )
            fix = "" if rail in treated else fix
            treated.add(rail)
        else:
            lines = _lower_mtu_lines(context, pattern)
            fix = run_on_each(context, {name: line for name, line in lines.items() if name not in treated})
            treated.update(lines)
        yield across_nodes(pattern.nodes, text, "" if fix else None, commands=fix)


def _lost_directions(path: MeshPath) -> list[Endpoints]:
    """Return in which direction bytes were lost: what the caller did not get, or what the other never confirmed.

    One that has carried large packets is not to blame where the other has not: its acknowledgements ride on data that
    are lost there.
    """
    received = {path.ends[::-1]: path.got, path.ends: TRANSFER_SIZE if path.acked is None else path.acked}
    incomplete = [ends for ends in (path.ends, path.ends[::-1]) if received[ends] < TRANSFER_SIZE]
    return [ends for ends in incomplete if received[ends] < LARGE_TRANSFER] or incomplete or [path.ends]


def _least_received(lossy: Mapping[Endpoints, MeshPath], pattern: Pattern) -> int:
    """Return the smallest number of bytes that arrived."""
    smallest = TRANSFER_SIZE
    for ends in pattern.paths:
        path = lossy[ends]
        smallest = min(smallest, (path.acked or 0) if ends == path.ends else path.got)
    return smallest


def _lower_mtu_lines(context: CheckContext, pattern: Pattern) -> dict[str, str]:
    """Return the lines that lower the sender's MTU; the switch may be the better place."""
    targets = set(pattern.nodes[:1] if pattern.kind == "way" else pattern.nodes[:2])
    lines = {}
    for node in context.nodes:
        facts = context.facts.get(node.name)
        nic = _find_training_nic(context, node.name)
        if node.name in targets and facts is not None and nic is not None and nic.name:
            mtu = COMMON_MTU if (nic.mtu or 0) > COMMON_MTU else SMALL_MTU
            lines[node.name] = as_root(facts, f"ip link set {shlex.quote(nic.name)} mtu {mtu}")
    return lines


def _find_training_nic(context: CheckContext, name: str) -> Nic | None:
    facts = context.facts.get(name)
    return training_nic(context.networks[name], facts) if facts is not None else None


@check("CC-NET-032", needs=("wire",))
def path_is_slow(context: CheckContext) -> Iterator[Hit]:
    for mesh, rail in _each_rail(context):
        yield from _find_slow(mesh, rail)


def _find_slow(mesh: MeshResult, rail: str) -> Iterator[Hit]:
    paths = [path for path in mesh.select_paths(MESH, rail) if path.open]
    if len(paths) < 3:
        return
    usual_rtt = sorted(path.least_rtt or 0 for path in paths)[len(paths) // 4]
    usual_seconds = sorted(path.seconds or 0.0 for path in paths)[(len(paths) - 1) // 2]
    slow = {path.ends: path for path in paths if _is_slow(path, usual_rtt, usual_seconds)}
    for pattern in find_patterns(mesh.members(rail), [path.ends for path in paths], list(slow)):
        path = max((slow[ends] for ends in pattern.paths), key=lambda candidate: candidate.seconds or 0.0)
        pace, usual_pace = _render_pace(path.least_rtt, path.seconds), _render_pace(usual_rtt, usual_seconds)
        evidence = tr(
            "{where}: {pace}; elsewhere {usual}",
            where=f"{_describe_pattern(_WHERE, pattern)}{render_rail(rail)}",
            pace=pace,
            usual=usual_pace,
        )
        yield across_nodes(pattern.nodes, evidence, exclude=exclude_option(pattern.nodes[-1:]))


def _is_slow(path: MeshPath, usual_rtt: float, usual_seconds: float) -> bool:
    has_slow_rtt = (path.least_rtt or 0) > max(SLOW_RTT, SLOW_FACTOR * usual_rtt)
    return has_slow_rtt or (path.seconds or 0.0) > max(SLOW_SECONDS, SLOW_FACTOR * usual_seconds)


def _render_pace(rtt: float | None, seconds: float | None) -> str:
    return tr(
        "round trip {rtt:.2f} ms, 256 KiB both ways {seconds:.2f} s",
        rtt=(rtt or 0) / 1000,
        seconds=seconds or 0.0,
    )


@check("CC-NET-034", needs=("wire",))
def path_is_narrower(context: CheckContext) -> Iterator[Hit]:
    names_by_text: dict[str, list[str]] = {}
    for path in context.mesh.select_paths(MESH) if context.mesh else ():
        mtus = [nic.mtu for name in path.ends if (nic := _find_training_nic(context, name)) and nic.mtu]
        if path.open and path.mss and len(mtus) == 2 and path.mss + HEADER_BYTES < min(mtus) <= MAX_MTU:
            text = tr("segments of {mss} bytes, but the NICs have MTU {mtu}", mss=path.mss, mtu=min(mtus))
            names_by_text.setdefault(text, []).extend(path.ends)
    for text, names in names_by_text.items():
        node_names = [node.name for node in context.nodes if node.name in names]
        where = tr("between {groups}", groups=fold_names(node_names))
        yield across_nodes(node_names, tr("{subject}: {text}", subject=where, text=text))
