"""GPUs: their number, driver, model, mode and use, and those that answer but have problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    check,
    compare_nodes,
    exclude_option,
    first_few,
    join_items,
    join_parts,
    on_node,
    parse_version,
    split_votes,
)
from clusterctl.plans.launch.launchers import count_chosen_gpus, vendor_of, visible_env
from clusterctl.protocol.messages.facts import Facts, Gpu, GpuState, Xid
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job
from clusterctl.specs.nodeset import group_values
from clusterctl.specs.text import render_duration
from clusterctl.translation import to_translate, tr, trn

# The oldest driver for each CUDA major version, from NVIDIA's table of minor version compatibility.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
MAX_HOLDERS = 4  # that are named
BUSY_MEMORY = 512  # MiB; an idle GPU uses less
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
MAX_XIDS = 8


def _driver_version(facts: Facts) -> str | None:
    return facts.gpus.driver or facts.gpus.module


def _is_driver_mismatched(facts: Facts) -> bool:
    reported, loaded = facts.gpus.driver, facts.gpus.module
    return "version mismatch" in (facts.gpus.error or "") or bool(reported and loaded and reported != loaded)


def _count_gpus(facts: Facts) -> int:
    return facts.gpus.count or 0


def _count_lent(node: Node, facts: Facts) -> int:
    """Count the GPUs that a run may use: the inventory's number, where that many are there."""
    return _count_gpus(facts) if node.gpus is None else min(node.gpus, _count_gpus(facts))


def _count_usable(context: CheckContext, node: Node, facts: Facts) -> int:
    """Count the GPUs that this job may use on a node: those that it chooses, else all that are lent."""
    chosen = count_chosen_gpus(context.job) if context.job else None
    return _count_lent(node, facts) if chosen is None else min(chosen, _count_lent(node, facts))


@check("CC-GPU-001", needs=("gpus",))
def no_gpu(context: CheckContext) -> Iterator[Hit]:
    if context.job is None or not context.needs_gpus():
        return
    any_gpu_found = any(_count_gpus(facts) for _, facts in context.known)
    for node, facts in context.known:
        if not _count_gpus(facts) and not node.gpus and not facts.gpus.error:
            evidence = tr("nvidia-smi lists none") if facts.gpus.smi else tr("no nvidia-smi and no driver")
            yield on_node(
                node, evidence, "" if any_gpu_found else "no-gpus", changes=_list_cpu_changes(context.job)
            )


def _list_cpu_changes(job: Job) -> str:
    """Name what to change in a job that wants GPUs."""
    changes = ["backend: gloo"] if job.backend == "nccl" else []
    changes += ["nproc_per_node: 1"] if job.nproc_per_node == "gpu" else []
    changes += [tr("no gpus:")] if job.gpus else []
    return join_items(changes)


@check("CC-GPU-002", needs=("gpus",))
def too_few_gpus(context: CheckContext) -> Iterator[Hit]:
    nproc_per_node = context.job.nproc_per_node if context.job and context.job.backend == "nccl" else None
    for node, facts in context.known:
        usable = _count_usable(context, node, facts)
        if isinstance(nproc_per_node, int) and 0 < usable < nproc_per_node:
            evidence = trn(
                "{n} GPU for nproc_per_node: {workers}",
                "{n} GPUs for nproc_per_node: {workers}",
                usable,
                workers=nproc_per_node,
            )
            yield on_node(node, evidence, usable=usable)


