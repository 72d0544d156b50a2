"""What a node's agent has to carry out: the spec, made from the plan; and what is recorded there for reports."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from clusterctl import __version__
from clusterctl.plans.launch.launchers import RAY_PORTS
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.placement import needs_gpus
from clusterctl.plans.launch.plan import LaunchPlan, NodePlan
from clusterctl.plans.launch.setup import hooks_to_spec
from clusterctl.plans.launch.template import AgentValue, fill_placeholders, template_to_json
from clusterctl.protocol.messages.environment import CLEARED_NAMES, CLEARED_PREFIXES
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.reasons import STALLED
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.run_paths import WorkdirPaths
from clusterctl.protocol.states import PROTOCOL
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.checkpoints import Checkpoints
from clusterctl.specs.job.model import Job, Restart, Stall
from clusterctl.translation import english_of

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import (
        CheckpointsSpec,
        LaunchRecord,
        NodePorts,
        RestartSpec,
        RosterEntry,
        Spec,
        SpecPart,
        StallSpec,
        StartSpec,
    )


SSH_PORT = 22  # where the inventory names none; that it is refused there is an answer as well


def render_spec(plan: LaunchPlan, node: NodePlan, record: LaunchRecord) -> Spec:
    """Return the spec that a node's agent carries out; `record` adds user, time, cluster and setup."""
    master = plan.nodes[0]
    return {
        "protocol": PROTOCOL,
        "run": plan.run_id,
        "job": plan.job.name,
        "node": node.name,
        "node_rank": node.member.node_rank,
        "nnodes": len(plan.nodes),
        "nproc": node.nproc_per_node,
        "world_size": plan.world_size,
        "attempt": 1,
        "grace": plan.job.grace,
        "time_limit": plan.job.time_limit,
        "log_limit": plan.job.log_limit,
        "master_addr": master.ip,
        "gang": plan.has_gang,
        "hub": master.name,
        **_render_gang(plan, node),
        "address": node.ip,
        "nic": list(node.nics),
        "ports": _port_range(node if plan.job.restart else master),
        "python": node.python,
        "module": node.module,
        "processes": 1 if plan.job.is_single_process else node.nproc_per_node,
        "gpus": [{"index": other.index, "id": other.id, "used": other.used} for other in node.devices],
        "exclusive": plan.job.exclusive,
        "argv": [template_to_json(word) for word in node.argv],
        "env": {key: template_to_json(value) for key, value in node.env.items()},
        "unset": list(CLEARED_NAMES),
        "unset_prefixes": list(CLEARED_PREFIXES),  # torchrun takes the default of every flag from PET_*
        "output_dir": f"{WorkdirPaths(node.member.node.workdir).outputs}/{plan.job.name}",
        "zombie_after": plan.job.zombie_after,
        "stall": _render_stall(plan.job),
        "alone": plan.job.alone,
        "diagnose": plan.job.diagnose,
        "debug": plan.job.debug,
        "sample": True,
        "metrics": dict(plan.job.metrics),
        **_render_start(plan.job),
        **_render_ray(plan, node),
        **_render_mpi(plan),
        "ends_with": plan.job.ends_with,
        **hooks_to_spec(plan.job),
        **_render_restart(plan, node),
        **record,  # type: ignore[typeddict-item]  # mypy misses the keys that the agent sets
    }


def _render_gang(plan: LaunchPlan, node: NodePlan) -> SpecPart:
    """Return what the nodes' agents need of each other."""
    if not plan.has_gang:
        return {}
    part: SpecPart = {"node_ports": [_answering_ports(other) for other in plan.all_nodes]}
    return {**part, "nodes": [other.name for other in plan.all_nodes]} if node is plan.nodes[0] else part


def _answering_ports(node: NodePlan) -> NodePorts:
    """Return ports that a firewall between the nodes lets through: of those that `ports` names, the first is enough."""
    ports = [node.member.node.ssh.port or SSH_PORT, *(_port_range(node) or [])[:1]]
    return {"slot": node.member.slot, "address": node.ip or "", "ports": ports}


def _port_range(node: NodePlan) -> list[int] | None:
    """Return the range that a node's own ports are taken from."""
    return list(node.member.node.ports) if node.member.node.ports else None


