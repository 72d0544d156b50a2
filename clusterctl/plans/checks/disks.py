"""Room and rights on the node's disks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, check, on
from clusterctl.plans.checks.remedy import in_inventory, ssh_to
from clusterctl.plans.checks.system import FEW_INODES, FULL, LOW, size_text
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Disk
from clusterctl.specs.commandline import command_line
from clusterctl.specs.counted import counted

# File systems that hold the kernel's own things and no files of anybody.
KERNEL_FILE_SYSTEMS = (
    *("bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"),
    *("fusectl", "mqueue", "proc", "pstore", "securityfs", "sysfs", "tracefs"),
)

NETWORKED = (
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
HANGS = "no answer within"  # how the probe says that a question took too long
NEEDED = {"workdir": "the working directory", "workdir_disk": "the working directory"}


def room_of(disk: Disk) -> int | None:
    """Give the free bytes; `None` where the file system does not count its blocks (tmpfs without a limit)."""
    return disk.free if disk.total != 0 else None


def _room(disk: Disk) -> str:
    return f"{size_text(disk.free or 0)} free on {disk.mount or disk.path}"


@check(
    "CC-DISK-002",
    "error",
    "the working directory cannot be used",
    why="Code, logs and state of a run are written there.",
    needs=("workdir", "workdir_disk", "account"),
)
def workdir_unusable(seen: Situation) -> Iterator[Hit]:
    """The directory on the node (`workdir:`, default ~/.clusterctl) cannot be written, is not a directory,

    belongs to another account, or may be written by others, who could then run code as you.
    """
    for node, facts in seen.known:
        problem = _workdir_problem(facts)
        if problem:
            yield on(node, problem, in_inventory(node, "workdir: /a/directory/of/your/own"))


def _workdir_problem(facts: Facts) -> str | None:
    found, uid, me = facts.workdir, facts.account.uid, facts.account.user or facts.account.uid
    mode = found.mode or 0
    rules = (
        (not found.directory, f"{found.nearest} is not a directory"),
        (facts.workdir_disk.kind in KERNEL_FILE_SYSTEMS, _on_kernel_file_system(facts)),
        (facts.workdir_disk.read_only, f"{found.path} is on a file system that is read-only"),
        (not found.writable, f"{found.nearest} may not be written by {me}"),
        (found.exists and found.owner != uid, f"{found.path} belongs to uid {found.owner}, not to {me}"),
        (found.exists and mode & 0o022, f"{found.path} may be written by others (mode {mode:04o})"),
    )
    return next((text for broken, text in rules if broken), None) if found.path else None


def _on_kernel_file_system(facts: Facts) -> str:
    return f"{facts.workdir.path} may not be written: it is on a file system of the kernel ({facts.workdir_disk.kind})"


@check(
    "CC-DISK-003",
    "error",
    "the disk is full",
    why="Code and logs could not be written.",
    needs=("workdir_disk",),
)
def disk_is_full(seen: Situation) -> Iterator[Hit]:
    """The file system of the working directory has less than 100 MB left."""
    for node, facts in seen.known:
        free = room_of(facts.workdir_disk)
        if free is not None and free < FULL:
            where = shlex.quote(facts.workdir_disk.mount or "/")
            yield on(
                node,
                _room(facts.workdir_disk),
                ssh_to(node, f"du -xh --max-depth=3 {where} | sort -h | tail"),
            )


@check(
    "CC-DISK-004",
    "warning",
    "the disk is nearly full",
    why="Checkpoints and logs may not fit.",
    needs=("workdir_disk",),
)
def disk_is_low(seen: Situation) -> Iterator[Hit]:
    """The file system of the working directory has less than 1 GiB left."""
    for node, facts in seen.known:
        free = room_of(facts.workdir_disk)
        if free is not None and FULL <= free < LOW:
            yield on(
                node,
                _room(facts.workdir_disk),
                f"{command_line('clusterctl', 'clean', '--nodes', node.name)}  # old runs go first",
            )


@check(
    "CC-DISK-005",
    "warning",
    "few files can still be made",
    why=(
        "The file system runs out of inodes before it runs out of bytes, with the same `No space left "
        "on device`."
    ),
    needs=("workdir_disk",),
)
def few_inodes(seen: Situation) -> Iterator[Hit]:
    """Each file and directory takes an inode, and fewer than 5000 are left. Many small files use them up."""
    for node, facts in seen.known:
        left = facts.workdir_disk.inodes_free
        if left is not None and left < FEW_INODES:
            where = shlex.quote(facts.workdir_disk.mount or "/")
            look = ssh_to(node, f"du -x --inodes --max-depth=3 {where} | sort -n | tail")
            yield on(node, f"{counted(left, 'inode')} left on {facts.workdir_disk.mount}", look)


@check(
    "CC-DISK-006",
    "warning",
    "/tmp is full",
    why="torch, compilers and data loaders keep temporary files there.",
    needs=("tmp_disk",),
)
def tmp_is_full(seen: Situation) -> Iterator[Hit]:
    """The file system of /tmp has less than 100 MB left. `env: {TMPDIR: ...}` names another place."""
    for node, facts in seen.known:
        free = room_of(facts.tmp_disk)
        if free is not None and free < FULL and facts.tmp_disk.mount != facts.workdir_disk.mount:
            yield on(node, _room(facts.tmp_disk), ssh_to(node, "du -xh --max-depth=2 /tmp | sort -h | tail"))


@check(
    "CC-DISK-007",
    "warning",
    "the home directory is full",
    why="Caches of torch, Triton and Hugging Face lie below ~/.cache.",
    needs=("home_disk",),
)
def home_is_full(seen: Situation) -> Iterator[Hit]:
    """The file system of the home has less than 100 MB or no inodes left; the working directory is on another one.

    Torch.hub, datasets and compiled kernels are written there by default: `No space left on device` in the middle of
    a run. `env: {XDG_CACHE_HOME: ..., HF_HOME: ..., TORCH_HOME: ...}` names other places.
    """
    for node, facts in seen.known:
        disk, elsewhere = facts.home_disk, facts.home_disk.mount != facts.workdir_disk.mount
        free = room_of(disk)
        if elsewhere and free is not None and free < FULL:
            yield on(node, _room(disk), ssh_to(node, "du -xh --max-depth=2 ~ | sort -h | tail"))
        elif elsewhere and disk.inodes_free == 0:
            count = "find ~ -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail"
            yield on(node, f"no inode left on {disk.mount}", ssh_to(node, count))


@check(
    "CC-DISK-008",
    "info",
    "Python lies on a network file system",
    why="Importing torch reads thousands of files: the first start after a while takes half a minute or more.",
    needs=("python_disk",),
)
def python_is_far(seen: Situation) -> Iterator[Hit]:
    """The environment that runs torch is on NFS or another network file system.

    All nodes reading it at once are slow together, and a server that hangs stops every start. The launch waits up to
    5 minutes for the import. A copy of the environment on a local disk starts in seconds.
    """
    for node, facts in seen.known:
        if facts.python_disk.kind in NETWORKED:
            evidence = f"{facts.python_disk.path} is on {facts.python_disk.mount} ({facts.python_disk.kind})"
            fix = in_inventory(node, "python: /local/copy/bin/python  # if starting takes long")
            yield on(node, evidence, fix)


@check(
    "CC-DISK-009",
    "error",
    "the working directory does not answer",
    why="Whatever touches it hangs, and cannot even be killed while the server is gone.",
)
def workdir_hangs(seen: Situation) -> Iterator[Hit]:
    """The file system of the working directory, or of a directory above it, gave no answer within 2 seconds.

    A mount whose server is gone, or a disk that is failing. The other questions were answered all the same.
    """
    for node, facts in seen.known:
        hung = {text: facts.problems[name] for name, text in NEEDED.items() if name in facts.problems}
        for what, problem in hung.items():
            if problem.startswith(HANGS):
                fix = ssh_to(node, "findmnt -t nfs,nfs4,fuse,cifs; dmesg | tail")
                yield on(node, f"{what}, {node.workdir}: {problem}", fix)