@check("CC-GPU-003", needs=("gpus",))
def fewer_than_promised(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if node.gpus and _count_gpus(facts) < node.gpus and not facts.gpus.error:
            evidence = tr(
                "{count} found, the inventory has gpus: {expected}",
                count=_count_gpus(facts),
                expected=node.gpus,
            )
            yield on_node(node, evidence, count=_count_gpus(facts))


@check("CC-GPU-004", needs=("gpus",))
def driver_mismatch(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if _is_driver_mismatched(facts):
            library = facts.gpus.driver or _parse_library_version(facts.gpus.error or "")
            evidence = tr(
                "kernel module {module}, library {library}",
                module=facts.gpus.module or tr("of another version"),
                library=library or tr("of another version"),
            )
            yield on_node(node, evidence)


def _parse_library_version(text: str) -> str | None:
    match = re.search(r"NVML library version: ([\d.]+)", text)
    return match.group(1) if match else None


@check("CC-GPU-005", needs=("gpus", "torch"))
def driver_is_old(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        cuda = re.match(r"\d+", facts.torch.cuda or "")
        driver = re.match(r"\d+", _driver_version(facts) or "")
        oldest = OLDEST_DRIVER.get(int(cuda.group())) if cuda else None
        if oldest and driver and int(driver.group()) < oldest:
            evidence = tr(
                "driver {driver}, torch {torch} with CUDA {cuda} needs {oldest} or later",
                driver=_driver_version(facts),
                torch=facts.torch.version,
                cuda=facts.torch.cuda,
                oldest=oldest,
            )
            yield on_node(node, evidence, oldest=oldest)


@check("CC-GPU-006", needs=("gpus",))
def drivers_differ(context: CheckContext) -> Iterator[Hit]:
    split = compare_nodes(context, lambda facts: (_driver_version(facts) or "").partition(".")[0])
    if split:
        yield across_nodes(
            split.odd,
            split.evidence,
            "" if split.majority else "any",
            version=split.majority,
            exclude=exclude_option(split.odd),
        )


@check("CC-GPU-007", needs=("gpus",))
def models_differ(context: CheckContext) -> Iterator[Hit]:
    split = compare_nodes(context, lambda facts: " + ".join(sorted(_models(facts))))
    if split:
        yield across_nodes(
            split.odd, split.evidence, "" if split.majority else "any", exclude=exclude_option(split.odd)
        )


def _models(facts: Facts) -> set[str]:
    return {gpu.name for gpu in facts.gpus.devices if gpu.name}


@check("CC-GPU-008", needs=("gpus", "machine"))
def counts_differ(context: CheckContext) -> Iterator[Hit]:
    nproc_per_node = context.job.nproc_per_node if context.job else "gpu"
    if isinstance(nproc_per_node, int) or (context.job and count_chosen_gpus(context.job) is not None):
        return
    if nproc_per_node == "cpu":
        counts = {node.name: facts.machine.cpus_allowed or 0 for node, facts in context.known}
    else:
        counts = {node.name: _count_lent(node, facts) for node, facts in context.known}
    split = split_votes({name: str(count or "") for name, count in counts.items()})
    if split:
        yield across_nodes(split.odd, split.evidence)


@check("CC-GPU-009", needs=("gpus",))
def smi_failed(context: CheckContext) -> Iterator[Hit]:
    relevant = context.job is None or context.needs_gpus()
    for node, facts in context.known:
        error = facts.gpus.error or facts.gpu_health.error
        if error and relevant and not _is_driver_mismatched(facts):
            yield on_node(node, translate_node_text(error))


@check("CC-GPU-010", needs=("gpus",))
def more_than_promised(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if node.gpus is not None and _count_gpus(facts) > node.gpus:
            evidence = tr(
                "{count} found, the inventory has gpus: {expected}",
                count=_count_gpus(facts),
                expected=node.gpus,
            )
            yield on_node(node, evidence, count=_count_gpus(facts))


@check("CC-GPU-018", needs=("gpus",))
def chosen_gpu_is_missing(context: CheckContext) -> Iterator[Hit]:
    chosen = context.job.gpus if context.job else ()
    for node, facts in context.known:
        present = {gpu.index for gpu in facts.gpus.devices} or set(range(_count_gpus(facts)))
        missing = [str(index) for index in chosen if index not in present]
        if not present or facts.gpus.error:
            continue  # reported by CC-GPU-001 and CC-GPU-009
        if missing:
            evidence = trn(
                "the job needs gpus: {missing}, the node has {n} GPU",
                "the job needs gpus: {missing}, the node has {n} GPUs",
                _count_gpus(facts),
                missing=join_items(missing),
            )
            yield on_node(node, evidence)
        elif node.gpus is not None and len(chosen) > node.gpus:
            evidence = trn(
                "the job needs {n} GPU, the inventory allows {allowed}",
                "the job needs {n} GPUs, the inventory allows {allowed}",
                len(chosen),
                allowed=node.gpus,
            )
            yield on_node(node, evidence, "count", count=len(chosen))


def _gpu_hits(
    context: CheckContext, is_affected: Callable[[Gpu], bool], describe: Callable[[Gpu], str]
) -> Iterator[Hit]:
    """Report the nodes with such GPUs."""
    for node, facts in context.known:
        descriptions = [
            tr("GPU {index} {state}", index=gpu.index, state=describe(gpu))
            for gpu in facts.gpus.devices
            if is_affected(gpu)
        ]
        if descriptions:
            yield on_node(node, join_items(descriptions))


def _describe_compute_mode(gpu: Gpu) -> str:
    return tr("is {mode}", mode=gpu.compute_mode)


@check("CC-GPU-011", needs=("gpus",))
def compute_prohibited(context: CheckContext) -> Iterator[Hit]:
    return _gpu_hits(context, lambda gpu: gpu.compute_mode == "Prohibited", _describe_compute_mode)


@check("CC-GPU-012", needs=("gpus",))
def compute_exclusive(context: CheckContext) -> Iterator[Hit]:
    return _gpu_hits(context, lambda gpu: "Exclusive" in (gpu.compute_mode or ""), _describe_compute_mode)


@check("CC-GPU-013", needs=("gpus",))
def mig_is_on(context: CheckContext) -> Iterator[Hit]:
    return _gpu_hits(context, lambda gpu: gpu.mig == "Enabled", lambda _: tr("has MIG on"))


@check("CC-GPU-014", needs=("gpus",))
def ecc_errors(context: CheckContext) -> Iterator[Hit]:
    return _gpu_hits(
        context, lambda gpu: bool(gpu.ecc_errors), lambda gpu: tr("has {count}", count=gpu.ecc_errors)
    )


@check("CC-GPU-015", needs=("gpus",))
def gpu_in_use(context: CheckContext) -> Iterator[Hit]:
    chosen = context.job.gpus if context.job else ()
    for node, facts in context.known:
        busy = [
            tr(
                "GPU {index} uses {size} MiB{users}",
                index=gpu.index,
                size=gpu.memory_used,
                users=_render_users(gpu, facts),
            )
            for gpu in facts.gpus.devices
            if (gpu.memory_used or 0) > BUSY_MEMORY and (not chosen or gpu.index in chosen)
        ]
        if busy:
            yield on_node(node, join_items(busy))


def _render_users(gpu: Gpu, facts: Facts) -> str:
    """Name the processes that hold memory of a GPU, as far as the node shows them."""
    processes = [process for process in facts.gpus.processes if process.gpu == gpu.uuid]
    descriptions = [
        tr("pid {pid} of {user}: {command}", pid=process.pid, user=process.user, command=process.command)
        if process.user
        else f"pid {process.pid}"
        for process in processes
    ]
    shown = first_few(descriptions, MAX_HOLDERS)
    return f" {tr('({reasons})', reasons=join_parts(shown))}" if shown else ""


@check("CC-GPU-016", needs=("gpus",))
def gpu_is_silent(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        files, count = facts.gpus.files or 0, facts.gpus.count or 0
        if facts.gpus.smi and files > count > 0:
            evidence = tr(
                "{files}, {gpus} listed{unlisted}",
                files=trn("{n} device file", "{n} device files", files),
                gpus=trn("{n} GPU", "{n} GPUs", count),
                unlisted=_render_unlisted(facts),
            )
            yield on_node(node, evidence)


def _render_unlisted(facts: Facts) -> str:
    """Name the GPUs on the PCI bus that nvidia-smi does not list; it writes the same address with more zeros."""
    listed = {(gpu.bus or "")[-10:].lower() for gpu in facts.gpus.devices}
    missing = [bus for bus in facts.gpu_health.pci if bus[-10:].lower() not in listed]
    if not missing or listed == {""}:
        return ""
    return tr("; not listed: PCI {addresses}", addresses=join_items(missing))


@check("CC-GPU-017", needs=("gpus", "environment"))
def hidden_gpus(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        set_by_job = (
            {*context.job.env, *visible_env(vendor_of(facts), context.job.gpus)} if context.job else set()
        )
        variables = [
            f"{name}={facts.environment[name]}"
            for name in VISIBLE_DEVICES_VARIABLES
            if name in facts.environment.keys() - set_by_job
        ]
        if variables and facts.gpus.count:
            yield on_node(node, ", ".join(variables))


def _state_hits(
    context: CheckContext, is_affected: Callable[[GpuState], bool], describe: Callable[[GpuState], str]
) -> Iterator[Hit]:
    """Report the nodes with such GPUs; GPUs in the same state share one text."""
    for node, facts in context.known:
        affected = filter(is_affected, facts.gpu_health.devices)
        indices_by_text = group_values((describe(gpu), str(gpu.index)) for gpu in affected)
        if indices_by_text:
            descriptions = (
                tr("GPU {indices}: {state}", indices=", ".join(indices), state=text)
                for text, indices in indices_by_text.items()
            )
            yield on_node(node, join_parts(descriptions))


@check("CC-GPU-020", needs=("gpu_health",))
def xids(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        descriptions = [_render_xid(xid) for xid in facts.gpu_health.xids if xid.code in XIDS]
        if descriptions:
            yield on_node(node, join_parts(first_few(descriptions, MAX_XIDS)))


def _render_xid(xid: Xid) -> str:
    meaning = tr(XIDS[xid.code or 0])
    text = tr("GPU {bus}: Xid {code} ({meaning})", bus=xid.bus, code=xid.code, meaning=meaning)
    times = [tr("{count} times", count=xid.count)] if (xid.count or 0) > 1 else []
    ago = [tr("{duration} ago", duration=render_duration(xid.age))] if xid.age is not None else []
    return join_items([text, *times, *ago])


@check("CC-GPU-021", needs=("gpu_health",))
def remap_pending(context: CheckContext) -> Iterator[Hit]:
    return _state_hits(context, lambda gpu: gpu.remap_pending == "Yes", lambda _: tr("row remapping pending"))


@check("CC-GPU-022", needs=("gpu_health",))
def remap_failed(context: CheckContext) -> Iterator[Hit]:
    return _state_hits(context, lambda gpu: gpu.remap_failed == "Yes", lambda _: tr("row remapping failed"))


@check("CC-GPU-023", needs=("gpu_health",))
def throttled(context: CheckContext) -> Iterator[Hit]:
    return _state_hits(context, lambda gpu: bool(gpu.slowed), lambda gpu: tr(" and ").join(gpu.slowed))


@check("CC-GPU-024", needs=("gpu_health",))
def fabric_not_ready(context: CheckContext) -> Iterator[Hit]:
    return _state_hits(context, _is_unready, _describe_fabric)


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
    return _state_hits(
        context,
        lambda gpu: 0 < (gpu.width or 0) < (gpu.width_most or 0),
        lambda gpu: tr("x{width} of x{most}", width=gpu.width, most=gpu.width_most),
    )


@check("CC-GPU-027", needs=("gpus", "torch"))
def no_kernels(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        cuda = parse_version(facts.torch.cuda)
        lacking = {
            tr("{gpu} has compute capability {version}", gpu=gpu.name or "GPU", version=gpu.capability)
            for gpu in facts.gpus.devices
            if cuda and _lacks_kernels(cuda, parse_version(gpu.capability))
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


@check("CC-GPU-028", needs=("gpu_health",))
def not_persistent(context: CheckContext) -> Iterator[Hit]:
    return _state_hits(
        context, lambda gpu: gpu.persistence == "Disabled", lambda _: tr("persistence mode Disabled")
    )
