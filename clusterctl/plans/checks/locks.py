"""What other runs hold on the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, check, on
from clusterctl.plans.devices import plan_devices
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Holder
from clusterctl.plans.holders import GPU, NODE, describe_holders
from clusterctl.specs.inventory import Node


def _taken_gpus(seen: Situation, node: Node, facts: Facts) -> tuple[Holder, ...]:
    """Give the holders of the GPUs that the job would take; without a job, of any."""
    wanted = {device.id for device in plan_devices(seen.job, node, facts)} if seen.job else None
    ids = {holder: (holder.name or "")[len(GPU) :] for holder in facts.locks}
    return tuple(
        holder
        for holder, one in ids.items()
        if (holder.name or "").startswith(GPU) and (wanted is None or one in wanted)
    )


def _indices(facts: Facts) -> dict[str, int]:
    return {gpu.uuid: gpu.index for gpu in facts.gpus.devices if gpu.uuid and gpu.index is not None}


@check(
    "CC-GPU-019",
    "warning",
    "another run has the GPUs",
    why="A launch on these GPUs is refused until that run has ended, or waits for it with `launch --wait`.",
    needs=("locks", "gpus"),
)
def gpus_are_taken(seen: Situation) -> Iterator[Hit]:
    """A run of clusterctl holds these GPUs, of whichever account on the node; the run says whose it is.

    `clusterctl ps` shows runs of this account, `stop RUN` ends one. A holder that does not answer is a frozen
    agent, or no clusterctl at all; its pid and account are the kernel's word.
    """
    for node, facts in seen.known:
        for line in describe_holders(_taken_gpus(seen, node, facts), _indices(facts)):
            yield on(node, line, "clusterctl launch --wait, or stop that run, or choose other GPUs or nodes")


@check(
    "CC-SYS-012",
    "warning",
    "another run is in the way",
    why="One of the two wants the node alone: a launch is refused until the other has ended, or waits for it.",
    needs=("locks",),
)
def node_is_taken(seen: Situation) -> Iterator[Hit]:
    """A run with `exclusive: true` has this node, or this job wants it alone and another run is there."""
    alone = seen.job is not None and seen.job.exclusive
    for node, facts in seen.known:
        names = [(holder, holder.name or "") for holder in facts.locks]
        taken = [
            holder for holder, name in names if name == NODE or (alone and name and not name.startswith(GPU))
        ]
        for line in describe_holders(taken, {}):
            yield on(node, line, "clusterctl launch --wait, or stop that run, or choose other nodes")
