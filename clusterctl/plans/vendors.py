"""Which environment variables tell which library the NICs and GPUs to use; vendors are rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusterctl.plans.facts import Facts
from clusterctl.specs.job import VISIBLE, Job

Rule = Callable[[Sequence[str]], str]


def _exact_list(nics: Sequence[str]) -> str:
    return "=" + ",".join(nics)  # NCCL takes a bare name as a prefix: eth1 would also be eth10


def _plain_list(nics: Sequence[str]) -> str:
    return ",".join(nics)


def _first(nics: Sequence[str]) -> str:
    return nics[0]


# Gloo knows exact names only. PyTorch ignores GLOO_IFACE; users' scripts ask for it.
ALWAYS: Mapping[str, Rule] = {
    "GLOO_IFACE": _plain_list,
    "GLOO_SOCKET_IFNAME": _plain_list,
    "TP_SOCKET_IFNAME": _first,
}
NCCL: Mapping[str, Rule] = {"NCCL_SOCKET_IFNAME": _exact_list}

VENDORS: Mapping[str, Mapping[str, Rule]] = {
    "nvidia": {**ALWAYS, **NCCL},
    "amd": {**ALWAYS, **NCCL},  # RCCL reads NCCL's variables
    "ascend": {**ALWAYS, "HCCL_SOCKET_IFNAME": _plain_list},
    "cpu": {**ALWAYS, **NCCL},
}

# A GPU's index is the one that nvidia-smi shows; CUDA's own order puts the fastest first.
# HIP counts within what ROCR shows, so that only one of the two may be set.
SHOWS: Mapping[str, Mapping[str, Rule]] = {
    "nvidia": {"CUDA_VISIBLE_DEVICES": _plain_list, "CUDA_DEVICE_ORDER": lambda _: "PCI_BUS_ID"},
    "amd": {"HIP_VISIBLE_DEVICES": _plain_list},
    "ascend": {"ASCEND_RT_VISIBLE_DEVICES": _plain_list},
}


SIMULATED_GPU = "Simulated GPU"  # the model that a GPU of `lab up --gpus` names


def has_simulated_gpus(facts: Facts) -> bool:
    """Tell whether a node's GPUs are those of `lab up --gpus`, on which nothing can be computed."""
    return bool(facts.gpus.devices) and all(gpu.name == SIMULATED_GPU for gpu in facts.gpus.devices)


def network_env(vendor: str, nics: Sequence[str]) -> dict[str, str]:
    """Give the variables for a node's NICs; none without NICs. An unknown vendor is treated as `nvidia`."""
    rules = VENDORS.get(vendor, VENDORS["nvidia"])
    return {name: rule(nics) for name, rule in sorted(rules.items())} if nics else {}


def visible_env(vendor: str, gpus: Sequence[int]) -> dict[str, str]:
    """Give the variables that show a job these GPUs only; none for an empty list, which means all."""
    rules = SHOWS.get(vendor, SHOWS["nvidia"])
    return {name: rule([str(index) for index in gpus]) for name, rule in rules.items()} if gpus else {}


def chosen_gpus(job: Job) -> int | None:
    """Count the GPUs that a job chooses on each node; None if it takes all, or a placeholder chooses."""
    if job.gpus:
        return len(job.gpus)
    values = [job.env[name] for name in VISIBLE if name in job.env]
    if not values or "${" in values[0]:
        return None
    return len([word for word in values[0].split(",") if word.strip() and word.strip() != "-1"])


def vendor_of(facts: Facts) -> str:
    """Tell whose accelerators a node has: the hardware says it first, then torch, else `cpu`."""
    seen = facts.gpus.vendor
    if seen is not None and seen in VENDORS:
        return seen
    if facts.torch.hip:
        return "amd"
    if facts.torch.cuda:
        return "nvidia"
    return "ascend" if "torch-npu" in facts.packages else "cpu"
