"""What the proof on the wire showed of who reaches whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from clusterctl.plans.checks.check import Hit, Situation, across, check
from clusterctl.plans.checks.nics import also_there
from clusterctl.plans.checks.patterns import Kind, Pattern, find_patterns
from clusterctl.plans.checks.remedy import as_root, ssh_to
from clusterctl.plans.wire import MASTER, MESH, Way, Wire, on_rail
from clusterctl.specs.nodeset import fold_names


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
