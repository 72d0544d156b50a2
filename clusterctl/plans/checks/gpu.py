"""GPU count, driver, model, mode, memory in use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from clusterctl.plans.checks.framework import (
    Hit,
    Situation,
    across,
    as_root,
    check,
    in_inventory,
    on,
    split_votes,
    ssh_to,
    without,
)
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import Gpu
from clusterctl.plans.launch.launchers import chosen_gpus, vendor_of, visible_env
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import VISIBLE, Job
from clusterctl.specs.text import counted

# The oldest driver for each CUDA major version, from NVIDIA's table of minor version compatibility.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
BUSY = 512  # MiB; an idle GPU uses less


def _driver(facts: Facts) -> str | None:
    return facts.gpus.driver or facts.gpus.module


def _mismatched(facts: Facts) -> bool:
    told, loaded = facts.gpus.driver, facts.gpus.module
    return "version mismatch" in (facts.gpus.error or "") or bool(told and loaded and told != loaded)


def _count(facts: Facts) -> int:
    return facts.gpus.count or 0


def _lent(node: Node, facts: Facts) -> int:
    """Count the GPUs that a run may use: the inventory's number, where that many are there."""
    return _count(facts) if node.gpus is None else min(node.gpus, _count(facts))


def _usable(seen: Situation, node: Node, facts: Facts) -> int:
    """Count the GPUs that this job may use on a node: those that it chooses, else all that are lent."""
    chosen = chosen_gpus(seen.job) if seen.job else None
    return _lent(node, facts) if chosen is None else min(chosen, _lent(node, facts))


@check(
    "CC-GPU-001",
    "error",
    "no GPU was found",
    why="The job asks for GPUs: torchrun or NCCL would fail on this node, and all others would wait for it.",
    needs=("gpus",),
)
def no_gpu(seen: Situation) -> Iterator[Hit]:
    """The job needs GPUs (`backend: nccl` or `nproc_per_node: gpu`) and the node shows none.

    Without a GPU in this machine, leave the node out (`--exclude`) or train on CPUs: `backend: gloo` and
    `nproc_per_node: cpu` or a number. With one, install the driver, or give the container access to it.
    """
    if seen.job is None or not seen.wants_gpus():
        return
    some = any(_count(facts) for _, facts in seen.known)
    for node, facts in seen.known:
        if not _count(facts) and not node.gpus and not facts.gpus.error:
            told = "nvidia-smi lists none" if facts.gpus.smi else "no nvidia-smi and no driver are there"
            yield on(node, told, f"add --exclude {node.name}" if some else _on_cpus(seen.job))


def _on_cpus(job: Job) -> str:
    """Say what in a job asks for GPUs."""
    changes = ["backend: gloo"] if job.backend == "nccl" else []
    changes += ["nproc_per_node: 1"] if job.nproc_per_node == "gpu" else []
    changes += ["no gpus:"] if job.gpus else []
    return f"job: {', '.join(changes)}  # uses CPUs"


@check(
    "CC-GPU-002",
    "error",
    "fewer GPUs than processes",
    why=(
        "NCCL refuses two processes on one GPU, and a process beyond the last GPU ends with `invalid "
        "device ordinal`."
    ),
    needs=("gpus",),
)
def too_few_gpus(seen: Situation) -> Iterator[Hit]:
    """`nproc_per_node` is larger than the number of GPUs that this node has or lends, or that the job chooses.

    `nproc_per_node: gpu` takes as many as there are on each node.
    """
    wanted = seen.job.nproc_per_node if seen.job and seen.job.backend == "nccl" else None
    for node, facts in seen.known:
        usable = _usable(seen, node, facts)
        if isinstance(wanted, int) and 0 < usable < wanted:
            evidence = f"{counted(usable, 'GPU')} for nproc_per_node: {wanted}"
            yield on(node, evidence, f"job: nproc_per_node: {usable}  # or gpu")


@check(
    "CC-GPU-003",
    "error",
    "GPUs are missing",
    why="The inventory promises more GPUs than the node shows: one may have failed, or the number is wrong.",
    needs=("gpus",),
)
def fewer_than_promised(seen: Situation) -> Iterator[Hit]:
    """The inventory's `gpus:` is larger than what nvidia-smi lists.

    A GPU that fell off the bus is gone until a reboot; the kernel's log then holds an `NVRM: Xid` line. If
    the machine never had that many, correct the inventory.
    """
    for node, facts in seen.known:
        if node.gpus and _count(facts) < node.gpus and not facts.gpus.error:
            found = f"{_count(facts)} found, the inventory says {node.gpus}"
            yield on(node, found, in_inventory(node, f"gpus: {_count(facts)}  # or look for Xid in `dmesg`"))


