"""Command lines of launchers on one node, for most torchrun, and variables for NICs and GPUs.

Facts behind the choice of flags, measured with torch 2.13: static rendezvous keeps the inventory's order as
node_rank (c10d sorts nodes by the text of their addresses), needs no clock and no hostname; torchrun's own
restarts race between nodes, so there are none; the default rdzv_id is the same for every job, so a unique one
keeps a stale agent out; `--tee` tears lines, so workers write to files of their own.

`torch.distributed.launch` is torchrun with one more argument for the script, `--local-rank=N`, unless it is
given `--use-env`. The launchers `python` and `command` start one process, without torchrun. So does `ray`, on node 0,
once `node/supervise/launchers/ray.py` has started Ray on all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clusterctl.plans.launch.template import (
    AgentValue,
    Segment,
    Template,
    escape_dollars,
    fill_placeholders,
    make_template,
)
from clusterctl.protocol.ranks import NESTED
from clusterctl.protocol.run_paths import ATTEMPT
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job

if TYPE_CHECKING:
    from clusterctl.protocol.messages.facts import Facts

MODULES: Mapping[str, str] = {"torchrun": "torch.distributed.run", "launch": "torch.distributed.launch"}

# What programs that start their own workers look for; others ask for the placeholders. Not WORLD_SIZE: without RANK
# it makes programs that read both take themselves for rank 0 on every node, as TrainingArguments of transformers does.
ONE_PROCESS_ENV: Mapping[str, str] = {
    "MASTER_ADDR": "master_addr",
    "MASTER_PORT": "master_port",
    "NODE_RANK": "node_rank",
    "NNODES": "nnodes",
    "NPROC_PER_NODE": "nproc_per_node",
    "CLUSTERCTL_WORLD_SIZE": "world_size",
}
RAY_PORTS = 10  # of Ray's own processes on a node and of its block; each worker takes one more
# What variables hold, by vendor. Gloo knows exact names only. PyTorch ignores GLOO_IFACE; users' scripts ask for it.
COMMON_NIC_RULES = {"GLOO_IFACE": "{all}", "GLOO_SOCKET_IFNAME": "{all}", "TP_SOCKET_IFNAME": "{first}"}
NCCL_NIC_RULES = {
    "NCCL_SOCKET_IFNAME": "={all}"
}  # NCCL takes a bare name as a prefix: eth1 would also be eth10
VENDOR_NIC_RULES: Mapping[str, Mapping[str, str]] = {
    "nvidia": {**COMMON_NIC_RULES, **NCCL_NIC_RULES},
    "amd": {**COMMON_NIC_RULES, **NCCL_NIC_RULES},  # RCCL reads NCCL's variables
    "ascend": {**COMMON_NIC_RULES, "HCCL_SOCKET_IFNAME": "{all}"},
    "cpu": {**COMMON_NIC_RULES, **NCCL_NIC_RULES},
}
# A GPU's index is the one that nvidia-smi shows; CUDA's own order puts the fastest first.
# HIP counts within what ROCR shows, so that only one of the two may be set.
VISIBLE_GPU_RULES: Mapping[str, Mapping[str, str]] = {
    "nvidia": {"CUDA_VISIBLE_DEVICES": "{all}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    "amd": {"HIP_VISIBLE_DEVICES": "{all}"},
    "ascend": {"ASCEND_RT_VISIBLE_DEVICES": "{all}"},
}
SIMULATED_GPU = "Simulated GPU"  # the model that a GPU of `lab up --gpus` names


def plan_argv(
    job: Job, python: Template, values: Mapping[str, Segment], *, own_logs: bool = True
) -> tuple[Template, ...]:
    """Return what follows `python -m MODULE`, or without a module all words; `values` are the placeholders'.

    With `own_logs` torchrun writes the output of each rank to a file in the run's directory.
    """
    if job.is_single_process:
        return _plan_process(job, python, values)
    return _plan_torchrun(job, values, _log_flags(values) if own_logs else ())


def _plan_process(job: Job, python: Template, values: Mapping[str, Segment]) -> tuple[Template, ...]:
    program: tuple[Template, ...]
    if job.command:
        program = tuple(fill_placeholders(word, values) for word in job.command)
    elif job.module is not None:
        program = python, make_template("-m"), make_template(job.module)
    else:
        program = python, make_template(job.script or "")
    return (*program, *(fill_placeholders(arg, values) for arg in job.args))


def one_process_env(job: Job, values: Mapping[str, Segment]) -> dict[str, Template]:
    """Return the variables that lead a node's only process to the others; torchrun and Ray set their own."""
    return (
        {key: make_template(values[name]) for key, name in ONE_PROCESS_ENV.items()}
        if job.is_single_process and not job.runs_on_head
        else {}
    )


