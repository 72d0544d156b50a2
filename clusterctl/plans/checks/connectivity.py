"""Results of the mesh test: closed, lossy, slow paths."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from clusterctl.plans.checks.framework import Hit, Situation, across, as_root, check, ssh_to, without
from clusterctl.plans.checks.nics import also_there
from clusterctl.plans.diagnose.mesh import MASTER, MESH, SIZE, Way, Wire, on_rail
from clusterctl.plans.facts.records import Nic
from clusterctl.plans.launch.network import training_nic
from clusterctl.specs.nodeset import fold_names

Ends = tuple[str, str]  # from, to
Kind = Literal["all", "groups", "node", "into", "out of", "pair", "way"]


@dataclass(frozen=True)
class Pattern:
    """Bad ways with one likely cause; `nodes` are where to look, `groups` who still reaches whom."""

    kind: Kind
    nodes: tuple[str, ...]
    ways: tuple[Ends, ...]
    groups: tuple[tuple[str, ...], ...] = ()


def find_patterns(names: Sequence[str], tried: Collection[Ends], bad: Collection[Ends]) -> list[Pattern]:
    """Explain bad ways by as few causes as possible; each way is in one pattern."""
    wrong = [ends for ends in tried if ends in set(bad)]
    if not wrong:
        return []
    if len(names) > 2 and len(wrong) == len(set(tried)):
        return [Pattern("all", tuple(names), tuple(wrong))]
    found: list[Pattern] = []
    for look in (_apart, _one_sided, _pairs):
        told = {ends for pattern in found for ends in pattern.ways}
        left = [ends for ends in tried if ends not in told]
        found += look(names, left, [ends for ends in wrong if ends not in told])
    return found


def _apart(names: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    """Find nodes without any open way to the rest, and groups of such."""
    if len(names) < 3:
        return
    groups = sorted(_reached(names, set(tried) - set(bad)), key=len, reverse=True)
    main, *others = groups
    several = [group for group in others if len(group) > 1]
    for group in others:
        inside = set(group)
        ways = tuple(ends for ends in bad if len(inside & set(ends)) == 1)
        if ways and len(group) == 1 and len(main) > 1:
            yield Pattern("node", group, ways)
    if several:
        across = tuple(ends for ends in bad if _group_of(groups, ends[0]) != _group_of(groups, ends[1]))
        many = [group for group in groups if len(group) > 1]
        known = {name for group in many for name in group}
        ways = tuple(ends for ends in across if set(ends) <= known)
        if ways:
            yield Pattern("groups", tuple(name for group in several for name in group), ways, tuple(many))


def _reached(names: Sequence[str], ways: Collection[Ends]) -> list[tuple[str, ...]]:
    """Group nodes between which some way is open, in whichever direction."""
    left, groups = list(names), []
    near: dict[str, set[str]] = {name: set() for name in names}
    for one, other in ways:
        near[one].add(other)
        near[other].add(one)
    while left:
        group, edge = {left[0]}, [left[0]]
        while edge:
            new = near[edge.pop()] - group
            group |= new
            edge += new
        groups.append(tuple(name for name in names if name in group))
        left = [name for name in left if name not in group]
    return groups


def _group_of(groups: Sequence[tuple[str, ...]], name: str) -> int:
    return next(place for place, group in enumerate(groups) if name in group)


def _one_sided(names: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    """Find nodes that nobody reaches, and nodes that reach nobody; the ways that are explained do not count."""
    wrong = set(bad)
    told: set[Ends] = set()
    kinds: tuple[tuple[Kind, int], ...] = (("into", 1), ("out of", 0))
    for kind, side in kinds:
        for name in names:
            ways = [ends for ends in dict.fromkeys(tried) if ends[side] == name]
            rest = [ends for ends in ways if ends in wrong and ends not in told]
            if len(rest) > 1 and wrong >= set(ways):
                told |= set(rest)
                yield Pattern(kind, (name,), tuple(rest))


def _pairs(_: Sequence[str], tried: Collection[Ends], bad: Sequence[Ends]) -> Iterator[Pattern]:
    done: set[Ends] = set()
    for one, other in bad:
        back = (other, one)
        if (one, other) in done:
            continue
        both = back in bad or back not in tried
        done |= {(one, other), back} if both else {(one, other)}
        ways = ((one, other), back) if back in bad else ((one, other),)
        yield Pattern("pair" if both else "way", (one, other), ways)


@check(
    "CC-NET-030",
    "error",
    "two nodes cannot connect to each other",
    why="Gloo and NCCL connect all nodes, on ports that the kernel picks: a run would hang at its start.",
    needs=("wire",),
)
def way_is_closed(seen: Situation) -> Iterator[Hit]:
    """The nodes listened on their training addresses, on ephemeral ports, and called each other; some calls failed.

    Where one direction is closed and the other open, a firewall stands between, most likely on the node that is
    called. Gloo and NCCL listen on ports that the kernel picks (`ip_local_port_range`), so all of those must be open
    between the nodes, not only the master's. A node that nobody reaches and that reaches nobody is in another
    network or VLAN, or has a dead link.
    """
    wire = seen.wire
    if wire is not None:
        for rail in wire.rails:
            yield from _closed_on(seen, wire, rail)


def _closed_on(seen: Situation, wire: Wire, rail: str) -> Iterator[Hit]:
    ways = {way.ends: way for way in wire.through(MESH, rail)}
    closed = {ends: way for ends, way in ways.items() if _is_closed(way)}
    patterns = find_patterns(wire.members(rail), list(ways), list(closed))
    for pattern in patterns:
        why = _told({closed[ends].error or "" for ends in pattern.ways})
        rest = len(ways) - len(closed) if len(patterns) == 1 else 0
        doubled = (
            None if rail else _doubled(seen, pattern.nodes, {name for ends in pattern.ways for name in ends})
        )
        text = f"{_CLOSED[pattern.kind](pattern)}{on_rail(rail)} {why}"
        if doubled:
            yield across(pattern.nodes, f"{text}: {doubled[0]}", doubled[1])
            continue
        text += _rest(rest, pattern)
        if pattern.kind in ("all", "pair") and not rail and _master_is_open(wire, pattern.nodes):
            text += "; the port of the master is open, so a firewall passes that one only"
        yield across(pattern.nodes, text, _look_at_firewall(seen, pattern))


def _doubled(seen: Situation, names: Iterable[str], among: Collection[str]) -> tuple[str, str] | None:
    """Say which of some nodes has the training address of one of the named, and how to take it away there."""
    for name in names:
        found = also_there(seen, name, among)
        if found is not None:
            owner, place = found
            node = next(one for one in seen.nodes if one.name == owner)
            text = f"{owner} has {name}'s training address too ({place})"
            return text, as_root(node, seen.facts[owner], f"ip addr del {place}")
    return None


def _is_closed(way: Way) -> bool:
    return way.step in ("connect", "greet") and way.error is not None and not way.stranger


_CLOSED: Mapping[Kind, Callable[[Pattern], str]] = {
    "all": lambda found: f"none of the {len(found.ways)} ways between {fold_names(found.nodes)} is open",
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


def _told(errors: Collection[str]) -> str:
    return f"({'; '.join(sorted(errors)[:2])})"


def _rest(count: int, pattern: Pattern) -> str:
    """Say that all else is well, and what that makes likely."""
    suspect = _SUSPECTS.get(pattern.kind, "").format(*pattern.nodes)
    others = f", all {count} other ways are open" if count else ""
    return f"{others}: {suspect}" if suspect else others


def _master_is_open(wire: Wire, names: Iterable[str]) -> bool:
    among = set(names)
    return any(way.open for way in wire.through(MASTER) if set(way.ends) <= among)


def _look_at_firewall(seen: Situation, pattern: Pattern) -> str:
    """Give the command that shows the rules of the node that is called, and say what they must let pass."""
    asked = next((name for name in reversed(pattern.nodes) if name in seen.facts), None)
    if asked is None:
        return ""
    node, facts = next(one for one in seen.nodes if one.name == asked), seen.facts[asked]
    others = {ends[1 - ends.index(asked)] for ends in pattern.ways if asked in ends}
    callers = [str(seen.networks[one.name].ip) for one in seen.nodes if one.name in others]
    more = f" and {len(callers) - 3} more" if len(callers) > 3 else ""
    ports = f"{facts.ports.first or 32768}-{facts.ports.last or 60999}"
    look = as_root(node, facts, "nft list ruleset")
    return f"{look}  # let TCP ports {ports} pass from {', '.join(callers[:3])}{more}"


@check(
    "CC-NET-033",
    "error",
    "the master's port is closed",
    why="torchrun on the other nodes waits for node 0 on this port until it gives up.",
    needs=("wire",),
)
def master_port_is_closed(seen: Situation) -> Iterator[Hit]:
    """Node 0 listened on a port chosen as torchrun's will be, and a node that reaches its other ports did not get in.

    Without `ports:` a launch takes one outside the kernel's own range (20000 and above); name a range that your
    firewall passes as `ports: 20000-20100`.
    """
    wire = seen.wire
    if wire is None:
        return
    # Of many nodes not all call node 0's other ports: then it counts that they reach anybody.
    tried = {way.ends: way.open for way in wire.through(MESH)}
    callers = {way.caller for way in wire.through(MESH) if way.open}
    ways = [
        way for way in wire.through(MASTER) if _is_closed(way) and tried.get(way.ends, way.caller in callers)
    ]
    if ways:
        names = [way.caller for way in ways]
        why = _told({way.error or "" for way in ways})
        where = f"{fold_names(names)} -> {ways[0].peer}, port {wire.master_port}"
        known = (
            "other ports of it are open"
            if all(way.ends in tried for way in ways)
            else "other nodes are reached"
        )
        text = f"{where}: blocked {why}; {known}"
        yield across(
            [*names, ways[0].peer], text, "inventory: ports: FIRST-LAST  # which the firewall passes"
        )


@check(
    "CC-NET-035",
    "warning",
    "a node took no part in the proof on the wire",
    why="Whether the others reach it is not known.",
    needs=("wire",),
)
def absent_from_proof(seen: Situation) -> Iterator[Hit]:
    """The node answered the other questions, and then did not listen on its training address or did not tell what
    came of its calls in time. It may be overloaded, or a program there keeps it from listening.
    """
    for node in seen.nodes:
        why = seen.wire.absent.get(node.name) if seen.wire else None
        if why is not None:
            yield Hit((node.name,), why, ssh_to(node, "uptime; ss -tlnp"))


@check(
    "CC-NET-036",
    "error",
    "somebody else answers at a training address",
    why="Packets for this node go to another machine: ranks would wait for one that never comes.",
    needs=("wire",),
)
def stranger_answers(seen: Situation) -> Iterator[Hit]:
    """A call to a node's training address and port was answered by somebody who does not know the secret of this check.

    Two machines have the same address, a stale ARP entry or a NAT sends packets elsewhere, or a proxy stands between.
    """
    for way in seen.wire.through(MESH) if seen.wire else ():
        if way.stranger:
            ip = seen.networks[way.peer].ip
            node = next(one for one in seen.nodes if one.name == way.caller)
            doubled = _doubled(seen, (way.peer,), [one.name for one in seen.nodes])
            look = (
                as_root(node, seen.facts[way.caller], f"arping -D -c 3 {ip}")
                if way.caller in seen.facts
                else ""
            )
            text = f"{way.caller} -> {way.peer} ({ip}): answered by another node"
            text, look = (f"{text}: {doubled[0]}", doubled[1]) if doubled else (text, look)
            yield across((way.peer,), text, look)


@check(
    "CC-NET-037",
    "warning",
    "addresses are translated on the way",
    why="What the nodes tell each other as their addresses is not what the others see: NCCL and Gloo may fail.",
    needs=("wire",),
)
def addresses_are_translated(seen: Situation) -> Iterator[Hit]:
    """A node called from its training address and was seen under another one: a NAT stands between the nodes.

    Containers have this with a bridged network of their own: run them with the host's (`--network host`).
    """
    for way in seen.wire.through(MESH) if seen.wire else ():
        if way.own and way.seen and way.own != way.seen:
            told = f"{way.caller} calls from {way.own} and {way.peer} sees {way.seen}"
            fix = "use addresses that no NAT changes: `network:` or `nic:`; containers: --network host"
            yield across((way.caller,), told, fix)


SLOW_RTT = 5000  # microseconds
SLOW_SECONDS = 2.0
TIMES = 10  # as slow as others
HEADERS = 120  # bytes of a packet that no segment carries, generously
LARGEST_MTU = 16000  # above it the kernel keeps segments smaller than the MTU by itself
COMMON_MTU, SMALL_MTU = 1500, 1400
LARGE = 32 << 10  # bytes; a direction that has carried so many lets large packets pass


@check(
    "CC-NET-031",
    "error",
    "large packets are lost",
    why="Small messages pass, so the run starts; the first large transfer hangs until a timeout.",
    needs=("wire",),
)
def large_packets_are_lost(seen: Situation) -> Iterator[Hit]:
    """Two nodes connect, and then 256 KiB do not arrive: an MTU black hole.

    One NIC, switch or tunnel on the way carries smaller packets than the ends send, and the message that would say so
    (ICMP "fragmentation needed") is blocked or never sent. Give all NICs of the training network the MTU that the
    whole way carries.
    """
    wire = seen.wire
    told: set[str] = set()
    if wire is not None:
        for rail in wire.rails:
            yield from _lost_on(seen, wire, rail, told)


def _lost_on(seen: Situation, wire: Wire, rail: str, told: set[str]) -> Iterator[Hit]:
    """Find who loses large packets on one rail; `told` are the remedies that need no second mention."""
    ways = [way for way in wire.through(MESH, rail) if way.step in ("carry", "done")]
    tried = list(dict.fromkeys(ends for way in ways for ends in (way.ends, way.ends[::-1])))
    lost = {ends: way for way in ways if way.error for ends in _lost_directions(way)}
    for pattern in find_patterns(wire.members(rail), tried, list(lost)):
        mss = lost[pattern.ways[0]].mss
        segment = f", segments of {mss} bytes" if mss else ""
        text = f"{_WHERE[pattern.kind](pattern)}{on_rail(rail)}: {_amount(lost, pattern)}{segment}"
        there = [f"give NICs, switches and tunnels{on_rail(rail)} one MTU, such as {COMMON_MTU}"]
        fixes = [line for line in (there if rail else _lower_mtu(seen, pattern)) if line not in told]
        told.update(fixes)
        yield across(pattern.nodes, text, "\n".join(fixes))


def _lost_directions(way: Way) -> list[Ends]:
    """Tell in which direction bytes were lost: what the caller did not get, or what the other never confirmed.

    One that has carried large packets is not to blame where the other has not: its acknowledgements ride on data that
    are lost there.
    """
    carried = {way.ends[::-1]: way.got, way.ends: SIZE if way.acked is None else way.acked}
    short = [ends for ends in (way.ends, way.ends[::-1]) if carried[ends] < SIZE]
    return [ends for ends in short if carried[ends] < LARGE] or short or [way.ends]


def _amount(lost: Mapping[Ends, Way], pattern: Pattern) -> str:
    """Say how little of the bulk came through at least."""
    least = SIZE
    for ends in pattern.ways:
        way = lost[ends]
        least = min(least, (way.acked or 0) if ends == way.ends else way.got)
    return f"{least >> 10} of {SIZE >> 10} KiB arrived"


_WHERE: Mapping[Kind, Callable[[Pattern], str]] = {
    "all": lambda found: f"on all {len(found.ways)} ways between {fold_names(found.nodes)}",
    "groups": lambda found: f"between {' and '.join(map(fold_names, found.groups))}",
    "node": lambda found: f"to and from {found.nodes[0]}",
    "into": lambda found: f"whatever goes to {found.nodes[0]}",
    "out of": lambda found: f"whatever comes from {found.nodes[0]}",
    "pair": lambda found: f"{found.nodes[0]} <-> {found.nodes[1]}",
    "way": lambda found: f"{found.nodes[0]} -> {found.nodes[1]}",
}


def _lower_mtu(seen: Situation, pattern: Pattern) -> list[str]:
    """Give the commands that lower the sender's MTU; the switch may be the better place."""
    named = set(pattern.nodes[:1] if pattern.kind == "way" else pattern.nodes[:2])
    lines = []
    for node in seen.nodes:
        facts = seen.facts.get(node.name)
        nic = _nic(seen, node.name)
        if node.name in named and facts is not None and nic is not None and nic.name:
            mtu = COMMON_MTU if (nic.mtu or 0) > COMMON_MTU else SMALL_MTU
            lines.append(as_root(node, facts, f"ip link set {shlex.quote(nic.name)} mtu {mtu}"))
    return lines


