"""Results of a real collective, which only `check --deep` runs: nodes and links that break it or slow it down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    check,
    exclude_option,
    first_few,
    join_items,
)
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.plans.diagnose.network_tests import DeepCheckResult
    from clusterctl.protocol.messages.checks import GroupResult

MAX_NAMED = 8
REST_TEXTS: Mapping[bool | None, str] = {
    None: "{failure}",
    True: to_translate("{failure}; the others work without it"),
    False: to_translate("{failure}; the others do not work without it either"),
}


@check("CC-DEEP-001")
def node_fails(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for number in deep.diagnosis.nodes:
        failure = _describe_node_failure(deep, number)
        yield across_nodes([deep.name(number)], tr(REST_TEXTS[deep.diagnosis.rest], failure=failure))


def _describe_node_failure(deep: DeepCheckResult, number: int) -> str:
    """Describe with which nodes a node fails, and how."""
    failed = [group for group in deep.groups_with(number) if not group.ok]
    alone = next((group for group in failed if len(group.nodes) == 1), None)
    if alone is not None:
        return tr("{node} fails alone: {error}", node=deep.name(number), error=deep.describe_error(alone))
    others = sorted({other for group in failed for other in group.nodes} - {number})
    return tr(
        "{node} fails with {others}: {error}",
        node=deep.name(number),
        others=_render_names(deep, others),
        error=deep.describe_error(failed[0] if failed else None),
    )


@check("CC-DEEP-002")
def link_fails(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is None or deep.diagnosis is None:
        return
    for link in deep.diagnosis.links:
        failed = next((group for group in _groups_between(deep, link) if not group.ok), None)
        error = translate_node_text(deep.describe_error(failed))
        names = [deep.name(number) for number in link]
        evidence = tr("{subject}: {text}", subject=tr(" and ").join(names), text=error)
        yield across_nodes(names, evidence, last=names[-1])


def _groups_between(deep: DeepCheckResult, link: Sequence[int]) -> list[GroupResult]:
    return deep.groups_with(*link, kinds=("pairs", "again", "all"))


@check("CC-DEEP-003")
def all_fail(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    diagnosis = deep.diagnosis if deep else None
    if deep is None or diagnosis is None or diagnosis.ok or diagnosis.nodes or diagnosis.links:
        return
    pairs = deep.pairs
    working = sum(group.ok for group in pairs)
    error = translate_node_text(deep.describe_error(deep.full_group))
    if pairs:
        evidence = trn(
            "all nodes together: {error}; {working} of {n} pair works",
            "all nodes together: {error}; {working} of {n} pairs work",
            len(pairs),
            error=error,
            working=working,
        )
    else:
        evidence = tr("all nodes together: {error}", error=error)
    yield across_nodes([node.name for node in context.nodes], evidence, "" if working else "no-pair")


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
        evidence = tr(
            "{node}: at best {rate} and {time} with any other node; usual are {usual_rate} and {usual_time}",
            node=name,
            rate=render_rate(best_bandwidth),
            time=render_time(best_latency),
            usual_rate=render_rate(usual_bandwidth),
            usual_time=render_time(usual_latency),
        )
        nics = context.networks[name].nics if name in context.networks else ()
        yield across_nodes([name], evidence, "" if nics else None, nic=nics[0] if nics else "")


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
            evidence = tr(
                "{nodes}: {rate} and {time}; usual are {usual_rate} and {usual_time}",
                nodes=tr(" and ").join(names),
                rate=render_rate(group.bandwidth),
                time=render_time(group.latency),
                usual_rate=render_rate(usual_bandwidth),
                usual_time=render_time(usual_latency),
            )
            yield across_nodes(names, evidence, exclude=exclude_option(names[1:]))


@check("CC-DEEP-006")
def did_not_end(context: CheckContext) -> Iterator[Hit]:
    deep = context.deep
    if deep is not None and deep.trouble:
        yield across_nodes(deep.at or [node.name for node in context.nodes], deep.trouble, way_out=deep.fix)


def _render_names(deep: DeepCheckResult, numbers: Sequence[int]) -> str:
    return join_items(first_few([deep.name(number) for number in numbers], MAX_NAMED))


def render_rate(rate: float) -> str:
    """Write bytes per second: `11.9 GB/s`."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate / 1e3:.3g} kB/s"


def render_time(seconds: float) -> str:
    """Write a short time: `0.21 ms`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else tr("{seconds:.3g} s", seconds=seconds)
