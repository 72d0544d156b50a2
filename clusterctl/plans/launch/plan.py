"""The plan of one launch: for every node its rank, address, NICs, environment and command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from clusterctl.errors import UsageError
from clusterctl.plans.launch.launchers import (
    MODULES,
    chosen_gpus,
    network_env,
    one_process_env,
    plan_argv,
    visible_env,
)
from clusterctl.plans.launch.placement import Device, Member
from clusterctl.plans.launch.setup import OWN_PYTHON
from clusterctl.plans.launch.template import (
    Fill,
    Segment,
    Text,
    Unknown,
    fill_template,
    quote,
    render,
    text,
    unknowns,
)
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.job.model import VISIBLE, Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

TORCHRUN_GRACE = 30.0  # seconds that torchrun gives its workers between TERM and KILL, unless told otherwise


@dataclass(frozen=True)
class Measured:
    """What a plan needs to know of a node; `None` where it has not been measured yet."""

    ip: str | None
    nics: tuple[str, ...]
    gpus: int | None
    cpus: int | None
    python: str | None
    vendor: str = "nvidia"
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class NodePlan:
    """What one node will run: a module of torch with its arguments, or without one a program of its own."""

    member: Member
    python: str
    nproc: int | None
    module: str | None
    argv: tuple[Text, ...]
    env: Mapping[str, Text]
    ip: str | None
    nics: tuple[str, ...]
    devices: tuple[Device, ...] = ()
    activate: str | None = None
    in_environment: bool = False  # one that `setup` makes

    @property
    def name(self) -> str:
        """The inventory's name of the node."""
        return self.member.name

    @property
    def missing(self) -> tuple[str, ...]:
        """Name what must be measured before this node can start."""
        return unknowns((*self.argv, *self.env.values()))

    @property
    def words(self) -> tuple[Text, ...]:
        """What a person would type."""
        python = OWN_PYTHON if self.in_environment else text(self.python)
        return (python, text("-m"), text(self.module), *self.argv) if self.module else self.argv


@dataclass(frozen=True)
class LaunchPlan:
    """What all nodes will run, in the order of their ranks; `spares` wait until they are needed."""

    job: Job
    run_id: RunId
    nodes: tuple[NodePlan, ...]
    world_size: int | None
    overridden: tuple[str, ...]
    spares: tuple[NodePlan, ...] = ()

    @property
    def seats(self) -> tuple[NodePlan, ...]:
        """Every node that is prepared: an agent for each, the spares last."""
        return (*self.nodes, *self.spares)


def plan_launch(
    job: Job, members: Sequence[Member], measured: Mapping[str, Measured], *, run_id: RunId | None
) -> LaunchPlan:
    """Plan a run; what was not measured stays in the plan as `<name>`. Spares among the members come last."""
    nprocs = {member.name: plan_nproc(job, member, measured[member.name]) for member in members}
    taking_part = [member for member in members if not member.spare]
    counts = [nprocs[member.name] for member in taking_part]
    known = [count for count in counts if count is not None]
    world_size = sum(known) if len(known) == len(counts) else None
    if len(taking_part) < len(members):
        refuse_unequal(nprocs)
    shared = _shared_values(job, taking_part, measured, world_size, run_id)
    nodes = tuple(_plan_node(job, member, measured[member.name], nprocs, shared) for member in members)
    network = {key for node in nodes for key in network_env(measured[node.name].vendor, ("eth0",))}
    overridden = tuple(sorted({*network, *VISIBLE} & set(job.env)))
    first, spares = nodes[: len(taking_part)], nodes[len(taking_part) :]
    return LaunchPlan(job, run_id or RunId("<run_id>"), first, world_size, overridden, spares)


def refuse_unequal(nprocs: Mapping[str, int | None]) -> None:
    """Refuse spares that could not take the place of every node; raises UsageError."""
    counts: dict[int, list[str]] = {}
    for name, count in nprocs.items():
        if count is not None:
            counts.setdefault(count, []).append(name)
    if len(counts) > 1:
        said = (f"{fold_names(names)} would start {count}" for count, names in sorted(counts.items()))
        raise UsageError(
            "a spare must start as many workers as the node whose place it takes",
            code="CC-USE-033",
            evidence="\n".join(said),
            fix="a number as nproc_per_node, `gpus:` in the job, or other nodes",
        )


def plan_nproc(job: Job, member: Member, node: Measured) -> int | None:
    """Count the workers of a node; the inventory's `gpus:` is what the node lends, so it beats the count found.

    GPUs that the job chooses, by `gpus` or by a variable of its own, are counted themselves.
    """
    if isinstance(job.nproc_per_node, int):
        return job.nproc_per_node
    if job.nproc_per_node == "cpu":
        return node.cpus
    chosen = chosen_gpus(job)
    if chosen is not None:
        return chosen
    return member.node.gpus if member.node.gpus is not None else node.gpus