@check(
    "CC-GPU-004",
    "error",
    "driver and library do not match",
    why=(
        "The driver was upgraded and the old one is still loaded: no program can use the GPUs until a reboot."
    ),
    needs=("gpus",),
)
def driver_mismatch(seen: Situation) -> Iterator[Hit]:
    """The kernel runs one version of the NVIDIA driver and the libraries on disk are of another.

    Usually unattended upgrades replaced the driver. Reboot the node, or unload and load the kernel modules
    while nothing uses them. To keep it from happening again, hold the driver's packages.
    """
    for node, facts in seen.known:
        if _mismatched(facts):
            told = facts.gpus.driver or _library_version(facts.gpus.error or "") or "another version"
            evidence = f"kernel module {facts.gpus.module or 'of another version'}, library {told}"
            yield on(node, evidence, as_root(node, facts, "reboot"))


def _library_version(text: str) -> str | None:
    found = re.search(r"NVML library version: ([\d.]+)", text)
    return found.group(1) if found else None


@check(
    "CC-GPU-005",
    "error",
    "the driver is too old for torch",
    why="This torch's CUDA needs a newer driver: the first use of a GPU fails with error 35.",
    needs=("gpus", "torch"),
)
def driver_is_old(seen: Situation) -> Iterator[Hit]:
    """The NVIDIA driver is older than the CUDA version of this torch allows.

    CUDA 12 needs driver 525 or later, CUDA 13 needs 580. Upgrade the driver, or install a torch that was
    built for an older CUDA.
    """
    for node, facts in seen.known:
        cuda = re.match(r"\d+", facts.torch.cuda or "")
        driver = re.match(r"\d+", _driver(facts) or "")
        oldest = OLDEST_DRIVER.get(int(cuda.group())) if cuda else None
        if oldest and driver and int(driver.group()) < oldest:
            evidence = f"driver {_driver(facts)}, torch {facts.torch.version} with CUDA {facts.torch.cuda}"
            fix = (
                f"install driver {oldest} or later, or a torch for an older CUDA (its version ends in +cuNNN)"
            )
            yield on(node, f"{evidence} needs {oldest} or later", fix)


@check(
    "CC-GPU-006",
    "warning",
    "the drivers differ",
    why="Mixed driver branches are rarely tested together; a slow or failing node is then hard to explain.",
    needs=("gpus",),
)
def drivers_differ(seen: Situation) -> Iterator[Hit]:
    """The nodes run different branches of the NVIDIA driver (the first number of its version)."""
    branches = {node.name: (_driver(facts) or "").partition(".")[0] for node, facts in seen.known}
    split = split_votes({name: branch for name, branch in branches.items() if branch})
    if split:
        wanted = f"driver {split.majority}" if split.majority else "one driver"
        yield across(split.odd, split.evidence, f"install {wanted} there, or {without(split.odd)}")


@check(
    "CC-GPU-007",
    "warning",
    "the GPU models differ",
    why="The slowest GPU sets the pace of all, and the smallest runs out of memory first.",
    needs=("gpus",),
)
def models_differ(seen: Situation) -> Iterator[Hit]:
    """The nodes do not have the same kind of GPU. This works; expect the speed of the slowest."""
    models = {node.name: " + ".join(sorted(_models(facts))) for node, facts in seen.known}
    split = split_votes({name: model for name, model in models.items() if model})
    if split:
        mixed = "take batches that fit the smallest GPU"
        yield across(
            split.odd, split.evidence, f"{mixed}, or {without(split.odd)}" if split.majority else mixed
        )


def _models(facts: Facts) -> set[str]:
    return {gpu.name for gpu in facts.gpus.devices if gpu.name}


@check(
    "CC-GPU-008",
    "warning",
    "the numbers of workers differ",
    why=(
        "The nodes will run different numbers of processes; code that assumes the same number "
        "everywhere breaks."
    ),
    needs=("gpus", "machine"),
)
def counts_differ(seen: Situation) -> Iterator[Hit]:
    """With `nproc_per_node: gpu` each node runs as many processes as it has or lends GPUs, and these numbers differ.

    With `cpu` the same is said of the cores. torchrun and DDP allow this, and WORLD_SIZE is the sum. Code that
    computes ranks as node_rank * LOCAL_WORLD_SIZE + local_rank does not.
    """
    nproc = seen.job.nproc_per_node if seen.job else "gpu"
    if isinstance(nproc, int) or (seen.job and chosen_gpus(seen.job) is not None):
        return
    if nproc == "cpu":
        counts = {node.name: facts.machine.cpus_allowed or 0 for node, facts in seen.known}
    else:
        counts = {node.name: _lent(node, facts) for node, facts in seen.known}
    split = split_votes({name: str(count) for name, count in counts.items() if count})
    if split:
        yield across(split.odd, split.evidence, "job: nproc_per_node: N  # a number that every node has")


