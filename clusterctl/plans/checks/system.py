"""Disks, limits, clocks, identity and leftovers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.remedy import as_root, in_inventory, ssh_to, without
from clusterctl.plans.checks.voting import split_votes
from clusterctl.specs.job import VISIBLE
from clusterctl.specs.nodeset import fold_names

MIB, GIB = 1 << 20, 1 << 30
FULL, LOW = 100 * 1000 * 1000, GIB  # bytes
FEW_INODES = 5000
SHM_PER_PROCESS = 256 * MIB
# What a launch takes away from a job's environment, so that it does no harm there.
CLEARED = ("PET_", "TORCHELASTIC_", "MASTER_")
CLEARED_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
HOSTID = "NCCL_HOSTID"  # takes the place of hostname and boot where NCCL tells machines apart
# What a launch sets by itself, per node, whatever was there before.
REPLACED = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "GLOO_IFACE",
    "TP_SOCKET_IFNAME",
    "HCCL_SOCKET_IFNAME",
)


def size_text(number: int) -> str:
    """Write a number of bytes for people."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number >> 10} KiB"


@check(
    "CC-SYS-001",
    "error",
    "two nodes are one machine",
    why="Both would start processes on the same GPUs, and NCCL refuses that.",
    needs=("machine",),
)
def same_machine_with_gpus(seen: Situation) -> Iterator[Hit]:
    """Two nodes of the inventory report the same boot and the same hostname.

    Perhaps one machine is listed by name and by address. NCCL tells machines apart by exactly these two
    values; for containers that share both on purpose, set NCCL_HOSTID to a different value in each, and this
    check takes them for two as NCCL does.
    """
    if seen.wants_gpus():
        yield from _same_machines(seen)


@check(
    "CC-SYS-002",
    "warning",
    "two nodes are one machine",
    why="They share its processors, so nothing becomes faster by the second one.",
    needs=("machine",),
)
def same_machine(seen: Situation) -> Iterator[Hit]:
    """Two nodes of the inventory are one machine: same boot, same hostname. Fine for a trial on CPUs."""
    if not seen.wants_gpus():
        yield from _same_machines(seen)


def _same_machines(seen: Situation) -> Iterator[Hit]:
    nodes_of: dict[tuple[str, str, str], list[str]] = {}
    for node, facts in seen.known:
        if facts.machine.boot_id and facts.machine.hostname:
            identity = (facts.machine.hostname, facts.machine.boot_id, facts.environment.get(HOSTID, ""))
            nodes_of.setdefault(identity, []).append(node.name)
    for (hostname, _, _), names in nodes_of.items():
        if len(names) > 1:
            yield across(
                names, f"{fold_names(names)}: hostname {hostname}, same boot", f"add --exclude {names[-1]}"
            )


@check(
    "CC-SYS-003",
    "warning",
    "few open files are allowed",
    why="Every connection and data loader needs some; the job ends with `Too many open files`.",
    needs=("limits",),
)
def few_open_files(seen: Situation) -> Iterator[Hit]:
    """The limit `nofile` of an SSH session is small. 65536 is a good value for large jobs."""
    for node, facts in seen.known:
        limit = facts.limits.nofile
        low = limit and (0 <= (limit.soft or 0) < 1024 or 0 <= (limit.hard or 0) < 4096)
        if limit and low:
            user = facts.account.user or "*"
            line = f"{user} - nofile 65536"
            yield on(
                node,
                f"soft {limit.soft}, hard {limit.hard}",
                f"/etc/security/limits.conf on {node.name}: {line}",
            )


@check(
    "CC-SYS-004",
    "warning",
    "/dev/shm is small",
    why="Data loaders and NCCL share memory there; too little ends in a bus error.",
    needs=("shm_disk",),
)
def small_shm(seen: Situation) -> Iterator[Hit]:
    """The shared memory of the node has less room than 256 MiB per process.

    Docker gives a container 64 MiB unless told otherwise: --shm-size=8g or --ipc=host.
    """
    for node, facts in seen.known:
        count = seen.job.nproc_per_node if seen.job else 1
        processes = count if isinstance(count, int) else facts.gpus.count or 1
        free = facts.shm_disk.free if facts.shm_disk.total != 0 else None  # 0: a tmpfs without a limit
        if free is not None and free < SHM_PER_PROCESS * processes:
            yield on(
                node, f"{size_text(free)} free", as_root(node, facts, "mount -o remount,size=8G /dev/shm")
            )


@check(
    "CC-SYS-005",
    "info",
    "leftover variables of another job",
    why="A launch by clusterctl clears them; a torchrun started by hand would obey them.",
    needs=("environment",),
)
def leftovers(seen: Situation) -> Iterator[Hit]:
    """The environment of an SSH session already holds RANK, MASTER_ADDR, PET_* or the like.

    They come from /etc/environment, a profile file or an image. torchrun takes the default of every flag from
    PET_*, so one of them silently changes a job.
    """
    for node, facts in seen.known:
        found = [name for name in facts.environment if name.startswith(CLEARED) or name in CLEARED_NAMES]
        if found:
            told = ", ".join(f"{name}={facts.environment[name]}" for name in found[:6])
            yield on(
                node,
                told,
                ssh_to(node, "grep -rnE '(RANK|MASTER_|PET_|WORLD_SIZE)' /etc/environment /etc/profile.d"),
            )