def _render_restart(plan: LaunchPlan, node: NodePlan) -> SpecPart:
    """Return what the agents need to start the run again by themselves; nothing for a job without `restart`."""
    if plan.job.restart is None:
        return {}
    roster = [_render_entry(plan.job, other) for other in plan.all_nodes]
    part: SpecPart = {
        **min_nodes_to_spec(plan.job),
        "slot": node.member.slot,
        "slots": len(roster),
        "spare": node.member.spare,
        "roster": roster,
        "restart": restart_to_spec(plan.job.restart, plan.job.stall),
    }
    if plan.job.checkpoints is not None:
        part["checkpoints"] = checkpoints_to_spec(plan.job.checkpoints, plan.run_id)
    return part


def _render_entry(job: Job, node: NodePlan) -> RosterEntry:
    entry: RosterEntry = {
        "slot": node.member.slot,
        "node": node.name,
        "node_rank": None if node.member.spare else node.member.node_rank,
        "address": node.ip,
    }
    if job.min_nodes is not None:
        entry["processes"] = node.nproc_per_node
    return entry


def min_nodes_to_spec(job: Job) -> SpecPart:
    """Return the job's `min_nodes`; nothing for a job that needs all its nodes."""
    return {} if job.min_nodes is None else {"min_nodes": job.min_nodes}


def _render_start(job: Job) -> SpecPart:
    """Return how torchrun starts its workers; nothing for new interpreters."""
    if job.start == "exec":
        return {}
    start: StartSpec = {"preload": list(job.preload)}
    return {"start": start if job.keep_warm is None else {**start, "keep_warm": job.keep_warm}}


def _render_ray(plan: LaunchPlan, node: NodePlan) -> SpecPart:
    """Return what Ray needs on a node; nothing for other launchers. Only the GPUs that the run takes are Ray's."""
    if plan.job.launcher != "ray":
        return {}
    counts = [_count_ray_gpus(plan.job, other) for other in plan.nodes]
    known = [count for count in counts if count is not None]
    return {
        "ray": {
            "gpus": _count_ray_gpus(plan.job, node),
            "all_gpus": sum(known) if len(known) == len(counts) else None,
            "ports": _port_range(node),
            "own_ports": RAY_PORTS,
            "names": {other.ip: other.name for other in plan.nodes if other.ip},
        }
    }


def _render_mpi(plan: LaunchPlan) -> SpecPart:
    """Return how many ranks mpirun starts on each node; nothing for other launchers."""
    if plan.job.launcher != "mpirun":
        return {}
    return {"mpi": {"slots": [node.nproc_per_node or 1 for node in plan.nodes]}}


def _count_ray_gpus(job: Job, node: NodePlan) -> int | None:
    """Count the GPUs that Ray may assign on a node; None where Ray counts them itself, as those of Ascend."""
    if not needs_gpus(job):
        return 0
    return None if node.vendor == "ascend" else node.nproc_per_node


def _render_stall(job: Job) -> StallSpec | None:
    """Return when a run counts as stalled; None where that is switched off."""
    if not job.stall.after:
        return None
    return {"after": job.stall.after, "then": "" if job.stall.then == "report" else job.stall.then}


def restart_to_spec(restart: Restart, stall: Stall) -> RestartSpec:
    """Return the job's `restart`."""
    reasons = [*restart.on, *([STALLED] if stall.then == "restart" else [])]
    return {"max": restart.max, "on": reasons, "progress": restart.progress}


def checkpoints_to_spec(checkpoints: Checkpoints, run_id: RunId) -> CheckpointsSpec:
    """Return the job's `checkpoints`."""
    path = fill_placeholders(checkpoints.path, {"output_dir": AgentValue("output_dir"), "run_id": run_id})
    return {
        "path": template_to_json(path),
        "complete": checkpoints.complete or "",
        "copies": checkpoints.copies,
        "keep": checkpoints.keep,
        "rate": None if checkpoints.rate is None else float(checkpoints.rate),
        "needs": checkpoints.needs,
    }


def describe_node(node: Node, facts: Facts, code: str, secrets: Collection[str]) -> dict[str, str]:
    """Return what is known of a node by name; of secrets only the names of their variables, never a value."""
    values = {
        "code": code,
        "nic": english_of(resolve_network(node, facts).source),
        "python": facts.interpreter.version,
        "torch": facts.torch.version,
        "cuda": facts.torch.cuda or facts.torch.hip,
        "nccl": facts.nccl.version,
        "driver": facts.gpus.driver,
        "kernel": facts.platform.kernel,
        "clusterctl": __version__,
        "secrets": " ".join(secrets),
    }
    return {name: value for name, value in values.items() if value}