@check(
    "CC-GPU-009",
    "error",
    "nvidia-smi failed",
    why="A node whose nvidia-smi fails or hangs has a sick GPU or driver; training there fails or hangs too.",
    needs=("gpus",),
)
def smi_failed(seen: Situation) -> Iterator[Hit]:
    """nvidia-smi ended with an error, complained about a device, or gave no answer within 5 seconds.

    "Unable to determine the device handle" and "GPU is lost" mean a GPU that fell off the bus: reboot, and
    have it replaced if it happens again. A hanging nvidia-smi has the same remedy.
    """
    relevant = seen.job is None or seen.wants_gpus()
    for node, facts in seen.known:
        error = facts.gpus.error or facts.gpu_health.error
        if error and relevant and not _mismatched(facts):
            yield on(node, error, ssh_to(node, "nvidia-smi; dmesg | grep -i xid | tail"))


@check(
    "CC-GPU-010",
    "info",
    "more GPUs than the inventory lends",
    why="Only as many as the inventory says are used.",
    needs=("gpus",),
)
def more_than_promised(seen: Situation) -> Iterator[Hit]:
    """The node has more GPUs than the inventory's `gpus:` says; the others stay idle."""
    for node, facts in seen.known:
        if node.gpus is not None and _count(facts) > node.gpus:
            found = f"{_count(facts)} found, the inventory says {node.gpus}"
            yield on(node, found, in_inventory(node, f"gpus: {_count(facts)}"))


@check(
    "CC-GPU-018",
    "error",
    "a chosen GPU does not exist",
    why="CUDA stops reading its list of visible devices at the first that is not there: workers would lack a GPU.",
    needs=("gpus",),
)
def chosen_gpu_is_missing(seen: Situation) -> Iterator[Hit]:
    """The job's `gpus:` names an index that nvidia-smi does not show on this node, or more than the node lends.

    Indices count from 0 and are the same on all nodes; leave out a node that lacks them (`--exclude`).
    """
    wanted = seen.job.gpus if seen.job else ()
    for node, facts in seen.known:
        there = {gpu.index for gpu in facts.gpus.devices} or set(range(_count(facts)))
        missing = [str(index) for index in wanted if index not in there]
        if not there or facts.gpus.error:
            continue  # told by CC-GPU-001 and CC-GPU-009
        if missing:
            evidence = f"gpus: {', '.join(missing)} of {counted(_count(facts), 'GPU')}"
            yield on(node, evidence, f"add --exclude {node.name}")
        elif node.gpus is not None and len(wanted) > node.gpus:
            evidence = f"the job chooses {counted(len(wanted), 'GPU')}, the inventory lends {node.gpus}"
            yield on(node, evidence, in_inventory(node, f"gpus: {len(wanted)}"))


MOST_NAMED = 4


def _with_gpus(
    seen: Situation, holds: Callable[[Gpu], bool], tell: Callable[[Gpu], str]
) -> Iterator[tuple[Node, Facts, str]]:
    for node, facts in seen.known:
        told = [f"GPU {gpu.index} {tell(gpu)}" for gpu in facts.gpus.devices if holds(gpu)]
        if told:
            yield node, facts, ", ".join(told)


@check(
    "CC-GPU-011",
    "error",
    "the GPU's compute mode forbids use",
    why="In mode Prohibited no process may use the GPU.",
    needs=("gpus",),
)
def compute_prohibited(seen: Situation) -> Iterator[Hit]:
    """`nvidia-smi -c 0` sets compute mode Default; it needs root and lasts until the next reboot."""
    for node, facts, told in _with_gpus(seen, lambda gpu: gpu.compute_mode == "Prohibited", _compute_mode):
        yield on(node, told, as_root(node, facts, "nvidia-smi -c 0"))


@check(
    "CC-GPU-012",
    "warning",
    "the GPU admits one process only",
    why="In an exclusive mode a second process, such as a leftover one, makes the GPU `busy or unavailable`.",
    needs=("gpus",),
)
def compute_exclusive(seen: Situation) -> Iterator[Hit]:
    """The compute mode is exclusive: one process per GPU works, one more fails with CUDA error 46."""
    for node, facts, told in _with_gpus(
        seen, lambda gpu: "Exclusive" in (gpu.compute_mode or ""), _compute_mode
    ):
        yield on(node, told, as_root(node, facts, "nvidia-smi -c 0"))


def _compute_mode(gpu: Gpu) -> str:
    return f"is {gpu.compute_mode}"


