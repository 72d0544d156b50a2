"""Identity, limits, clocks, leftovers, locks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    across_nodes,
    as_root,
    check,
    exclude_option,
    in_inventory,
    on_node,
    split_votes,
    ssh_to,
)
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.gpu_use import GPU_LOCK_PREFIX, NODE_LOCK, describe_holders
from clusterctl.plans.facts.records import LockHolder
from clusterctl.plans.launch.placement import plan_devices
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import plural

MIB, GIB = 1 << 20, 1 << 30
DISK_FULL, DISK_LOW = 100 * 1000 * 1000, GIB  # bytes
FEW_INODES = 5000
SHM_PER_PROCESS = 256 * MIB
# What a launch takes away from a job's environment, so that it does no harm there.
CLEARED_PREFIXES = ("PET_", "TORCHELASTIC_", "MASTER_")
CLEARED_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
NCCL_HOSTID = "NCCL_HOSTID"  # takes the place of hostname and boot where NCCL tells machines apart
# What a launch sets by itself, per node, whatever was there before.
REPLACED_NAMES = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "GLOO_IFACE",
    "TP_SOCKET_IFNAME",
    "HCCL_SOCKET_IFNAME",
)


def count_workers(context: CheckContext, facts: Facts) -> int:
    """Give the number of workers that a node would run; without a job one per GPU."""
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
def same_machine_with_gpus(context: CheckContext) -> Iterator[Hit]:
    if context.needs_gpus():
        yield from _same_machines(context)


@check("CC-SYS-002", needs=("machine",))
def same_machine(context: CheckContext) -> Iterator[Hit]:
    if not context.needs_gpus():
        yield from _same_machines(context)


def _same_machines(context: CheckContext) -> Iterator[Hit]:
    nodes_of: dict[tuple[str, str, str], list[str]] = {}
    for node, facts in context.known:
        if facts.machine.boot_id and facts.machine.hostname:
            identity = (facts.machine.hostname, facts.machine.boot_id, facts.environment.get(NCCL_HOSTID, ""))
            nodes_of.setdefault(identity, []).append(node.name)
    for (hostname, _, _), names in nodes_of.items():
        if len(names) > 1:
            yield across_nodes(
                names, f"{fold_names(names)}: hostname {hostname}, same boot", f"add --exclude {names[-1]}"
            )


@check("CC-SYS-003", needs=("limits",))
def few_open_files(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        limit = facts.limits.nofile
        is_low = limit and (0 <= (limit.soft or 0) < 1024 or 0 <= (limit.hard or 0) < 4096)
        if limit and is_low:
            user = facts.account.user or "*"
            line = f"{user} - nofile 65536"
            yield on_node(
                node,
                f"soft {limit.soft}, hard {limit.hard}",
                f"/etc/security/limits.conf on {node.name}: {line}",
            )


@check("CC-SYS-004", needs=("shm_disk",))
def small_shm(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        workers, total = count_workers(context, facts), facts.shm_disk.total
        free = facts.shm_disk.free if total != 0 else None  # 0: a tmpfs without a limit
        needed = SHM_PER_PROCESS * workers
        if free is not None and free < needed:
            evidence = (
                f"{render_size(free)} free; {plural(workers, 'worker')} of {render_size(SHM_PER_PROCESS)} each "
                f"need {render_size(needed)}"
            )
            yield on_node(node, evidence, _enlarge_shm(node, facts, free, needed))


def _enlarge_shm(node: Node, facts: Facts, free: int, needed: int) -> str:
    """Give the command that makes /dev/shm large enough beside what is in it, as far as there is memory for that."""
    total = max(facts.shm_disk.total or 0, free)
    size, memory = total - free + needed, facts.machine.memory or 0
    if 0 < memory < size:
        fitting = max(1, free // SHM_PER_PROCESS)
        return f"job: nproc_per_node: {fitting}  # {render_size(needed)} are more than the node's memory"
    remount = f"mount -o remount,size={-(-size // GIB)}G /dev/shm"
    in_use = f"{render_size(total - free)} in use + " if total > free else ""
    return f"{as_root(node, facts, remount)}  # {in_use}{render_size(needed)}"


@check("CC-SYS-005", needs=("environment",))
def leftover_variables(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        names = [
            name for name in facts.environment if name.startswith(CLEARED_PREFIXES) or name in CLEARED_NAMES
        ]
        if names:
            evidence = ", ".join(f"{name}={facts.environment[name]}" for name in names[:6])
            yield on_node(
                node,
                evidence,
                ssh_to(node, "grep -rnE '(RANK|MASTER_|PET_|WORLD_SIZE)' /etc/environment /etc/profile.d"),
            )


@check("CC-SYS-006", needs=("environment",))
def environments_differ(context: CheckContext) -> Iterator[Hit]:
    names = {
        name for _, facts in context.known for name in facts.environment if not _is_handled(context, name)
    }
    for name in sorted(names):
        values = {node.name: facts.environment.get(name, "unset") for node, facts in context.known}
        split = split_votes(values)
        if split:
            yield across_nodes(
                split.odd, f"{name}: {split.evidence}", f"job: env: {{{name}: ...}}  # the same everywhere"
            )


def _is_handled(context: CheckContext, name: str) -> bool:
    is_cleared = name.startswith(CLEARED_PREFIXES) or name in (*CLEARED_NAMES, NCCL_HOSTID)
    return (
        is_cleared
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
            fix = f"/etc/security/limits.conf on {node.name}: {user} - memlock unlimited"
            yield on_node(node, f"{render_size(limit.soft)} for {facts.infiniband[0].adapter}", fix)


@check("CC-SYS-008", needs=("limits",))
def unlimited_stack(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if context.needs_gpus() and facts.limits.stack and facts.limits.stack.soft == -1:
            yield on_node(node, "stack unlimited", in_inventory(node, "activate: ulimit -s 8192"))


@check("CC-SYS-009", needs=("logind",))
def kills_at_logout(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.logind.kills and not facts.logind.linger:
            user = shlex.quote(facts.account.user) if facts.account.user else "$USER"
            yield on_node(
                node, "KillUserProcesses=yes", as_root(node, facts, f"loginctl enable-linger {user}")
            )


@check("CC-SYS-010", needs=("platform",))
def architectures_differ(context: CheckContext) -> Iterator[Hit]:
    machines = {node.name: facts.platform.machine for node, facts in context.known}
    split = split_votes({name: machine for name, machine in machines.items() if machine})
    if split:
        fix = "give each node a Python environment of its own architecture"
        yield across_nodes(split.odd, split.evidence, f"{fix}, or {exclude_option(split.odd)}")


# What the questions of the probe are about, in the words of somebody who must mend it.
QUESTIONS = {
    "gpus": "nvidia-smi or its like",
    "workdir": "the working directory",
    "workdir_disk": "the file system of the working directory",
    "home_disk": "the file system of the home",
    "tmp_disk": "the file system of /tmp",
    "shm_disk": "/dev/shm",
    "shm_left": "/dev/shm",
    "python_disk": "the file system of Python",
    "torch": "torch's files",
    "packages": "the list of packages",
    "installed": "the list of packages",
    "nccl": "the library of NCCL",
    "nccl_conf": "NCCL's settings files",
    "nics": "the list of NICs",
    "routes": "the names and routes of the other nodes",
    "address": "the name of the node itself",
    "hostname": "the node's hostname",
    "activate": "what `activate` gave",
    "locks": "who holds the GPUs",
}
REPORTED_ELSEWHERE = ("workdir", "workdir_disk")  # where they hang: CC-DISK-009


@check("CC-SYS-011")
def unanswered_questions(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        for question, problem in facts.problems.items():
            if question not in REPORTED_ELSEWHERE or not problem.startswith("no answer within"):
                subject = QUESTIONS.get(question)
                evidence = f"{question}{f' ({subject})' if subject else ''}: {problem}"
                yield on_node(node, evidence, ssh_to(node, "uptime; df; dmesg | tail"))


LARGEST_OFFSET = 2.0  # seconds


def _offsets(context: CheckContext) -> dict[str, tuple[float, float]]:
    clocks = {node.name: facts.clock for node, facts in context.known}
    return {
        name: (clock.offset, clock.error or 0.0) for name, clock in clocks.items() if clock.offset is not None
    }


def _common_offset(context: CheckContext) -> float:
    """Give by how much all nodes are off together, in seconds: then the clock here is the wrong one. Else 0."""
    offsets = sorted(_offsets(context).values())
    if len(offsets) < 2:
        return 0.0
    median, error = offsets[len(offsets) // 2]
    agreeing = sum(abs(offset - median) <= LARGEST_OFFSET for offset, _ in offsets)
    is_local_clock_wrong = abs(median) - error > LARGEST_OFFSET and agreeing > len(offsets) / 2
    return median if is_local_clock_wrong else 0.0


def _describe_direction(offset: float, others: str) -> str:
    return f"ahead of {others}" if offset > 0 else f"behind {others}"


@check("CC-TIME-001", needs=("clock",))
def clock_is_wrong(context: CheckContext) -> Iterator[Hit]:
    common_offset = _common_offset(context)
    offsets = _offsets(context)
    for node, facts in context.known:
        offset, error = offsets.get(node.name, (0.0, 0.0))
        relative_offset = offset - common_offset
        if node.name in offsets and abs(relative_offset) - error > LARGEST_OFFSET:
            direction = (
                _describe_direction(relative_offset, "the other nodes")
                if common_offset
                else "ahead"
                if relative_offset > 0
                else "behind"
            )
            evidence = f"{abs(relative_offset):.1f} s {direction} (known to {error:.2f} s)"
            yield on_node(node, evidence, as_root(node, facts, "chronyc makestep"))


@check("CC-TIME-002", needs=("clock",))
def local_clock_is_wrong(context: CheckContext) -> Iterator[Hit]:
    common_offset = _common_offset(context)
    if common_offset:
        names = [node.name for node, _ in context.known]
        yield across_nodes(
            names,
            f"this machine is {abs(common_offset):.1f} s {_describe_direction(-common_offset, 'the nodes')}",
            "sudo chronyc makestep  # here",
        )


def _list_gpu_holders(context: CheckContext, node: Node, facts: Facts) -> tuple[LockHolder, ...]:
    """Give the holders of the GPUs that the job would take; without a job, of any."""
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
            yield on_node(
                node, line, "clusterctl launch --wait, or stop that run, or choose other GPUs or nodes"
            )


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
            yield on_node(node, line, "clusterctl launch --wait, or stop that run, or choose other nodes")
