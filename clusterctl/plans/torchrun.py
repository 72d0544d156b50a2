"""The torchrun line of one node.

Facts behind the choice of flags, measured with torch 2.13: static rendezvous keeps the inventory's order as
node_rank (c10d sorts nodes by the text of their addresses), needs no clock and no hostname; torchrun's own
restarts race between nodes, so there are none; the default rdzv_id is the same for every job, so a unique one
keeps a stale agent out; `--tee` tears lines, so workers write to files of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.text import Fill, Segment, Text, escape_dollars, text
from clusterctl.specs.job import Job


def plan_argv(
    job: Job,
    *,
    nnodes: int,
    node_rank: int,
    nproc: Segment,
    master_addr: Segment,
    rdzv_id: Segment,
    attempt: int,
    args: Sequence[Text],
) -> tuple[Text, ...]:
    """Give everything that follows `python -m torch.distributed.run`; valid for torch 2.2 and later."""
    return (
        *_flag("--nnodes", str(nnodes)),
        *_flag("--node-rank", str(node_rank)),
        *_flag("--nproc-per-node", nproc),
        *_flag("--rdzv-backend", "static"),
        *_flag("--rdzv-id", rdzv_id),
        *_flag("--master-addr", master_addr),
        *_flag("--master-port", Fill("master_port")),
        *_flag("--max-restarts", "0"),
        *_flag("--redirects", "3"),
        *_flag("--log-dir", Fill("run_dir"), f"/attempt-{attempt}"),
        *_program(job),
        *args,
    )


def _flag(name: str, *value: Segment) -> tuple[Text, Text]:
    return text(name), text(*value)


def _program(job: Job) -> tuple[Text, ...]:
    if job.module is not None:
        return text("--module"), text(job.module)
    return (text(escape_dollars(job.script or "")),)