def _nic(seen: Situation, name: str) -> Nic | None:
    facts = seen.facts.get(name)
    return training_nic(seen.networks[name], facts) if facts is not None else None


@check(
    "CC-NET-032",
    "warning",
    "a way between nodes is slow",
    why="Every all-reduce waits for the slowest way.",
    needs=("wire",),
)
def way_is_slow(seen: Situation) -> Iterator[Hit]:
    """A way takes more than ten times as long as others: its quickest round trip above 5 ms, or its 256 KiB each
    way above 2 s.

    Nodes in different buildings, a link that fell back to a low speed, a path through a tunnel or a busy router.
    """
    wire = seen.wire
    if wire is not None:
        for rail in wire.rails:
            yield from _slow_on(wire, rail)


def _slow_on(wire: Wire, rail: str) -> Iterator[Hit]:
    ways = [way for way in wire.through(MESH, rail) if way.open]
    if len(ways) < 3:
        return
    trips = sorted(way.least_rtt or 0 for way in ways)[len(ways) // 4]
    times = median_low(way.seconds or 0.0 for way in ways)
    slow = {way.ends: way for way in ways if _is_slow(way, trips, times)}
    for pattern in find_patterns(wire.members(rail), [way.ends for way in ways], list(slow)):
        way = max((slow[ends] for ends in pattern.ways), key=lambda one: one.seconds or 0.0)
        pace, usual = _pace(way.least_rtt, way.seconds), _pace(trips, times)
        told = f"{_WHERE[pattern.kind](pattern)}{on_rail(rail)}: {pace}; elsewhere {usual}"
        rest = f"or {without(pattern.nodes[-1:])}"
        yield across(
            pattern.nodes, told, f"look at NIC, cable and switch port, and what else goes there, {rest}"
        )


def _is_slow(way: Way, trips: float, times: float) -> bool:
    far = (way.least_rtt or 0) > max(SLOW_RTT, TIMES * trips)
    return far or (way.seconds or 0.0) > max(SLOW_SECONDS, TIMES * times)


def _pace(trip: float | None, seconds: float | None) -> str:
    return f"round trip {(trip or 0) / 1000:.2f} ms, 256 KiB both ways {seconds or 0.0:.2f} s"


@check(
    "CC-NET-034",
    "info",
    "packets are smaller than the NICs allow",
    why="Something between the nodes has a lower MTU; it works, with more packets than needed.",
    needs=("wire",),
)
def path_is_narrower(seen: Situation) -> Iterator[Hit]:
    """The segments that TCP settled on are smaller than the MTU of both NICs allows: a router, tunnel or switch
    between the nodes has a lower MTU. RDMA over this way may not work at all.
    """
    found: dict[str, list[str]] = {}
    for way in seen.wire.through(MESH) if seen.wire else ():
        mtus = [nic.mtu for name in way.ends if (nic := _nic(seen, name)) and nic.mtu]
        if way.open and way.mss and len(mtus) == 2 and way.mss + HEADERS < min(mtus) <= LARGEST_MTU:
            found.setdefault(f"segments of {way.mss} bytes, the NICs' MTU is {min(mtus)}", []).extend(
                way.ends
            )
    for text, names in found.items():
        several = [node.name for node in seen.nodes if node.name in names]
        fix = "give switches and tunnels between them the NICs' MTU, or leave it: it only costs some speed"
        yield across(several, f"between {fold_names(several)}: {text}", fix)