@check(
    "CC-SYS-006",
    "warning",
    "the nodes' environments differ",
    why="Such a variable steers torch, NCCL or Gloo on some nodes and not on others.",
    needs=("environment",),
)
def environments_differ(seen: Situation) -> Iterator[Hit]:
    """The environments of SSH sessions differ in variables that change what torch, NCCL or Gloo do.

    A launch replaces the NIC variables and leaves the others. If all nodes should have one, write it in the job's
    `env:`; otherwise remove it from the node's start files.
    """
    names = {name for _, facts in seen.known for name in facts.environment if not _is_handled(seen, name)}
    for name in sorted(names):
        values = {node.name: facts.environment.get(name, "unset") for node, facts in seen.known}
        split = split_votes(values)
        if split:
            yield across(
                split.odd, f"{name}: {split.evidence}", f"job: env: {{{name}: ...}}  # the same everywhere"
            )


def _is_handled(seen: Situation, name: str) -> bool:
    cleared = name.startswith(CLEARED) or name in (*CLEARED_NAMES, HOSTID)
    return cleared or name in REPLACED or name in VISIBLE or bool(seen.job and name in seen.job.env)


@check(
    "CC-SYS-007",
    "warning",
    "little memory may be locked",
    why="InfiniBand and RoCE lock their buffers; NCCL fails with `ibv_reg_mr failed`.",
    needs=("limits", "infiniband"),
)
def low_memlock(seen: Situation) -> Iterator[Hit]:
    """The node has InfiniBand or RoCE adapters and the limit `memlock` of an SSH session is not unlimited."""
    for node, facts in seen.known:
        limit = facts.limits.memlock
        if facts.infiniband and limit and limit.soft is not None and 0 <= limit.soft < GIB:
            user = facts.account.user or "*"
            fix = f"/etc/security/limits.conf on {node.name}: {user} - memlock unlimited"
            yield on(node, f"{size_text(limit.soft)} for {facts.infiniband[0].adapter}", fix)


@check(
    "CC-SYS-008",
    "warning",
    "the stack is unlimited",
    why="glibc then gives every thread 2 MiB of stack, and NCCL's threads can crash while it starts.",
    needs=("limits",),
)
def unlimited_stack(seen: Situation) -> Iterator[Hit]:
    """`ulimit -s unlimited` makes thread stacks smaller, not larger. 8192 is the usual value."""
    for node, facts in seen.known:
        if seen.wants_gpus() and facts.limits.stack and facts.limits.stack.soft == -1:
            yield on(node, "stack unlimited", in_inventory(node, "activate: ulimit -s 8192"))


@check(
    "CC-SYS-009",
    "warning",
    "logind ends processes at logout",
    why="A run would be killed when the last SSH session of this user ends.",
    needs=("logind",),
)
def kills_at_logout(seen: Situation) -> Iterator[Hit]:
    """KillUserProcesses=yes is set for systemd-logind, and lingering is off for this user."""
    for node, facts in seen.known:
        if facts.logind.kills and not facts.logind.linger:
            user = shlex.quote(facts.account.user) if facts.account.user else "$USER"
            yield on(node, "KillUserProcesses=yes", as_root(node, facts, f"loginctl enable-linger {user}"))


@check(
    "CC-SYS-010",
    "warning",
    "the processor architectures differ",
    why="Compiled code does not move between them, and results may differ in the last digits.",
    needs=("platform",),
)
def architectures_differ(seen: Situation) -> Iterator[Hit]:
    """Some nodes are x86_64 and some aarch64, say. torch may work across them; other packages may not."""
    told = {node.name: facts.platform.machine for node, facts in seen.known}
    split = split_votes({name: machine for name, machine in told.items() if machine})
    if split:
        each = "give each node a Python environment of its own architecture"
        yield across(split.odd, split.evidence, f"{each}, or {without(split.odd)}")


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
TOLD_ELSEWHERE = ("workdir", "workdir_disk")  # where they hang: CC-DISK-009


@check(
    "CC-SYS-011",
    "warning",
    "a question was not answered",
    why="What could not be asked was not checked.",
)
def unanswered(seen: Situation) -> Iterator[Hit]:
    """The node answered, but one of the questions failed or took longer than its own limit (2 s, 7.5 s for GPUs).

    A file system hangs, a name server is silent, a file may not be read, a tool is broken.
    """
    for node, facts in seen.known:
        for question, problem in facts.problems.items():
            if question not in TOLD_ELSEWHERE or not problem.startswith("no answer within"):
                what = QUESTIONS.get(question)
                told = f"{question}{f' ({what})' if what else ''}: {problem}"
                yield on(node, told, ssh_to(node, "uptime; df; dmesg | tail"))