@check(
    "CC-GPU-013",
    "warning",
    "MIG is on",
    why="The GPU is cut into slices: torch sees other devices than nvidia-smi lists, and NCCL is limited.",
    needs=("gpus",),
)
def mig_is_on(seen: Situation) -> Iterator[Hit]:
    """Multi-Instance GPU splits a GPU. A process uses one instance; NCCL between instances is limited."""
    for node, facts, told in _with_gpus(seen, lambda gpu: gpu.mig == "Enabled", lambda _: "has MIG on"):
        yield on(node, told, as_root(node, facts, "nvidia-smi -mig 0"))


@check(
    "CC-GPU-014",
    "warning",
    "uncorrectable memory errors",
    why=(
        "The GPU's memory has lost data since the driver was loaded; a job on it may crash or compute "
        "nonsense."
    ),
    needs=("gpus",),
)
def ecc_errors(seen: Situation) -> Iterator[Hit]:
    """ECC counted errors that it could not correct.

    A reset of the GPU or a reboot clears the pages; if the count returns, the GPU should be replaced.
    """
    for node, facts, told in _with_gpus(
        seen, lambda gpu: bool(gpu.ecc_errors), lambda gpu: f"has {gpu.ecc_errors}"
    ):
        yield on(node, told, as_root(node, facts, "nvidia-smi --gpu-reset"))


@check(
    "CC-GPU-015",
    "warning",
    "GPU memory is in use",
    why="Another process has these GPUs: the job may run out of memory, or both run slowly.",
    needs=("gpus",),
)
def gpu_in_use(seen: Situation) -> Iterator[Hit]:
    """More than 512 MiB of a GPU's memory are taken before the job starts; with `gpus:` only those GPUs count.

    It may be someone else's work, or what a crashed run left behind. Memory that no listed process owns
    belongs to a process of another container, or to one that is dying.
    """
    chosen = seen.job.gpus if seen.job else ()
    query = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
    for node, facts in seen.known:
        busy = [
            f"GPU {gpu.index} uses {gpu.memory_used} MiB{_users(gpu, facts)}"
            for gpu in facts.gpus.devices
            if (gpu.memory_used or 0) > BUSY and (not chosen or gpu.index in chosen)
        ]
        if busy:
            yield on(node, ", ".join(busy), ssh_to(node, query))


def _users(gpu: Gpu, facts: Facts) -> str:
    """Name who holds memory of a GPU, as far as the node shows it."""
    found = [one for one in facts.gpus.processes if one.gpu == gpu.uuid]
    named = [f"pid {one.pid}" + (f" of {one.user}: {one.command}" if one.user else "") for one in found]
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return f" ({'; '.join([*named[:MOST_NAMED], *more])})" if named else ""


@check(
    "CC-GPU-016",
    "warning",
    "a GPU does not answer",
    why=(
        "The kernel has a device file for a GPU that nvidia-smi does not list: it may have fallen off "
        "the bus."
    ),
    needs=("gpus",),
)
def gpu_is_silent(seen: Situation) -> Iterator[Hit]:
    """There are more /dev/nvidiaN files than GPUs in the list. The kernel's log tells why (`NVRM: Xid`)."""
    for node, facts in seen.known:
        files, count = facts.gpus.files or 0, facts.gpus.count or 0
        if facts.gpus.smi and files > count > 0:
            evidence = f"{counted(files, 'device file')}, {counted(count, 'GPU')} listed{_unlisted(facts)}"
            yield on(node, evidence, ssh_to(node, "dmesg | grep -i xid | tail"))


def _unlisted(facts: Facts) -> str:
    """Name the GPUs on the PCI bus that nvidia-smi does not list; it writes the same address with more zeros."""
    listed = {(gpu.bus or "")[-10:].lower() for gpu in facts.gpus.devices}
    missing = [bus for bus in facts.gpu_health.pci if bus[-10:].lower() not in listed]
    return f"; not listed: PCI {', '.join(missing)}" if missing and listed != {""} else ""


@check(
    "CC-GPU-017",
    "warning",
    "some GPUs are hidden",
    why="torch sees only the GPUs that this variable names, whatever nvidia-smi lists.",
    needs=("gpus", "environment"),
)
def hidden_gpus(seen: Situation) -> Iterator[Hit]:
    """The environment of an SSH session already limits the visible GPUs, on the node itself.

    A process beyond their number ends with `invalid device ordinal`. Remove the variable from the node's start
    files, or set it in the job's `env:`.
    """
    for node, facts in seen.known:
        chosen = {*seen.job.env, *visible_env(vendor_of(facts), seen.job.gpus)} if seen.job else set()
        told = [
            f"{name}={facts.environment[name]}"
            for name in VISIBLE
            if name in facts.environment.keys() - chosen
        ]
        if told and facts.gpus.count:
            yield on(
                node,
                ", ".join(told),
                ssh_to(node, "grep -rn VISIBLE_DEVICES ~/.bashrc ~/.profile /etc/environment"),
            )