def _shared_values(
    job: Job,
    members: Sequence[Member],
    measured: Mapping[str, Measured],
    world_size: int | None,
    run_id: str | None,
) -> dict[str, Segment]:
    """Give what all nodes have in common; what another attempt may change is left to the agents."""
    master, again = members[0].name, job.restart is not None
    address = measured[master].ip
    return {
        "nnodes": str(len(members)),
        "master_addr": Unknown(f"ip@{master}") if address is None else _now("master_addr", address, again),
        "attempt": _now("attempt", "1", again),
        "master_port": Fill("master_port"),
        "world_size": Unknown("world_size") if world_size is None else str(world_size),
        "run_id": run_id or Unknown("run_id"),
        "output_dir": Fill("output_dir"),
    }


def _now(name: str, value: str, again: bool) -> Segment:
    return Fill(name, value) if again else value


def _plan_node(
    job: Job, member: Member, node: Measured, nprocs: Mapping[str, int | None], shared: Mapping[str, Segment]
) -> NodePlan:
    nproc = nprocs[member.name]
    unit = "cpus" if job.nproc_per_node == "cpu" else "gpus"
    count = Unknown(f"{unit}@{member.name}") if nproc is None else str(nproc)
    rank = "" if member.spare else str(member.node_rank)
    values = {
        **shared,
        "node_rank": _now("node_rank", rank, job.restart is not None),
        "nproc_per_node": count,
    }
    python = node.python or job.python or member.node.python
    env = {
        **_torchrun_env(job),
        **one_process_env(job, values),
        **_network_env(member, node),
        **{key: text(value) for key, value in visible_env(node.vendor, job.gpus).items()},
        **{key: fill_template(value, values) for key, value in job.env.items()},
    }
    made = job.setup is not None and job.setup.kind is not None
    argv = plan_argv(job, OWN_PYTHON if made else text(python), values)
    module = MODULES.get(job.launcher)
    activate = job.activate or member.node.activate
    return NodePlan(
        member, python, nproc, module, argv, env, node.ip, node.nics, node.devices, activate, made
    )


def _torchrun_env(job: Job) -> dict[str, Text]:
    """Let torchrun wait as long as the job's grace; its own limit would end the workers after 30 s."""
    longer = job.grace > TORCHRUN_GRACE
    return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": text(str(ceil(job.grace)))} if longer else {}


def _network_env(member: Member, node: Measured) -> dict[str, Text]:
    if node.nics:
        return {key: text(value) for key, value in network_env(node.vendor, node.nics).items()}
    hole = Unknown(f"nic@{member.name}")
    return {
        key: text(*_around(value, "nic0", hole)) for key, value in network_env(node.vendor, ("nic0",)).items()
    }


def _around(value: str, marker: str, hole: Unknown) -> tuple[Segment, ...]:
    before, _, after = value.partition(marker)
    return before, hole, after


def render_plan(plan: LaunchPlan) -> str:
    """Write the plan as the shell lines that a person would type on each node."""
    size = "?" if plan.world_size is None else plan.world_size
    head = f"# {plan.job.name}: {counted(len(plan.nodes), 'node')}, world size {size}"
    head += f", {counted(len(plan.spares), 'spare')}\n" if plan.spares else "\n"
    return head + "\n".join(_render_node(node) for node in plan.seats)


def _render_node(node: NodePlan) -> str:
    address = node.ip or f"<ip@{node.name}>"
    role = "spare" if node.member.spare else f"node {node.member.node_rank}"
    title = f"# {role}: {node.name}, {address}, NIC {','.join(node.nics) or '<measured>'}"
    exports = [f"export {key}={quote(value)}" for key, value in sorted(node.env.items())]
    command = " ".join(map(quote, node.words))
    activate = [node.activate] if node.activate else []
    return "\n".join([title, *activate, "cd <run_dir>/code", *exports, command, ""])


def plan_to_json(plan: LaunchPlan) -> dict[str, Any]:
    """Give `launch --dry-run --json`; texts as they are shown, holes as `<name>`."""
    return {
        "job": plan.job.name,
        "world_size": plan.world_size,
        "nodes": [
            {
                "node": node.name,
                "node_rank": None if node.member.spare else node.member.node_rank,
                "spare": node.member.spare,
                "ip": node.ip,
                "nic": list(node.nics),
                "activate": node.activate,
                "env": {key: render(value) for key, value in node.env.items()},
                "argv": [render(word) for word in node.words],
            }
            for node in plan.seats
        ],
    }


def offline(member: Member) -> Measured:
    """Give what the inventory alone tells of a node."""
    return Measured(
        ip=member.node.ip or (member.node.host if _is_ipv4(member.node.host) else None),
        nics=member.node.nic,
        gpus=member.node.gpus,
        cpus=None,
        python=None,
    )


def _is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(part.isdigit() and int(part) <= 255 for part in parts)
