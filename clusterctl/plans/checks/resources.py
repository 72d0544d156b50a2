"""Disks, cgroups, memory, processes, shm."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import CheckContext, Hit, across_nodes, check, join_items, on_node
from clusterctl.plans.checks.system import (
    DISK_FULL,
    DISK_LOW,
    FEW_INODES,
    GIB,
    count_workers,
    render_size,
)
from clusterctl.protocol.messages.facts import Checkpoint, Disk, Facts
from clusterctl.protocol.run_paths import WorkdirPaths
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr, trn

# File systems of the kernel's own, without files of users.
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
TIMEOUT_PREFIX = "no answer within"  # how a node begins the report that a question took too long
WORKDIR_QUESTIONS = {
    "workdir": to_translate("the working directory"),
    "workdir_disk": to_translate("the working directory"),
}
FIRST_USER_UID = 1000  # uid; logind does not touch system accounts
LEFTOVER_LIMIT = 256 << 20  # bytes
PROCESSES_PER_WORKER = 256  # a worker, its threads, its data loaders and their threads
MEMORY_PER_WORKER = GIB // 2
WORKERS_PER_PROCESSOR = 4  # beyond this it is a mistake of the number
UTF8 = ("utf-8", "utf8")


def free_bytes(disk: Disk) -> int | None:
    """Return the free bytes; `None` where the file system does not count its blocks (tmpfs without a limit)."""
    return disk.free if disk.total != 0 else None


def _render_free_space(disk: Disk) -> str:
    return tr("{size} free on {mount}", size=render_size(disk.free or 0), mount=disk.mount or disk.path)


@check("CC-DISK-002", needs=("workdir", "workdir_disk", "account"))
def workdir_unusable(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        problem = _workdir_problem(facts)
        if problem:
            yield on_node(node, problem)


def _workdir_problem(facts: Facts) -> str | None:
    workdir, uid, user = facts.workdir, facts.account.uid, facts.account.user or facts.account.uid
    mode = workdir.mode or 0
    rules = (
        (not workdir.directory, to_translate("{nearest} is not a directory")),
        (
            facts.workdir_disk.kind in KERNEL_FILE_SYSTEMS,
            to_translate("{path} cannot be written: it is on a file system of the kernel ({kind})"),
        ),
        (facts.workdir_disk.read_only, to_translate("{path} is on a read-only file system")),
        (not workdir.writable, to_translate("{nearest} is not writable for {user}")),
        (
            workdir.exists and workdir.owner != uid,
            to_translate("{path} belongs to uid {owner}, not to {user}"),
        ),
        (workdir.exists and mode & 0o022, to_translate("{path} is writable for others (mode {mode})")),
    )
    message = next((text for broken, text in rules if broken), None)
    if message is None or not workdir.path:
        return None
    return tr(
        message,
        nearest=workdir.nearest,
        path=workdir.path,
        kind=facts.workdir_disk.kind,
        user=user,
        owner=workdir.owner,
        mode=f"{mode:04o}",
    )


@check("CC-DISK-003", needs=("workdir_disk",))
def disk_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.workdir_disk)
        if free is not None and free < DISK_FULL:
            mount = shlex.quote(facts.workdir_disk.mount or "/")
            yield on_node(node, _render_free_space(facts.workdir_disk), mount=mount)


@check("CC-DISK-004", needs=("workdir_disk",))
def disk_is_low(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.workdir_disk)
        if free is not None and DISK_FULL <= free < DISK_LOW:
            yield on_node(
                node,
                _render_free_space(facts.workdir_disk),
                command=command_line("clean", "--nodes", node.name, command=context.program),
            )


@check("CC-DISK-005", needs=("workdir_disk",))
def few_inodes(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        remaining = facts.workdir_disk.inodes_free
        if remaining is not None and remaining < FEW_INODES:
            mount = shlex.quote(facts.workdir_disk.mount or "/")
            evidence = trn(
                "{n} inode left on {mount}",
                "{n} inodes left on {mount}",
                remaining,
                mount=facts.workdir_disk.mount,
            )
            yield on_node(node, evidence, mount=mount)


@check("CC-DISK-006", needs=("tmp_disk",))
def tmp_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free = free_bytes(facts.tmp_disk)
        if free is not None and free < DISK_FULL and facts.tmp_disk.mount != facts.workdir_disk.mount:
            yield on_node(node, _render_free_space(facts.tmp_disk))


@check("CC-DISK-007", needs=("home_disk",))
def home_is_full(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        disk, is_separate = facts.home_disk, facts.home_disk.mount != facts.workdir_disk.mount
        free = free_bytes(disk)
        if is_separate and free is not None and free < DISK_FULL:
            yield on_node(node, _render_free_space(disk))
        elif is_separate and disk.inodes_free == 0:
            yield on_node(node, tr("no inode left on {mount}", mount=disk.mount), "inodes")


@check("CC-DISK-008", needs=("python_disk",))
def python_on_network_disk(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.python_disk.kind in NETWORK_FILE_SYSTEMS:
            evidence = tr(
                "{path} is on {mount} ({kind})",
                path=facts.python_disk.path,
                mount=facts.python_disk.mount,
                kind=facts.python_disk.kind,
            )
            yield on_node(node, evidence)


@check("CC-DISK-009")
def workdir_hangs(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        hanging = {
            text: facts.problems[name] for name, text in WORKDIR_QUESTIONS.items() if name in facts.problems
        }
        for directory, problem in hanging.items():
            if problem.startswith(TIMEOUT_PREFIX):
                subject = join_items([tr(directory), node.workdir])
                yield on_node(
                    node, tr("{subject}: {text}", subject=subject, text=translate_node_text(problem))
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
            yield on_node(node, tr("RemoveIPC=yes, no lingering"), user=user)


@check("CC-SYS-014", needs=("shm_left",))
def shared_memory_left(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        files, size = facts.shm_left.files or 0, facts.shm_left.bytes or 0
        if size >= LEFTOVER_LIMIT:
            evidence = trn(
                "{n} file, {size} in /dev/shm", "{n} files, {size} in /dev/shm", files, size=render_size(size)
            )
            yield on_node(node, evidence)


@check("CC-SYS-015", needs=("limits", "cgroup", "account"))
def few_processes(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        needed, uid = PROCESSES_PER_WORKER * count_workers(context, facts), facts.account.uid
        limit = facts.limits.nproc.soft if facts.limits.nproc and uid else None
        remaining = facts.cgroup.pids_free
        if limit is not None and 0 <= limit < needed:
            yield on_node(node, tr("ulimit -u is {limit}", limit=limit), user=facts.account.user or "*")
        elif remaining is not None and remaining < needed:
            evidence = tr("the cgroup's pids.max allows {count} more processes and threads", count=remaining)
            yield on_node(node, evidence, "cgroup", uid=uid)


@check("CC-SYS-016", needs=("machine", "cgroup"))
def memory_is_limited(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        limit, memory = facts.cgroup.memory or facts.machine.memory_limit, facts.machine.memory
        if limit and memory and limit < 0.9 * memory:
            yield on_node(node, tr("{size} of {total}", size=render_size(limit), total=render_size(memory)))


@check("CC-SYS-017", needs=("machine", "cgroup"))
def little_memory(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        free_values = [
            value for value in (facts.machine.memory_free, facts.cgroup.memory_free) if value is not None
        ]
        workers = count_workers(context, facts)
        if free_values and min(free_values) < MEMORY_PER_WORKER * workers:
            evidence = trn(
                "{size} free for {n} worker",
                "{size} free for {n} workers",
                workers,
                size=render_size(min(free_values)),
            )
            yield on_node(node, evidence)


@check("CC-SYS-018", needs=("machine", "cgroup"))
def few_processors(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        total, quota = facts.machine.cpus or 0, facts.cgroup.cpus
        usable = min(facts.machine.cpus_allowed or total, total if quota is None else quota)
        workers = count_workers(context, facts)
        if usable < min(total, workers) or 0 < WORKERS_PER_PROCESSOR * usable < workers:
            evidence = tr(
                to_translate("{usable:g} of {processors} for {workers}")
                if usable < total
                else to_translate("{processors} for {workers}"),
                usable=usable,
                processors=trn("{n} processor", "{n} processors", total),
                workers=trn("{n} worker", "{n} workers", workers),
            )
            yield on_node(node, evidence, "quota" if usable < total else "", count=max(1, int(usable)))


@check("CC-SYS-019", needs=("text",))
def not_utf8(context: CheckContext) -> Iterator[Hit]:
    is_set_by_job = context.job is not None and context.job.env.get("PYTHONUTF8") == "1"
    for node, facts in context.known:
        encoding = facts.text.encoding
        if encoding and encoding.lower() not in UTF8 and not is_set_by_job:
            variables = ", ".join(facts.text.variables) or tr("no locale is set")
            yield on_node(node, f"{encoding} ({variables})")


@check("CC-DISK-010", needs=("checkpoint",))
def checkpoint_is_scattered(context: CheckContext) -> Iterator[Hit]:
    found = [(node, facts.checkpoint) for node, facts in context.known]
    inside = [one for _, one in found if one.path and _stays_inside(one.path)]
    newest = max(inside, key=lambda one: one.time or 0.0, default=None)
    if newest is None or context.job is None or len(found) < 2:
        return
    parts = {node.name: one if one.path == newest.path else Checkpoint() for node, one in found}
    if len({(one.names, one.parts) for one in parts.values()}) == 1:
        return  # a shared disk, or gathered
    groups = group_values((_render_checkpoint(one), name) for name, one in parts.items())
    held = "; ".join(f"{fold_names(names)}: {text}" for text, names in groups.items())
    outputs = WorkdirPaths(found[0][0].workdir).outputs
    source = f"{fold_names(list(parts))}:{outputs}/{context.job.name}/{newest.path}"
    command = command_line("cp", "--gather", source, command=context.program)
    evidence = tr("{path}: {held}", path=newest.path, held=held)
    yield across_nodes(list(parts), evidence, command=command)


@check("CC-DISK-011", needs=("workdir_disk",))
def checkpoints_are_lost_with_a_node(context: CheckContext) -> Iterator[Hit]:
    job = context.job
    if job is None or job.restart is None or job.checkpoints is not None or "node_lost" not in job.restart.on:
        return
    local = [
        node.name for node, facts in context.known if facts.workdir_disk.kind not in NETWORK_FILE_SYSTEMS
    ]
    newest = next((facts.checkpoint.path for _, facts in context.known if facts.checkpoint.path), "")
    if len(local) > 1 and (newest or _uses_output_dir(context, job)):
        kinds = {facts.workdir_disk.kind or "?" for node, facts in context.known if node.name in local}
        evidence = tr(
            "outputs of {nodes} are on a local disk ({kind})",
            nodes=fold_names(local),
            kind=", ".join(sorted(kinds)),
        )
        yield across_nodes(local, evidence, path=_pattern_of(newest))


def _uses_output_dir(context: CheckContext, job: Job) -> bool:
    """Return whether the job passes the directory to its program, or its code reads the variable."""
    code = context.local_facts.code
    texts = [*job.args, *job.command, *job.env.values()]
    return any("${output_dir}" in text for text in texts) or any(
        "CLUSTERCTL_OUTPUT_DIR" in text for text in (code.texts.values() if code else ())
    )


def _pattern_of(path: str) -> str:
    """Return the pattern of the checkpoints: as one is named that is there, else an example."""
    if not re.fullmatch(r"[A-Za-z0-9._/-]*[0-9][A-Za-z0-9._-]*", path) or not _stays_inside(path):
        return "${output_dir}/step-*"
    folder, name = posixpath.split(path)
    return posixpath.join("${output_dir}", folder, re.sub(r"[0-9]+", "*", name))


def _stays_inside(path: str) -> bool:
    """Return whether a path that a node names is below its outputs: the command copies what is there to all nodes."""
    return not path.startswith("/") and ".." not in path.split("/")


def _render_checkpoint(one: Checkpoint) -> str:
    if one.path is None:
        return tr("nothing")
    if one.metadata:
        return trn("{n} part and .metadata", "{n} parts and .metadata", one.parts or 0)
    return trn("{n} part", "{n} parts", one.parts or 0)
