"""What each launcher is called with on one node; for most it is the torchrun line.

Facts behind the choice of flags, measured with torch 2.13: static rendezvous keeps the inventory's order as
node_rank (c10d sorts nodes by the text of their addresses), needs no clock and no hostname; torchrun's own
restarts race between nodes, so there are none; the default rdzv_id is the same for every job, so a unique one
keeps a stale agent out; `--tee` tears lines, so workers write to files of their own.

`torch.distributed.launch` is torchrun with one more argument for the script, `--local-rank=N`, unless it is
told `--use-env`. The launchers `python` and `command` start one process, without torchrun.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.plans.text import Fill, Segment, Text, escape_dollars, fill_argument, fill_template, text
from clusterctl.specs.job import Job

MODULES: Mapping[str, str] = {"torchrun": "torch.distributed.run", "launch": "torch.distributed.launch"}

# What programs that start their own workers look for; others ask for the placeholders.
ONE_PROCESS_ENV: Mapping[str, str] = {
    "MASTER_ADDR": "master_addr",
    "MASTER_PORT": "master_port",
    "NODE_RANK": "node_rank",
    "NNODES": "nnodes",
    "NPROC_PER_NODE": "nproc_per_node",
}


def plan_argv(job: Job, python: Text, values: Mapping[str, Segment]) -> tuple[Text, ...]:
    """Give what follows `python -m MODULE`, or without a module all words; `values` are the placeholders'."""
    return _plan_process(job, python, values) if job.one_process else _plan_torchrun(job, values)


def _plan_process(job: Job, python: Text, values: Mapping[str, Segment]) -> tuple[Text, ...]:
    program: tuple[Text, ...]
    if job.launcher == "command":
        program = tuple(fill_template(word, values) for word in job.command)
    elif job.module is not None:
        program = python, text("-m"), text(job.module)
    else:
        program = python, text(job.script or "")
    return (*program, *(fill_template(arg, values) for arg in job.args))


def one_process_env(job: Job, values: Mapping[str, Segment]) -> dict[str, Text]:
    """Give the variables that lead a node's only process to the others; torchrun sets its own."""
    return {key: text(values[name]) for key, name in ONE_PROCESS_ENV.items()} if job.one_process else {}


def _plan_torchrun(job: Job, values: Mapping[str, Segment]) -> tuple[Text, ...]:
    """Give torchrun's flags and the program; valid for torch 2.2 and later."""
    return (
        *_flag("--nnodes", values["nnodes"]),
        *_flag("--node-rank", values["node_rank"]),
        *_flag("--nproc-per-node", values["nproc_per_node"]),
        *_flag("--rdzv-backend", "static"),
        *_flag("--rdzv-id", values["run_id"]),
        *_flag("--master-addr", values["master_addr"]),
        *_flag("--master-port", Fill("master_port")),
        *_flag("--max-restarts", "0"),
        *_flag("--redirects", "3"),
        *_flag("--log-dir", Fill("run_dir"), "/attempt-", values["attempt"]),
        *([text("--use-env")] if job.use_env else []),
        *_program(job),
        *(fill_argument(arg, values) for arg in job.args),
    )


def _flag(name: str, *value: Segment) -> tuple[Text, Text]:
    return text(name), text(*value)


def _program(job: Job) -> tuple[Text, ...]:
    """Give what is run, behind a `--`: without it torchrun takes --run or --log of the script for half of its own."""
    if job.module is not None:
        return text("--module"), text("--"), text(job.module)
    return text("--"), text(escape_dollars(job.script or ""))
