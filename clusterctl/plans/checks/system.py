"""Identity, limits, clocks, leftovers, locks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    check,
    compare_nodes,
    exclude_option,
    join_items,
    of_nodes,
    on_node,
    split_votes,
)
from clusterctl.plans.facts.facts import GPU_LOCK_PREFIX, NODE_LOCK, describe_holders
from clusterctl.plans.launch.launchers import VENDOR_NIC_RULES
from clusterctl.plans.launch.placement import plan_devices
from clusterctl.protocol.messages.environment import is_cleared
from clusterctl.protocol.messages.facts import Facts, LockHolder
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import to_translate, tr, trn

MIB, GIB = 1 << 20, 1 << 30
DISK_FULL, DISK_LOW = 100 * 1000 * 1000, GIB  # bytes
FEW_INODES = 5000
SHM_PER_PROCESS = 256 * MIB
NCCL_HOSTID = "NCCL_HOSTID"  # takes the place of hostname and boot where NCCL distinguishes machines
# What a launch sets on each node, whatever was there before.
REPLACED_NAMES = frozenset().union(*VENDOR_NIC_RULES.values())
# What each question of the probe is about, in words for the user.
QUESTIONS = {
    "gpus": to_translate("nvidia-smi or a similar program"),
    "workdir": to_translate("the working directory"),
    "workdir_disk": to_translate("the file system of the working directory"),
    "home_disk": to_translate("the file system of the home directory"),
    "tmp_disk": to_translate("the file system of /tmp"),
    "shm_disk": "/dev/shm",
    "shm_left": "/dev/shm",
    "checkpoint": to_translate("the newest checkpoint"),
    "python_disk": to_translate("the file system of Python"),
    "torch": to_translate("the files of torch"),
    "packages": to_translate("the list of packages"),
    "installed": to_translate("the list of packages"),
    "nccl": to_translate("the NCCL library"),
    "nccl_conf": to_translate("NCCL's settings files"),
    "nics": to_translate("the list of NICs"),
    "routes": to_translate("names and routes of the other nodes"),
    "address": to_translate("the node's own name"),
    "hostname": to_translate("the node's hostname"),
    "activate": to_translate("the environment of `activate`"),
    "locks": to_translate("the holders of the GPUs"),
}
REPORTED_ELSEWHERE = ("workdir", "workdir_disk")  # where they hang: CC-DISK-009
MAX_OFFSET = 2.0  # seconds
OFFSET_TEXTS = {  # by whether it is compared with the other nodes, and whether it is ahead
    (True, True): to_translate("{seconds:.1f} s ahead of the other nodes (accurate to {error:.2f} s)"),
    (True, False): to_translate("{seconds:.1f} s behind the other nodes (accurate to {error:.2f} s)"),
    (False, True): to_translate("{seconds:.1f} s ahead (accurate to {error:.2f} s)"),
    (False, False): to_translate("{seconds:.1f} s behind (accurate to {error:.2f} s)"),
}


def count_workers(context: CheckContext, facts: Facts) -> int:
    """Return the number of workers that a node would run; without a job one per GPU."""
    nproc_per_node = context.job.nproc_per_node if context.job else "gpu"
    if context.job and context.job.is_single_process:
        return 1
    if nproc_per_node == "cpu":
        return facts.machine.cpus_allowed or 1
    return nproc_per_node if isinstance(nproc_per_node, int) else facts.gpus.count or 1


def render_size(number: int) -> str:
    """Write a number of bytes for people."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number >> 10} KiB"


@check("CC-SYS-001", needs=("machine",))
def same_machine_that_fails(context: CheckContext) -> Iterator[Hit]:
    if _shares_memory_by_host(context.job):
        for names, evidence in _same_machines(context, set()):
            yield across_nodes(names, evidence, "mpirun", last=names[-1])
    elif context.needs_gpus():
        for names, evidence in _same_machines(context, {NCCL_HOSTID}):
            yield across_nodes(names, evidence, last=names[-1])


@check("CC-SYS-002", needs=("machine",))
def same_machine(context: CheckContext) -> Iterator[Hit]:
    if not context.needs_gpus() and not _shares_memory_by_host(context.job):
        for names, evidence in _same_machines(context, {NCCL_HOSTID}):
            yield across_nodes(names, evidence, last=names[-1])


