"""What a real collective has shown: nodes and links that break it, or slow it down. Only `check --deep` asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusterctl.plans.checks.framework import CheckContext, Hit, across_nodes, check, exclude_option, ssh_to
from clusterctl.plans.diagnose.collective import DeepCheckResult, Group
from clusterctl.specs.text import plural

MOST_NAMED = 8
REST_TEXTS: Mapping[bool | None, str] = {
    None: "",
    True: "; the others work together without it",
    False: "; the others do not work without it either",
}


@check("CC-DEEP-001")
def node_fails(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for number in deep.diagnosis.nodes:
        description = _describe_node_failure(deep, number)
        yield across_nodes(
            [deep.name(number)],
            f"{deep.name(number)}{description}{REST_TEXTS[deep.diagnosis.rest]}",
            f"add --exclude {deep.name(number)}",
        )


def _describe_node_failure(deep: DeepCheckResult, number: int) -> str:
    """Say with whom a node fails, and how."""
    failed = [group for group in deep.groups_with(number) if not group.ok]
    alone = next((group for group in failed if len(group.nodes) == 1), None)
    if alone is not None:
        return f" fails alone: {deep.describe_error(alone)}"
    others = sorted({other for group in failed for other in group.nodes} - {number})
    return f" fails with {_render_names(deep, others)}: {deep.describe_error(failed[0] if failed else None)}"


@check("CC-DEEP-002")
def link_fails(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for link in deep.diagnosis.links:
        failed = next((group for group in _groups_between(deep, link) if not group.ok), None)
        error = deep.describe_error(failed)
        names = [deep.name(number) for number in link]
        yield across_nodes(names, f"{' and '.join(names)}: {error}", f"add --exclude {names[-1]}")


def _groups_between(deep: DeepCheckResult, link: Sequence[int]) -> list[Group]:
    return deep.groups_with(*link, kinds=("pairs", "again", "all"))


@check("CC-DEEP-003")
def all_fail(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    diagnosis = deep.diagnosis if deep else None
    if deep is None or diagnosis is None or diagnosis.ok or diagnosis.nodes or diagnosis.links:
        return
    pairs = deep.pairs
    working = sum(group.ok for group in pairs)
    error = deep.describe_error(deep.full_group)
    pair_summary = (
        f"; {working} of {plural(len(pairs), 'pair')} {'works' if working == 1 else 'work'}" if pairs else ""
    )
    fix_if_some_work = (
        "look at what grows with the number of nodes: `ulimit -n`, ports, the backend's time limit"
    )
    fix_if_none_work = (
        "check that GPUs, NIC and firewall are those you expect on all nodes: clusterctl check -v"
    )
    fix = fix_if_some_work if working else fix_if_none_work
    yield across_nodes([node.name for node in context.nodes], f"all together: {error}{pair_summary}", fix)


@check("CC-DEEP-004")
def node_is_slow(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for number in deep.diagnosis.slow_nodes:
        name, (usual_bandwidth, usual_latency) = deep.name(number), deep.usual
        pairs = [group for group in deep.groups_with(number) if group.ok and len(group.nodes) == 2]
        best_bandwidth = max((group.bandwidth for group in pairs), default=0.0)
        best_latency = min((group.latency for group in pairs), default=0.0)
        evidence = f"{name}: at best {render_rate(best_bandwidth)} and {render_time(best_latency)} with any other node"
        node = next(node for node in context.nodes if node.name == name)
        nics = context.networks[name].nics if name in context.networks else ()
        fix = ssh_to(node, f"ip -s link show {nics[0]}; cat /sys/class/net/{nics[0]}/speed") if nics else ""
        yield across_nodes(
            [name],
            f"{evidence}; usual are {render_rate(usual_bandwidth)} and {render_time(usual_latency)}",
            fix,
        )


@check("CC-DEEP-005")
def link_is_slow(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for link in deep.diagnosis.slow_links:
        group = next((group for group in _groups_between(deep, link) if group.ok), None)
        if group is not None:
            names = [deep.name(number) for number in link]
            usual_bandwidth, usual_latency = deep.usual
            measured = f"{render_rate(group.bandwidth)} and {render_time(group.latency)}"
            usual = f"usual are {render_rate(usual_bandwidth)} and {render_time(usual_latency)}"
            fix = f"look at cables, switch ports and other traffic between these two, or {exclude_option(names[1:])}"
            yield across_nodes(names, f"{' and '.join(names)}: {measured}; {usual}", fix)


@check("CC-DEEP-006")
def did_not_end(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is not None and deep.trouble:
        yield across_nodes(deep.at or [node.name for node in context.nodes], deep.trouble, deep.fix)


def _render_names(deep: DeepCheckResult, numbers: Sequence[int]) -> str:
    names = [deep.name(number) for number in numbers[:MOST_NAMED]]
    more = [f"{len(numbers) - MOST_NAMED} more"] if len(numbers) > MOST_NAMED else []
    return ", ".join([*names, *more])


def render_rate(rate: float) -> str:
    """Write bytes per second: `11.9 GB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate / 1e3:.3g} kB/s"


def render_time(seconds: float) -> str:
    """Write a short time: `0.21 ms`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
