"""A run's share of the node: memory, processors, processes, shared memory, and how text is read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, check, on
from clusterctl.plans.checks.remedy import as_root, ssh_to
from clusterctl.plans.checks.system import GIB, size_text
from clusterctl.plans.facts import Facts
from clusterctl.specs.counted import counted

FIRST_PERSON = 1000  # uid; logind keeps its hands off system accounts
MUCH_LEFT = 256 << 20  # bytes
PROCESSES_EACH = 256  # of a worker: its threads, its data loaders and theirs
MEMORY_EACH = GIB // 2
UTF8 = ("utf-8", "utf8")
LEFT_FILES = (
    "find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls"
)


def workers_of(seen: Situation, facts: Facts) -> int:
    """Give the number of workers that a node would run; without a job one per GPU."""
    wanted = seen.job.nproc_per_node if seen.job else "gpu"
    if seen.job and seen.job.one_process:
        return 1
    if wanted == "cpu":
        return facts.machine.cpus_allowed or 1
    return wanted if isinstance(wanted, int) else facts.gpus.count or 1


@check(
    "CC-SYS-013",
    "info",
    "logind removes shared memory at logout",
    why="Files of a run in /dev/shm may vanish when the last session of this user ends.",
    needs=("logind", "account"),
)
def removes_shared_memory(seen: Situation) -> Iterator[Hit]:
    """RemoveIPC is on for systemd-logind, which is its default, and lingering is off for this user.

    When a user has no session and no process of a session left, logind removes the user's shared memory. NCCL says
    `unlink shared memory /dev/shm/nccl-... failed, error: No such file or directory`. Lingering prevents it.
    """
    for node, facts in seen.known:
        if facts.logind.removes_ipc and not facts.logind.linger and (facts.account.uid or 0) >= FIRST_PERSON:
            user = shlex.quote(facts.account.user) if facts.account.user else "$USER"
            fix = as_root(node, facts, f"loginctl enable-linger {user}")
            yield on(node, "RemoveIPC=yes, no lingering", fix)


@check(
    "CC-SYS-014",
    "warning",
    "dead processes left shared memory",
    why="What they left in /dev/shm takes memory until it is removed or the node restarts.",
    needs=("shm_left",),
)
def shared_memory_left(seen: Situation) -> Iterator[Hit]:
    """Files of this account in /dev/shm that nobody can need any more take 256 MiB or more.

    torch_PID_... of a process that is gone, and nccl-... that are older than an hour. A killed data loader leaves the
    former, a killed rank the latter. Newer files of NCCL may be in use and are not counted.
    """
    for node, facts in seen.known:
        files, size = facts.shm_left.files or 0, facts.shm_left.bytes or 0
        if size >= MUCH_LEFT:
            fix = f"{ssh_to(node, LEFT_FILES)}  # -delete in place of -ls, while no run is there"
            yield on(node, f"{counted(files, 'file')}, {size_text(size)} in /dev/shm", fix)


@check(
    "CC-SYS-015",
    "warning",
    "few processes may be started",
    why="Workers, their threads and data loaders end with `Resource temporarily unavailable`.",
    needs=("limits", "cgroup", "account"),
)
def few_processes(seen: Situation) -> Iterator[Hit]:
    """Fewer processes and threads are allowed than 256 for each worker.

    The limit is `ulimit -u` of an SSH session, which does not hold for root, or what the control group has left
    (pids.max, as containers and systemd set it: TasksMax).
    """
    for node, facts in seen.known:
        wanted, uid = PROCESSES_EACH * workers_of(seen, facts), facts.account.uid
        limit = facts.limits.nproc.soft if facts.limits.nproc and uid else None
        left = facts.cgroup.pids_free
        if limit is not None and 0 <= limit < wanted:
            line = f"{facts.account.user or '*'} - nproc 65536"
            yield on(node, f"ulimit -u is {limit}", f"/etc/security/limits.conf on {node.name}: {line}")
        elif left is not None and left < wanted:
            fix = as_root(node, facts, f"systemctl set-property user-{uid}.slice TasksMax=infinity")
            evidence = f"{left} left of the control group's pids.max"
            yield on(node, evidence, f"{fix}  # in a container: --pids-limit")


@check(
    "CC-SYS-016",
    "info",
    "a control group limits memory",
    why="The kernel ends a process that goes beyond it, however much memory the machine has.",
    needs=("machine", "cgroup"),
)
def memory_is_limited(seen: Situation) -> Iterator[Hit]:
    """A container, a systemd slice or a batch system grants the session less than nine tenths of the memory.

    A worker that goes beyond it ends by signal 9, and `free` shows nothing of it.
    """
    for node, facts in seen.known:
        limit, memory = facts.cgroup.memory or facts.machine.memory_limit, facts.machine.memory
        if limit and memory and limit < 0.9 * memory:
            look = ssh_to(node, "cat /proc/self/cgroup; systemctl show -p MemoryMax user-$(id -u).slice")
            yield on(node, f"{size_text(limit)} of {size_text(memory)}", look)


@check(
    "CC-SYS-017",
    "warning",
    "little memory is free",
    why="The kernel's OOM killer ends a worker with signal 9, often minutes into a run.",
    needs=("machine", "cgroup"),
)
def little_memory(seen: Situation) -> Iterator[Hit]:
    """Less memory is free than 512 MiB for each worker, on the node or in the session's control group.

    `import torch` alone takes some 200 MB in each worker. See who has it: other people's processes, or a run that was
    left behind (`clusterctl ps --orphans`).
    """
    for node, facts in seen.known:
        room = [one for one in (facts.machine.memory_free, facts.cgroup.memory_free) if one is not None]
        workers = workers_of(seen, facts)
        if room and min(room) < MEMORY_EACH * workers:
            look = ssh_to(node, "free -h; ps -eo user,rss,args --sort -rss | head")
            yield on(node, f"{size_text(min(room))} free for {counted(workers, 'worker')}", look)


@check(
    "CC-SYS-018",
    "warning",
    "more workers than processors",
    why="Workers that take turns make every all-reduce wait.",
    needs=("machine", "cgroup"),
)
def few_processors(seen: Situation) -> Iterator[Hit]:
    """The session may use only some of the node's processors, and fewer than there would be workers.

    The reason is a control group's quota (cpu.max, `docker --cpus`), or a set of processors (cpuset, taskset, a batch
    system).
    """
    for node, facts in seen.known:
        total, quota = facts.machine.cpus or 0, facts.cgroup.cpus
        usable = min(facts.machine.cpus_allowed or total, total if quota is None else quota)
        workers = workers_of(seen, facts)
        if usable < min(total, workers):
            evidence = f"{usable:g} of {counted(total, 'processor')} for {counted(workers, 'worker')}"
            yield on(node, evidence, f"job: nproc_per_node: {max(1, int(usable))}  # or a higher quota")


@check(
    "CC-SYS-019",
    "warning",
    "text is not read as UTF-8",
    why="A script that prints or reads other letters fails with UnicodeEncodeError or UnicodeDecodeError.",
    needs=("text",),
)
def not_utf8(seen: Situation) -> Iterator[Hit]:
    """Python takes its encoding for files and output from the locale of an SSH session, and that is another one.

    Python reads the locales C and POSIX as UTF-8; others, such as zh_CN.GBK, it obeys. `env: {PYTHONUTF8: 1}` in the
    job settles it for all nodes.
    """
    settled = seen.job is not None and seen.job.env.get("PYTHONUTF8") == "1"
    for node, facts in seen.known:
        encoding = facts.text.encoding
        if encoding and encoding.lower() not in UTF8 and not settled:
            told = ", ".join(facts.text.variables) or "no locale is set"
            yield on(node, f"{encoding} ({told})", 'job: env: {PYTHONUTF8: "1"}')