def _shares_memory_by_host(job: Job | None) -> bool:
    """Return whether Open MPI passes messages by shared memory between ranks that report the same host."""
    return job is not None and job.launcher == "mpirun" and "OMPI_MCA_btl" not in job.env


def _same_machines(context: CheckContext, variables: Collection[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the nodes of each machine that has several, and how that shows; `variables` set them apart."""
    nodes_of = group_values(
        (
            (machine.hostname, machine.boot_id, *(facts.environment.get(name) for name in variables)),
            node.name,
        )
        for node, facts in context.known
        for machine in [facts.machine]
    )
    for (hostname, boot_id, *_), names in nodes_of.items():
        if hostname and boot_id and len(names) > 1:
            yield names, of_nodes(names, tr("hostname {host}, same boot", host=hostname))


@check("CC-SYS-003", needs=("limits",))
def few_open_files(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        limit = facts.limits.nofile
        is_low = limit and (0 <= (limit.soft or 0) < 1024 or 0 <= (limit.hard or 0) < 4096)
        if limit and is_low:
            evidence = tr("soft {soft}, hard {hard}", soft=limit.soft, hard=limit.hard)
            yield on_node(node, evidence, user=facts.account.user or "*")


@check("CC-SYS-004", needs=("shm_disk",))
def small_shm(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        workers, total = count_workers(context, facts), facts.shm_disk.total
        free = facts.shm_disk.free if total != 0 else None  # 0: a tmpfs without a limit
        needed = SHM_PER_PROCESS * workers
        if free is not None and free < needed:
            evidence = trn(
                "{free} free; {n} worker of {each} needs {needed}",
                "{free} free; {n} workers of {each} each need {needed}",
                workers,
                free=render_size(free),
                each=render_size(SHM_PER_PROCESS),
                needed=render_size(needed),
            )
            yield _small_shm_hit(node, facts, evidence, free, needed)


def _small_shm_hit(node: Node, facts: Facts, evidence: str, free: int, needed: int) -> Hit:
    """Report a small /dev/shm; the fix leaves room for what is in it, if there is memory for that."""
    total = max(facts.shm_disk.total or 0, free)
    size, memory, shown = total - free + needed, facts.machine.memory or 0, render_size(needed)
    if 0 < memory < size:
        return on_node(node, evidence, "memory", count=max(1, free // SHM_PER_PROCESS), needed=shown)
    gigabytes, used = -(-size // GIB), render_size(total - free)
    return on_node(node, evidence, "in-use" if total > free else "", size=gigabytes, used=used, needed=shown)


@check("CC-SYS-005", needs=("environment",))
def leftover_variables(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        names = [name for name in facts.environment if is_cleared(name)]
        if names:
            evidence = join_items(f"{name}={facts.environment[name]}" for name in names[:6])
            yield on_node(node, evidence)


@check("CC-SYS-006", needs=("environment",))
def environments_differ(context: CheckContext) -> Iterator[Hit]:
    names = {
        name for _, facts in context.known for name in facts.environment if not _is_handled(context, name)
    }
    for name in sorted(names):
        values = {node.name: facts.environment.get(name, tr("unset")) for node, facts in context.known}
        split = split_votes(values)
        if split:
            evidence = tr("{subject}: {text}", subject=name, text=split.evidence)
            yield across_nodes(split.odd, evidence, name=name)


def _is_handled(context: CheckContext, name: str) -> bool:
    return (
        is_cleared(name)
        or name == NCCL_HOSTID
        or name in REPLACED_NAMES
        or name in VISIBLE_DEVICES_VARIABLES
        or bool(context.job and name in context.job.env)
    )


@check("CC-SYS-007", needs=("limits", "infiniband"))
def low_memlock(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        limit = facts.limits.memlock
        if facts.infiniband and limit and limit.soft is not None and 0 <= limit.soft < GIB:
            user = facts.account.user or "*"
            evidence = tr(
                "{size} for {adapter}", size=render_size(limit.soft), adapter=facts.infiniband[0].adapter
            )
            yield on_node(node, evidence, user=user)


@check("CC-SYS-008", needs=("limits",))
def unlimited_stack(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if context.needs_gpus() and facts.limits.stack and facts.limits.stack.soft == -1:
            yield on_node(node, tr("stack unlimited"))


@check("CC-SYS-009", needs=("logind",))
def kills_at_logout(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.logind.kills and not facts.logind.linger:
            user = shlex.quote(facts.account.user) if facts.account.user else "$USER"
            yield on_node(node, "KillUserProcesses=yes", user=user)


@check("CC-SYS-010", needs=("platform",))
def architectures_differ(context: CheckContext) -> Iterator[Hit]:
    split = compare_nodes(context, lambda facts: facts.platform.machine)
    if split:
        yield across_nodes(split.odd, split.evidence, exclude=exclude_option(split.odd))


@check("CC-SYS-011")
def unanswered_questions(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        for question, problem in facts.problems.items():
            if question not in REPORTED_ELSEWHERE or not problem.startswith("no answer within"):
                subject = QUESTIONS.get(question)
                asked = (
                    tr("{error} ({evidence})", error=question, evidence=tr(subject)) if subject else question
                )
                evidence = tr("{subject}: {text}", subject=asked, text=translate_node_text(problem))
                yield on_node(node, evidence)


def _offsets(context: CheckContext) -> dict[str, tuple[float, float]]:
    clocks = {node.name: facts.clock for node, facts in context.known}
    return {
        name: (clock.offset, clock.error or 0.0) for name, clock in clocks.items() if clock.offset is not None
    }


def _common_offset(context: CheckContext) -> float:
    """Return by how much all nodes differ from this machine, in seconds: then the clock here is wrong. Else 0."""
    offsets = sorted(_offsets(context).values())
    if len(offsets) < 2:
        return 0.0
    median, error = offsets[len(offsets) // 2]
    agreeing = sum(abs(offset - median) <= MAX_OFFSET for offset, _ in offsets)
    is_local_clock_wrong = abs(median) - error > MAX_OFFSET and agreeing > len(offsets) / 2
    return median if is_local_clock_wrong else 0.0


@check("CC-TIME-001", needs=("clock",))
def clock_is_wrong(context: CheckContext) -> Iterator[Hit]:
    common_offset = _common_offset(context)
    offsets = _offsets(context)
    for node, _ in context.known:
        offset, error = offsets.get(node.name, (0.0, 0.0))
        relative_offset = offset - common_offset
        if node.name in offsets and abs(relative_offset) - error > MAX_OFFSET:
            message = OFFSET_TEXTS[bool(common_offset), relative_offset > 0]
            yield on_node(node, tr(message, seconds=abs(relative_offset), error=error))


@check("CC-TIME-002", needs=("clock",))
def local_clock_is_wrong(context: CheckContext) -> Iterator[Hit]:
    common_offset = _common_offset(context)
    if common_offset:
        message = (
            to_translate("this machine is {seconds:.1f} s behind the nodes")
            if common_offset > 0
            else to_translate("this machine is {seconds:.1f} s ahead of the nodes")
        )
        names = [node.name for node, _ in context.known]
        yield across_nodes(names, tr(message, seconds=abs(common_offset)))


def _list_gpu_holders(context: CheckContext, node: Node, facts: Facts) -> tuple[LockHolder, ...]:
    """Return the holders of the GPUs that the job would take; without a job, of any."""
    device_ids = {device.id for device in plan_devices(context.job, node, facts)} if context.job else None
    uuids = {holder: (holder.name or "")[len(GPU_LOCK_PREFIX) :] for holder in facts.locks}
    return tuple(
        holder
        for holder, uuid in uuids.items()
        if (holder.name or "").startswith(GPU_LOCK_PREFIX) and (device_ids is None or uuid in device_ids)
    )


def _gpu_indices(facts: Facts) -> dict[str, int]:
    return {gpu.uuid: gpu.index for gpu in facts.gpus.devices if gpu.uuid and gpu.index is not None}


@check("CC-GPU-019", needs=("locks", "gpus"))
def gpus_are_taken(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        for line in describe_holders(_list_gpu_holders(context, node, facts), _gpu_indices(facts)):
            yield on_node(node, line)


@check("CC-SYS-012", needs=("locks",))
def node_is_taken(context: CheckContext) -> Iterator[Hit]:
    wants_exclusive = context.job is not None and context.job.exclusive
    for node, facts in context.known:
        names = [(holder, holder.name or "") for holder in facts.locks]
        holders = [
            holder
            for holder, name in names
            if name == NODE_LOCK or (wants_exclusive and name and not name.startswith(GPU_LOCK_PREFIX))
        ]
        for line in describe_holders(holders, {}):
            yield on_node(node, line)
