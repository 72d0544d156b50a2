"""Disks, cgroups, memory, processes, shm."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.framework import CheckContext, Hit, as_root, check, in_inventory, on_node, ssh_to
from clusterctl.plans.checks.system import (
    DISK_FULL,
    DISK_LOW,
    FEW_INODES,
    GIB,
    count_workers,
    render_size,
)
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import Disk
from clusterctl.specs.text import command_line, plural

# File systems that hold the kernel's own things and no files of anybody.
KERNEL_FILE_SYSTEMS = (
    *("bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"),
    *("fusectl", "mqueue", "proc", "pstore", "securityfs", "sysfs", "tracefs"),
)

NETWORK_FILE_SYSTEMS = (
    *(
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gpfs",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "virtiofs",
    ),
    *("fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs", "panfs", "wekafs"),
)
TIMEOUT_PREFIX = "no answer within"  # how the probe says that a question took too long
WORKDIR_QUESTIONS = {"workdir": "the working directory", "workdir_disk": "the working directory"}


def free_bytes(disk: Disk) -> int | None:
    """Give the free bytes; `None` where the file system does not count its blocks (tmpfs without a limit)."""
    return disk.free if disk.total != 0 else None


def _render_free_space(disk: Disk) -> str:
    return f"{render_size(disk.free or 0)} free on {disk.mount or disk.path}"


@check("CC-DISK-002", needs=("workdir", "workdir_disk", "account"))
def workdir_unusable(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        problem = _workdir_problem(facts)
        if problem:
            yield on_node(node, problem, in_inventory(node, "workdir: /a/directory/of/your/own"))


def _workdir_problem(facts: Facts) -> str | None:
    workdir, uid, user = facts.workdir, facts.account.uid, facts.account.user or facts.account.uid
    mode = workdir.mode or 0
    rules = (
        (not workdir.directory, f"{workdir.nearest} is not a directory"),
        (facts.workdir_disk.kind in KERNEL_FILE_SYSTEMS, _on_kernel_file_system(facts)),
        (facts.workdir_disk.read_only, f"{workdir.path} is on a file system that is read-only"),
        (not workdir.writable, f"{workdir.nearest} may not be written by {user}"),
        (
            workdir.exists and workdir.owner != uid,
            f"{workdir.path} belongs to uid {workdir.owner}, not to {user}",
        ),
        (workdir.exists and mode & 0o022, f"{workdir.path} may be written by others (mode {mode:04o})"),
    )
    return next((text for broken, text in rules if broken), None) if workdir.path else None


def _on_kernel_file_system(facts: Facts) -> str:
    return f"{facts.workdir.path} may not be written: it is on a file system of the kernel ({facts.workdir_disk.kind})"


@check("CC-DISK-003", needs=("workdir_disk",))
def disk_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.workdir_disk)
        if free is not None and free < DISK_FULL:
            mount = shlex.quote(facts.workdir_disk.mount or "/")
            yield on_node(
                node,
                _render_free_space(facts.workdir_disk),
                ssh_to(node, f"du -xh --max-depth=3 {mount} | sort -h | tail"),
            )


@check("CC-DISK-004", needs=("workdir_disk",))
def disk_is_low(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.workdir_disk)
        if free is not None and DISK_FULL <= free < DISK_LOW:
            yield on_node(
                node,
                _render_free_space(facts.workdir_disk),
                f"{command_line('clusterctl', 'clean', '--nodes', node.name)}  # old runs go first",
            )


@check("CC-DISK-005", needs=("workdir_disk",))
def few_inodes(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        remaining = facts.workdir_disk.inodes_free
        if remaining is not None and remaining < FEW_INODES:
            mount = shlex.quote(facts.workdir_disk.mount or "/")
            command = ssh_to(node, f"du -x --inodes --max-depth=3 {mount} | sort -n | tail")
            yield on_node(node, f"{plural(remaining, 'inode')} left on {facts.workdir_disk.mount}", command)


@check("CC-DISK-006", needs=("tmp_disk",))
def tmp_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.tmp_disk)
        if free is not None and free < DISK_FULL and facts.tmp_disk.mount != facts.workdir_disk.mount:
            yield on_node(
                node,
                _render_free_space(facts.tmp_disk),
                ssh_to(node, "du -xh --max-depth=2 /tmp | sort -h | tail"),
            )


@check("CC-DISK-007", needs=("home_disk",))
def home_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        disk, is_separate = facts.home_disk, facts.home_disk.mount != facts.workdir_disk.mount
        free = free_bytes(disk)
        if is_separate and free is not None and free < DISK_FULL:
            yield on_node(
                node, _render_free_space(disk), ssh_to(node, "du -xh --max-depth=2 ~ | sort -h | tail")
            )
        elif is_separate and disk.inodes_free == 0:
            command = "find ~ -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail"
            yield on_node(node, f"no inode left on {disk.mount}", ssh_to(node, command))


@check("CC-DISK-008", needs=("python_disk",))
def python_on_network_disk(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.python_disk.kind in NETWORK_FILE_SYSTEMS:
            evidence = f"{facts.python_disk.path} is on {facts.python_disk.mount} ({facts.python_disk.kind})"
            fix = in_inventory(node, "python: /local/copy/bin/python  # if starting takes long")
            yield on_node(node, evidence, fix)


@check("CC-DISK-009")
def workdir_hangs(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        hanging = {
            text: facts.problems[name] for name, text in WORKDIR_QUESTIONS.items() if name in facts.problems
        }
        for directory, problem in hanging.items():
            if problem.startswith(TIMEOUT_PREFIX):
                fix = ssh_to(node, "findmnt -t nfs,nfs4,fuse,cifs; dmesg | tail")
                yield on_node(node, f"{directory}, {node.workdir}: {problem}", fix)


FIRST_USER_UID = 1000  # uid; logind keeps its hands off system accounts
LEFTOVER_LIMIT = 256 << 20  # bytes
PROCESSES_PER_WORKER = 256  # of a worker: its threads, its data loaders and theirs
MEMORY_PER_WORKER = GIB // 2
WORKERS_PER_PROCESSOR = 4  # beyond this it is a mistake of the number
UTF8 = ("utf-8", "utf8")
LEFTOVER_FILES = (
    "find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls"
)


@check("CC-SYS-013", needs=("logind", "account"))
def removes_shared_memory(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if (
            facts.logind.removes_ipc
            and not facts.logind.linger
            and (facts.account.uid or 0) >= FIRST_USER_UID
        ):
            user = shlex.quote(facts.account.user) if facts.account.user else "$USER"
            fix = as_root(node, facts, f"loginctl enable-linger {user}")
            yield on_node(node, "RemoveIPC=yes, no lingering", fix)


@check("CC-SYS-014", needs=("shm_left",))
def shared_memory_left(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        files, size = facts.shm_left.files or 0, facts.shm_left.bytes or 0
        if size >= LEFTOVER_LIMIT:
            fix = f"{ssh_to(node, LEFTOVER_FILES)}  # -delete in place of -ls, while no run is there"
            yield on_node(node, f"{plural(files, 'file')}, {render_size(size)} in /dev/shm", fix)


@check("CC-SYS-015", needs=("limits", "cgroup", "account"))
def few_processes(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        needed, uid = PROCESSES_PER_WORKER * count_workers(context, facts), facts.account.uid
        limit = facts.limits.nproc.soft if facts.limits.nproc and uid else None
        remaining = facts.cgroup.pids_free
        if limit is not None and 0 <= limit < needed:
            line = f"{facts.account.user or '*'} - nproc 65536"
            yield on_node(node, f"ulimit -u is {limit}", f"/etc/security/limits.conf on {node.name}: {line}")
        elif remaining is not None and remaining < needed:
            fix = as_root(node, facts, f"systemctl set-property user-{uid}.slice TasksMax=infinity")
            evidence = f"{remaining} left of the control group's pids.max"
            yield on_node(node, evidence, f"{fix}  # in a container: --pids-limit")


@check("CC-SYS-016", needs=("machine", "cgroup"))
def memory_is_limited(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        limit, memory = facts.cgroup.memory or facts.machine.memory_limit, facts.machine.memory
        if limit and memory and limit < 0.9 * memory:
            command = ssh_to(node, "cat /proc/self/cgroup; systemctl show -p MemoryMax user-$(id -u).slice")
            yield on_node(node, f"{render_size(limit)} of {render_size(memory)}", command)


@check("CC-SYS-017", needs=("machine", "cgroup"))
def little_memory(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free_values = [
            value for value in (facts.machine.memory_free, facts.cgroup.memory_free) if value is not None
        ]
        workers = count_workers(context, facts)
        if free_values and min(free_values) < MEMORY_PER_WORKER * workers:
            command = ssh_to(node, "free -h; ps -eo user,rss,args --sort -rss | head")
            yield on_node(
                node, f"{render_size(min(free_values))} free for {plural(workers, 'worker')}", command
            )


@check("CC-SYS-018", needs=("machine", "cgroup"))
def few_processors(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        total, quota = facts.machine.cpus or 0, facts.cgroup.cpus
        usable = min(facts.machine.cpus_allowed or total, total if quota is None else quota)
        workers = count_workers(context, facts)
        if usable < min(total, workers) or 0 < WORKERS_PER_PROCESSOR * usable < workers:
            some, quota_hint = (f"{usable:g} of ", "  # or a higher quota") if usable < total else ("", "")
            evidence = f"{some}{plural(total, 'processor')} for {plural(workers, 'worker')}"
            yield on_node(node, evidence, f"job: nproc_per_node: {max(1, int(usable))}{quota_hint}")


@check("CC-SYS-019", needs=("text",))
def not_utf8(context: CheckContext) -> Iterator[Hit]:
    is_set_by_job = context.job is not None and context.job.env.get("PYTHONUTF8") == "1"
    for node, facts in context.known:
        encoding = facts.text.encoding
        if encoding and encoding.lower() not in UTF8 and not is_set_by_job:
            variables = ", ".join(facts.text.variables) or "no locale is set"
            yield on_node(node, f"{encoding} ({variables})", 'job: env: {PYTHONUTF8: "1"}')
