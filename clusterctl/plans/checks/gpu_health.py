"""GPUs that answer but have problems: errors in the kernel log, throttling, memory, links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    check,
    join_items,
    join_parts,
    on_node,
    split_votes,
)
from clusterctl.protocol.messages.facts import Facts, GpuState, Xid
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import render_duration
from clusterctl.translation import to_translate, tr

# What the numbers of NVIDIA's catalogue of Xid errors mean, those of hardware only. What programs cause
# themselves (13, 31, 43, 45, ...) means nothing for the node.
XIDS: Mapping[int, str] = {
    48: to_translate("uncorrectable memory error"),
    62: to_translate("the GPU's internal controller halted"),
    63: to_translate("memory row remapping pending"),
    64: to_translate("memory row remapping failed"),
    74: to_translate("NVLink error"),
    79: to_translate("fallen off the bus"),
    92: to_translate("many memory errors"),
    94: to_translate("contained memory error"),
    95: to_translate("uncontained memory error"),
    119: to_translate("timeout of the GPU system processor (GSP)"),
    120: to_translate("error of the GPU system processor (GSP)"),
    136: to_translate("NVLink controller error"),
    140: to_translate("unrecovered memory error"),
    149: to_translate("NVLink error"),
    154: to_translate("recovery needed"),
}
MOST_NAMED = 8


def _nodes_with_states(
    context: CheckContext, is_affected: Callable[[GpuState], bool], describe: Callable[[GpuState], str]
) -> Iterator[tuple[Node, Facts, str]]:
    """Yield the nodes with such GPUs; GPUs in the same state share one text."""
    for node, facts in context.known:
        indices_by_text: dict[str, list[str]] = {}
        for gpu in facts.gpu_health.devices:
            if is_affected(gpu):
                indices_by_text.setdefault(describe(gpu), []).append(str(gpu.index))
        if indices_by_text:
            descriptions = (
                tr("GPU {indices}: {state}", indices=", ".join(indices), state=text)
                for text, indices in indices_by_text.items()
            )
            yield node, facts, join_parts(descriptions)


@check("CC-GPU-020", needs=("gpu_health",))
def xids(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        descriptions = [_render_xid(xid) for xid in facts.gpu_health.xids if xid.code in XIDS]
        more = [tr("{count} more", count=len(descriptions) - MOST_NAMED)]
        if descriptions:
            shown = [*descriptions[:MOST_NAMED], *(more if len(descriptions) > MOST_NAMED else [])]
            yield on_node(node, join_parts(shown))


def _render_xid(xid: Xid) -> str:
    meaning = tr(XIDS[xid.code or 0])
    text = tr("GPU {bus}: Xid {code} ({meaning})", bus=xid.bus, code=xid.code, meaning=meaning)
    times = [tr("{count} times", count=xid.count)] if (xid.count or 0) > 1 else []
    ago = [tr("{duration} ago", duration=render_duration(xid.age))] if xid.age is not None else []
    return join_items([text, *times, *ago])


@check("CC-GPU-021", needs=("gpu_health",))
def remap_pending(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context, lambda gpu: gpu.remap_pending == "Yes", lambda _: tr("row remapping pending")
    )
    for node, _, evidence in affected:
        yield on_node(node, evidence)


@check("CC-GPU-022", needs=("gpu_health",))
def remap_failed(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context, lambda gpu: gpu.remap_failed == "Yes", lambda _: tr("row remapping failed")
    )
    for node, _, evidence in affected:
        yield on_node(node, evidence)


@check("CC-GPU-023", needs=("gpu_health",))
def throttled(context: CheckContext) -> Iterator[Hit]:
    for node, _, evidence in _nodes_with_states(
        context, lambda gpu: bool(gpu.slowed), lambda gpu: tr(" and ").join(gpu.slowed)
    ):
        yield on_node(node, evidence)


@check("CC-GPU-024", needs=("gpu_health",))
def fabric_not_ready(context: CheckContext) -> Iterator[Hit]:
    for node, _, evidence in _nodes_with_states(context, _is_unready, _describe_fabric):
        yield on_node(node, evidence)


def _is_unready(gpu: GpuState) -> bool:
    failed = gpu.fabric_status not in {None, "Success"}
    return gpu.fabric is not None and (gpu.fabric != "Completed" or failed)


def _describe_fabric(gpu: GpuState) -> str:
    words = (gpu.fabric, gpu.fabric_status)
    return tr("fabric {state}", state=", ".join(word for word in words if word))


@check("CC-GPU-025", needs=("gpu_health",))
def links_down(context: CheckContext) -> Iterator[Hit]:
    counts: dict[str, str] = {}
    for node, facts in context.known:
        active = {(gpu.links or 0) - (gpu.links_down or 0) for gpu in facts.gpu_health.devices if gpu.links}
        partly = [gpu for gpu in facts.gpu_health.devices if 0 < (gpu.links_down or 0) < (gpu.links or 0)]
        if partly:
            descriptions = (
                tr(
                    "GPU {index}: {down} of {total} NVLinks down",
                    index=gpu.index,
                    down=gpu.links_down,
                    total=gpu.links,
                )
                for gpu in partly
            )
            yield on_node(node, join_items(descriptions))
        elif active:
            counts[node.name] = tr(" or ").join(tr("{count} active", count=count) for count in sorted(active))
    split = split_votes(counts)
    if split:
        yield across_nodes(split.odd, tr("{subject}: {text}", subject="NVLinks", text=split.evidence))


@check("CC-GPU-026", needs=("gpu_health",))
def pcie_is_narrow(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context,
        lambda gpu: 0 < (gpu.width or 0) < (gpu.width_most or 0),
        lambda gpu: tr("x{width} of x{most}", width=gpu.width, most=gpu.width_most),
    )
    for node, _, evidence in affected:
        yield on_node(node, evidence)


@check("CC-GPU-027", needs=("gpus", "torch"))
def no_kernels(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        cuda = _parse_version(facts.torch.cuda)
        lacking = {
            tr("{gpu} has compute capability {version}", gpu=gpu.name or "GPU", version=gpu.capability)
            for gpu in facts.gpus.devices
            if cuda and _lacks_kernels(cuda, _parse_version(gpu.capability))
        }
        if lacking:
            evidence = tr(
                "{gpus}; torch {torch} is for CUDA {cuda}",
                gpus=join_items(sorted(lacking)),
                torch=facts.torch.version,
                cuda=facts.torch.cuda,
            )
            yield on_node(node, evidence)


def _lacks_kernels(cuda: tuple[int, int], capability: tuple[int, int] | None) -> bool:
    if capability is None:
        return False
    return (cuda >= (13, 0) and capability < (7, 5)) or (cuda < (12, 8) and capability >= (10, 0))


def _parse_version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


@check("CC-GPU-028", needs=("gpu_health",))
def not_persistent(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context, lambda gpu: gpu.persistence == "Disabled", lambda _: tr("persistence mode Disabled")
    )
    for node, _, evidence in affected:
        yield on_node(node, evidence)
