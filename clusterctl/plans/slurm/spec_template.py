"""The spec that all nodes of a Slurm job have in common, made before anybody knows which nodes they are.

It is planned as any run, for nodes of which nothing is known; what a plan leaves open by name becomes a hole that the
task on the node fills (`node/slurm/spec.py`), or the agent, as before every attempt of a run that may start again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.plans.export.shell import default_nproc
from clusterctl.plans.launch.agent_spec import render_spec, restart_to_spec
from clusterctl.plans.launch.placement import Member
from clusterctl.plans.launch.plan import PlanFacts, plan_launch
from clusterctl.plans.launch.template import AgentValue, Segment, Template, Unmeasured
from clusterctl.plans.slurm.batch_script import SlurmNodes, may_requeue, plan_time_limit
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Node, Slurm, Ssh, Waiver
from clusterctl.specs.job.model import Job, Restart
from clusterctl.specs.serialization import to_plain

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart
    from clusterctl.protocol.messages.files import LaunchRecord, SetupQuery
    from clusterctl.protocol.messages.verbs import SlurmTemplate

ANY_NODE = "any"
UNKNOWN = PlanFacts(ip=None, nics=(), gpus=None, cpus=None, python=None)
HOLES = {
    f"ip@{ANY_NODE}": "master_addr",
    f"gpus@{ANY_NODE}": "workers",
    f"cpus@{ANY_NODE}": "workers",
    "world_size": "world_size",
    f"nic@{ANY_NODE}": "nics",
}
ONE_NIC = "TP_SOCKET_IFNAME"  # takes one name


def plan_check(
    job: Job | None,
    login: Node,
    waivers: Sequence[Waiver],
    siblings: Sequence[str],
    program: str,
    setup: SetupQuery | None,
) -> CheckPart:
    """Plan the check inside the allocation; `siblings` are names beside the job's script."""
    return {
        # what a check does not look at need not travel
        "job": to_plain(replace(job, on_end=None, notify=(), secrets=()) if job else None),
        "login": to_plain(replace(login, ssh=Ssh(), allocation=None)),
        "waive": to_plain(tuple(waivers)),
        "siblings": list(siblings),
        "program": program,
        "setup": setup,
        "enforce": True,
        "only": False,
    }


def make_template(
    job: Job,
    slurm: Slurm,
    login: Node,
    nodes: SlurmNodes,
    run_id: RunId,
    record: LaunchRecord,
    check: CheckPart,
) -> SlurmTemplate:
    """Make what the tasks get; `record` says who launches, when and in which cluster."""
    nproc = default_nproc(job)
    known = replace(job, nproc_per_node=int(nproc)) if nproc.isdecimal() else job
    node = replace(login, name=ANY_NODE, ip=None, host=ANY_NODE, nic=(), network=None, gpus=None)
    members = [Member(node, Slot(number)) for number in range(nodes.count)]
    # As a run that may start again: its addresses and ranks are filled in by the agents.
    planned = plan_launch(
        replace(known, restart=replace(job.restart or Restart(), spares=0)),
        members,
        {ANY_NODE: UNKNOWN},
        run_id=run_id,
    )
    first = planned.nodes[0]
    first = replace(
        first,
        argv=tuple(map(_leave_holes, first.argv)),
        env={key: _leave_holes(value, one_nic=key == ONE_NIC) for key, value in first.env.items()},
    )
    plan = replace(planned, nodes=(first, *planned.nodes[1:]), job=replace(job, restart=None))
    spec = render_spec(plan, first, record)
    spec.pop("nodes", None)  # not known yet: the tasks fill them in
    spec.pop("node_ports", None)
    spec["time_limit"] = plan_time_limit(job, slurm)
    if job.restart is not None:
        spec["restart"] = restart_to_spec(job.restart, job.stall)
    return {
        "spec": spec,
        "workers": int(nproc) if nproc.isdecimal() else ("cpu" if nproc == "cpu" else "gpu"),
        "nic": list(login.nic),
        "network": login.network,
        "requeue": may_requeue(job),
        "check": check,
    }


def _leave_holes(value: Template, *, one_nic: bool = False) -> Template:
    return tuple(_leave_hole(part, one_nic=one_nic) for part in value)


def _leave_hole(part: Segment, *, one_nic: bool) -> Segment:
    if not isinstance(part, Unmeasured):
        return part
    name = HOLES[part.name]
    return AgentValue("nic" if one_nic and name == "nics" else name)
