"""What the proof on the wire showed of how much a way carries, and how fast."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from statistics import median_low

from clusterctl.plans.checks.check import Hit, Situation, across, check
from clusterctl.plans.checks.patterns import Ends, Kind, Pattern, find_patterns
from clusterctl.plans.checks.remedy import as_root, without
from clusterctl.plans.facts_records import Nic
from clusterctl.plans.network import training_nic
from clusterctl.plans.wire import MESH, SIZE, Way, Wire, on_rail
from clusterctl.specs.nodeset import fold_names

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
