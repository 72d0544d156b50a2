"""GPUs that are there but not in the state that training wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clusterctl.plans.checks.check import Hit, Situation, check, on
from clusterctl.plans.checks.gpu import BUSY
from clusterctl.plans.checks.remedy import as_root, ssh_to
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Gpu
from clusterctl.plans.vendors import vendor_of, visible_env
from clusterctl.specs.counted import counted
from clusterctl.specs.inventory import Node
from clusterctl.specs.job import VISIBLE

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