def nested_log_env(job: Job, values: Mapping[str, Segment]) -> dict[str, Template]:
    """Return the variables by which a torchrun below the program writes a log of each rank into the run's directory.

    It also goes on writing to the program's output: a script may read that, and accelerate overrides the directory.
    """
    if not job.is_single_process or job.runs_on_head:
        return {}
    folder = make_template(AgentValue("run_dir"), f"/{ATTEMPT}", values["attempt"], f"/{NESTED}")
    return {"PET_LOG_DIR": folder, "PET_TEE": make_template("3")}


def plan_ray_start(values: Mapping[str, Segment], address: Segment, *, head: bool) -> tuple[Template, ...]:
    """Return what a person would type to start Ray on a node; the node adds ports and a directory of the run's own."""
    words = (make_template("ray"), make_template("start"))
    node_address = _flag("--node-ip-address", address)
    if head:
        port = _flag("--port", values["master_port"])
        return (*words, make_template("--head"), *node_address, *port, make_template("--block"))
    meeting_point = _flag("--address", values["master_addr"], ":", values["master_port"])
    return (*words, *meeting_point, *node_address, make_template("--block"))


def _plan_torchrun(
    job: Job, values: Mapping[str, Segment], log_flags: tuple[Template, ...]
) -> tuple[Template, ...]:
    """Return torchrun's flags and the program; valid for torch 2.2 and later."""
    return (
        *_flag("--nnodes", values["nnodes"]),
        *_flag("--node-rank", values["node_rank"]),
        *_flag("--nproc-per-node", values["nproc_per_node"]),
        *_flag("--rdzv-backend", "static"),
        *_flag("--rdzv-id", values["run_id"]),
        *_flag("--master-addr", values["master_addr"]),
        *_flag("--master-port", AgentValue("master_port")),
        *_flag("--max-restarts", "0"),
        *log_flags,
        *([make_template("--use-env")] if job.use_env else []),
        *([make_template("--no-python")] if job.no_python else []),
        *_program(job),
        *(fill_placeholders(arg, values, escape_dollars) for arg in job.args),
    )


def _log_flags(values: Mapping[str, Segment]) -> tuple[Template, ...]:
    return (
        *_flag("--redirects", "3"),
        *_flag("--log-dir", AgentValue("run_dir"), f"/{ATTEMPT}", values["attempt"]),
    )


def _flag(name: str, *value: Segment) -> tuple[Template, Template]:
    return make_template(name), make_template(*value)


def _program(job: Job) -> tuple[Template, ...]:
    """Return what is run, after a `--`: without it torchrun takes --run or --log of the script for its own options."""
    if job.module is not None:
        return make_template("--module"), make_template("--"), make_template(job.module)
    script = job.script or ""
    if job.no_python and "/" not in script:
        script = f"./{script}"  # else it would be searched on the PATH
    return make_template("--"), make_template(escape_dollars(script))


def has_simulated_gpus(facts: Facts) -> bool:
    """Return whether a node's GPUs are those of `lab up --gpus`, on which nothing can be computed."""
    return bool(facts.gpus.devices) and all(gpu.name == SIMULATED_GPU for gpu in facts.gpus.devices)


def network_env(vendor: str, nics: Sequence[str]) -> dict[str, str]:
    """Return the variables for a node's NICs; none without NICs. An unknown vendor is treated as `nvidia`."""
    rules = VENDOR_NIC_RULES.get(vendor, VENDOR_NIC_RULES["nvidia"])
    return _fill_rules(dict(sorted(rules.items())), nics)


def visible_env(vendor: str, gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a job these GPUs only; none for an empty list, which means all."""
    rules = VISIBLE_GPU_RULES.get(vendor, VISIBLE_GPU_RULES["nvidia"])
    return _fill_rules(rules, [str(index) for index in gpus])


def _fill_rules(rules: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    return {key: rule.format(all=",".join(names), first=names[0]) for key, rule in rules.items()}


def count_chosen_gpus(job: Job) -> int | None:
    """Count the GPUs that a job chooses on each node; None if it takes all, or a placeholder chooses."""
    if job.gpus:
        return len(job.gpus)
    values = [job.env[name] for name in VISIBLE_DEVICES_VARIABLES if name in job.env]
    if not values or "${" in values[0]:
        return None
    return len([word for word in values[0].split(",") if word.strip() and word.strip() != "-1"])


def vendor_of(facts: Facts) -> str:
    """Return the vendor of a node's accelerators: by the hardware, else by torch, else `cpu`."""
    vendor = facts.gpus.vendor
    if vendor is not None and vendor in VENDOR_NIC_RULES:
        return vendor
    if facts.torch.hip:
        return "amd"
    if facts.torch.cuda:
        return "nvidia"
    return "ascend" if "torch-npu" in facts.packages else "cpu"
