"""GPUs that answer and are not well: errors that the kernel has seen, throttling, memory, links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    as_root,
    check,
    on_node,
    split_votes,
    ssh_to,
    ssh_to_first,
)
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import GpuState, Xid
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import render_duration

# What the numbers of NVIDIA's catalogue of Xid errors mean, where it is the hardware that speaks. What programs cause
# themselves (13, 31, 43, 45, ...) says nothing about the node.
XIDS: Mapping[int, str] = {
    48: "memory error that could not be corrected",
    62: "halt of the GPU's own controller",
    63: "row of memory to be remapped",
    64: "remapping of memory failed",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "many memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
    136: "NVLink controller error",
    140: "unrecovered memory error",
    149: "NVLink error",
    154: "recovery needed",
}
MOST_NAMED = 8


def _nodes_with_states(
    context: CheckContext, is_affected: Callable[[GpuState], bool], describe: Callable[[GpuState], str]
) -> Iterator[tuple[Node, Facts, str]]:
    """Give the nodes with such GPUs; GPUs that are told the same share one text."""
    for node, facts in context.known:
        indices_by_text: dict[str, list[str]] = {}
        for gpu in facts.gpu_health.devices:
            if is_affected(gpu):
                indices_by_text.setdefault(describe(gpu), []).append(str(gpu.index))
        if indices_by_text:
            descriptions = (f"GPU {', '.join(indices)}: {text}" for text, indices in indices_by_text.items())
            yield node, facts, "; ".join(descriptions)


@check("CC-GPU-020", needs=("gpu_health",))
def xids(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        descriptions = [_render_xid(xid) for xid in facts.gpu_health.xids if xid.code in XIDS]
        more = [f"{len(descriptions) - MOST_NAMED} more"] if len(descriptions) > MOST_NAMED else []
        if descriptions:
            yield on_node(
                node,
                "; ".join([*descriptions[:MOST_NAMED], *more]),
                ssh_to(node, "dmesg | grep -i xid | tail"),
            )


def _render_xid(xid: Xid) -> str:
    times = f", {xid.count} times" if (xid.count or 0) > 1 else ""
    ago = f", {render_duration(xid.age)} ago" if xid.age is not None else ""
    return f"GPU {xid.bus}: Xid {xid.code} ({XIDS[xid.code or 0]}){times}{ago}"


@check("CC-GPU-021", needs=("gpu_health",))
def remap_pending(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context, lambda gpu: gpu.remap_pending == "Yes", lambda _: "row remapping pending"
    )
    for node, facts, evidence in affected:
        yield on_node(node, evidence, as_root(node, facts, "nvidia-smi --gpu-reset"))


@check("CC-GPU-022", needs=("gpu_health",))
def remap_failed(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context, lambda gpu: gpu.remap_failed == "Yes", lambda _: "row remapping failed"
    )
    for node, _, evidence in affected:
        yield on_node(
            node, evidence, f"add --exclude {node.name}, or choose other GPUs by `gpus:` in the job"
        )


@check("CC-GPU-023", needs=("gpu_health",))
def throttled(context: CheckContext) -> Iterator[Hit]:
    for node, _, evidence in _nodes_with_states(
        context, lambda gpu: bool(gpu.slowed), lambda gpu: " and ".join(gpu.slowed)
    ):
        yield on_node(node, evidence, ssh_to(node, "nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE"))


@check("CC-GPU-024", needs=("gpu_health",))
def fabric_not_ready(context: CheckContext) -> Iterator[Hit]:
    for node, facts, evidence in _nodes_with_states(context, _is_unready, _describe_fabric):
        yield on_node(node, evidence, as_root(node, facts, "systemctl restart nvidia-fabricmanager"))


def _is_unready(gpu: GpuState) -> bool:
    failed = gpu.fabric_status not in {None, "Success"}
    return gpu.fabric is not None and (gpu.fabric != "Completed" or failed)


def _describe_fabric(gpu: GpuState) -> str:
    return f"fabric {gpu.fabric}" + (f", {gpu.fabric_status}" if gpu.fabric_status else "")


@check("CC-GPU-025", needs=("gpu_health",))
def links_down(context: CheckContext) -> Iterator[Hit]:
    counts: dict[str, str] = {}
    for node, facts in context.known:
        active = {(gpu.links or 0) - (gpu.links_down or 0) for gpu in facts.gpu_health.devices if gpu.links}
        partly = [gpu for gpu in facts.gpu_health.devices if 0 < (gpu.links_down or 0) < (gpu.links or 0)]
        if partly:
            description = ", ".join(
                f"GPU {gpu.index}: {gpu.links_down} of {gpu.links} NVLinks" for gpu in partly
            )
            yield on_node(
                node, f"{description} down", ssh_to(node, "nvidia-smi nvlink -s; nvidia-smi nvlink -e")
            )
        elif active:
            counts[node.name] = " or ".join(f"{count} active" for count in sorted(active))
    split = split_votes(counts)
    if split:
        fix = ssh_to_first(context.nodes, split.odd, "nvidia-smi nvlink -s; nvidia-smi nvlink -e")
        yield across_nodes(split.odd, f"NVLinks: {split.evidence}", fix)


@check("CC-GPU-026", needs=("gpu_health",))
def pcie_is_narrow(context: CheckContext) -> Iterator[Hit]:
    affected = _nodes_with_states(
        context,
        lambda gpu: 0 < (gpu.width or 0) < (gpu.width_most or 0),
        lambda gpu: f"x{gpu.width} of x{gpu.width_most}",
    )
    for node, _, evidence in affected:
        yield on_node(
            node, evidence, ssh_to(node, "nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv")
        )


@check("CC-GPU-027", needs=("gpus", "torch"))
def no_kernels(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        cuda = _parse_version(facts.torch.cuda)
        lacking = {
            f"{gpu.name or 'GPU'} has compute capability {gpu.capability}"
            for gpu in facts.gpus.devices
            if cuda and _lacks_kernels(cuda, _parse_version(gpu.capability))
        }
        if lacking:
            yield on_node(
                node,
                f"{', '.join(sorted(lacking))}; torch {facts.torch.version} is for CUDA {facts.torch.cuda}",
                "install a torch whose CUDA knows this GPU: pip install torch --index-url .../whl/cuNNN",
            )


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
        context, lambda gpu: gpu.persistence == "Disabled", lambda _: "persistence mode Disabled"
    )
    for node, facts, evidence in affected:
        yield on_node(node, evidence, as_root(node, facts, "nvidia-smi -pm 1"))
