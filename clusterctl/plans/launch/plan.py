"""The plan of one launch: for every node its rank, address, NICs, environment and command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from clusterctl.errors import UsageError
from clusterctl.plans.launch.launchers import (
    MODULES,
    count_chosen_gpus,
    nested_log_env,
    network_env,
    one_process_env,
    plan_argv,
    plan_ray_start,
    visible_env,
)
from clusterctl.plans.launch.placement import Device, Member
from clusterctl.plans.launch.setup import OWN_PYTHON
from clusterctl.plans.launch.template import (
    AgentValue,
    Segment,
    Template,
    Unmeasured,
    fill_placeholders,
    list_unmeasured,
    make_template,
    quote_template,
    render_template,
)
from clusterctl.plans.runs.documents import LaunchPlanEntry
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.values import accepts, parse_training_ip
from clusterctl.translation import tr, trn

TORCHRUN_GRACE = 30.0  # seconds that torchrun gives its workers between TERM and KILL, unless set otherwise


@dataclass(frozen=True)
class PlanFacts:
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
    """What one node will run: a module of torch with its arguments, or without one any program."""

    member: Member
    python: str
    nproc_per_node: int | None
    module: str | None
    argv: tuple[Template, ...]
    env: Mapping[str, Template]
    ip: str | None
    nics: tuple[str, ...]
    devices: tuple[Device, ...] = ()
    activate: str | None = None
    uses_setup_environment: bool = False  # one that `setup` makes
    vendor: str = "nvidia"
    ray: tuple[Template, ...] = ()  # what starts Ray before the job's program, or without it

    @property
    def name(self) -> str:
        """The inventory's name of the node."""
        return self.member.name

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Name what must be measured before this node can start."""
        return list_unmeasured((*self.argv, *self.env.values()))

    @property
    def command(self) -> tuple[Template, ...]:
        """Return what a user would type; where only Ray is started, its command."""
        if self.ray and not self.member.spare and self.member.node_rank > 0:
            return self.ray
        python = OWN_PYTHON if self.uses_setup_environment else make_template(self.python)
        return (
            (python, make_template("-m"), make_template(self.module), *self.argv)
            if self.module
            else self.argv
        )


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
    def all_nodes(self) -> tuple[NodePlan, ...]:
        """Every node that is prepared: an agent for each, the spares last."""
        return (*self.nodes, *self.spares)

    @property
    def has_gang(self) -> bool:
        """Return whether there are several agents, which meet at node 0's and decide together how the run ends."""
        return len(self.all_nodes) > 1


def plan_launch(
    job: Job, members: Sequence[Member], measured: Mapping[str, PlanFacts], *, run_id: RunId | None
) -> LaunchPlan:
    """Plan a run; what was not measured stays in the plan as `<name>`. Spares among the members come last."""
    nproc_by_node = {
        member.name: plan_nproc_per_node(job, member, measured[member.name]) for member in members
    }
    taking_part = [member for member in members if not member.spare]
    counts = [nproc_by_node[member.name] for member in taking_part]
    known = [count for count in counts if count is not None]
    world_size = sum(known) if len(known) == len(counts) else None
    if len(taking_part) < len(members):
        reject_unequal_nproc(nproc_by_node)
    if job.min_nodes is not None and job.min_nodes >= len(taking_part):
        raise UsageError("CC-SPEC-013", "min-nodes", text=str(job.min_nodes), nodes=len(taking_part))
    shared = _shared_values(job, taking_part, measured, world_size, run_id)
    nodes = tuple(_plan_node(job, member, measured[member.name], nproc_by_node, shared) for member in members)
    network = {key for node in nodes for key in network_env(measured[node.name].vendor, ("eth0",))}
    overridden = tuple(sorted({*network, *VISIBLE_DEVICES_VARIABLES} & set(job.env)))
    first, spares = nodes[: len(taking_part)], nodes[len(taking_part) :]
    return LaunchPlan(job, run_id or RunId("<run_id>"), first, world_size, overridden, spares)


def reject_unequal_nproc(nproc_by_node: Mapping[str, int | None]) -> None:
    """Refuse spares that could not take the place of every node; raises UsageError."""
    counts = group_values((count, name) for name, count in nproc_by_node.items() if count is not None)
    if len(counts) > 1:
        lines = (
            tr("{nodes} would start {count}", nodes=fold_names(names), count=count)
            for count, names in sorted(counts.items())
        )
        raise UsageError("CC-USE-033", evidence="\n".join(lines))


def plan_nproc_per_node(job: Job, member: Member, facts: PlanFacts) -> int | None:
    """Count the workers of a node; the inventory's `gpus:` is what the node lends, so it beats the count found.

    GPUs that the job chooses, by `gpus` or by a variable of its own, are counted themselves.
    """
    if isinstance(job.nproc_per_node, int):
        return job.nproc_per_node
    if job.nproc_per_node == "cpu":
        return facts.cpus
    chosen = count_chosen_gpus(job)
    if chosen is not None:
        return chosen
    return member.node.gpus if member.node.gpus is not None else facts.gpus


def _shared_values(
    job: Job,
    members: Sequence[Member],
    measured: Mapping[str, PlanFacts],
    world_size: int | None,
    run_id: str | None,
) -> dict[str, Segment]:
    """Return what all nodes have in common; what another attempt may change is left to the agents."""
    master, may_restart = members[0].name, job.restart is not None
    may_shrink = job.min_nodes is not None
    address = measured[master].ip
    return {
        "nnodes": _initial_value("nnodes", str(len(members)), may_shrink),
        "master_addr": Unmeasured(f"ip@{master}")
        if address is None
        else _initial_value("master_addr", address, may_restart),
        "attempt": _initial_value("attempt", "1", may_restart),
        "master_port": AgentValue("master_port"),
        "world_size": Unmeasured("world_size")
        if world_size is None
        else _initial_value("world_size", str(world_size), may_shrink),
        "run_id": run_id or Unmeasured("run_id"),
        "output_dir": AgentValue("output_dir"),
        "stage_dir": AgentValue("stage_dir"),
        "resume": AgentValue("resume") if job.checkpoints else "",
    }


def _initial_value(name: str, value: str, may_change: bool) -> Segment:
    return AgentValue(name, value) if may_change else value


def _plan_node(
    job: Job,
    member: Member,
    facts: PlanFacts,
    nproc_by_node: Mapping[str, int | None],
    shared: Mapping[str, Segment],
) -> NodePlan:
    nproc_per_node = nproc_by_node[member.name]
    unit = "cpus" if job.nproc_per_node == "cpu" else "gpus"
    nproc_text = Unmeasured(f"{unit}@{member.name}") if nproc_per_node is None else str(nproc_per_node)
    rank = "" if member.spare else str(member.node_rank)
    values = {
        **shared,
        "node_rank": _initial_value("node_rank", rank, job.restart is not None),
        "nproc_per_node": nproc_text,
    }
    python = facts.python or job.python or member.node.python
    env = {
        **torchrun_env(job),
        **one_process_env(job, values),
        **nested_log_env(job, values),
        **_network_env(member, facts),
        **{key: make_template(value) for key, value in visible_env(facts.vendor, job.gpus).items()},
        **{key: fill_placeholders(value, values) for key, value in job.env.items()},
    }
    uses_setup = job.setup is not None and job.setup.kind is not None
    argv = plan_argv(job, OWN_PYTHON if uses_setup else make_template(python), values)
    module = MODULES.get(job.launcher)
    activate = job.activate or member.node.activate
    return NodePlan(
        member=member,
        python=python,
        nproc_per_node=nproc_per_node,
        module=module,
        argv=argv,
        env=env,
        ip=facts.ip,
        nics=facts.nics,
        devices=facts.devices,
        activate=activate,
        uses_setup_environment=uses_setup,
        vendor=facts.vendor,
        ray=_plan_ray(job, member, facts, values),
    )


def _plan_ray(
    job: Job, member: Member, facts: PlanFacts, values: Mapping[str, Segment]
) -> tuple[Template, ...]:
    if job.launcher != "ray":
        return ()
    address = Unmeasured(f"ip@{member.name}") if facts.ip is None else facts.ip
    return plan_ray_start(values, address, head=member.slot == 0)


def torchrun_env(job: Job) -> dict[str, Template]:
    """Return the variable that makes torchrun wait as long as the job's grace; its default is 30 s."""
    longer = job.grace > TORCHRUN_GRACE
    return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": make_template(str(ceil(job.grace)))} if longer else {}


def _network_env(member: Member, facts: PlanFacts) -> dict[str, Template]:
    if facts.nics:
        return {key: make_template(value) for key, value in network_env(facts.vendor, facts.nics).items()}
    placeholder = Unmeasured(f"nic@{member.name}")
    return {
        key: make_template(*_replace_nic(value, placeholder))
        for key, value in network_env(facts.vendor, ("nic0",)).items()
    }


def _replace_nic(value: str, placeholder: Unmeasured) -> tuple[Segment, ...]:
    before, _, after = value.partition("nic0")
    return before, placeholder, after


def check_measured(plan: LaunchPlan) -> None:
    """Raise UsageError where something of a plan was not measured; of several agents any may have to lead."""
    needs_address = plan.has_gang or plan.job.restart is not None
    for node in plan.all_nodes:
        missing = [*node.unmeasured, *([f"ip@{node.name}"] if needs_address and node.ip is None else [])]
        if missing:
            raise UsageError("CC-USE-006", node=node.name, names=", ".join(missing))


def render_plan(plan: LaunchPlan) -> str:
    """Write the plan as the shell lines that a user would type on each node."""
    size = "?" if plan.world_size is None else plan.world_size
    nodes = trn("{n} node", "{n} nodes", len(plan.nodes))
    head = tr("# {job}: {nodes}, world size {size}", job=plan.job.name, nodes=nodes, size=size)
    if plan.spares:
        spares = trn("{n} spare", "{n} spares", len(plan.spares))
        head = tr("{line}, {spares}", line=head, spares=spares)
    return "\n".join([head, *map(_render_node, plan.all_nodes)])


def _render_node(node: NodePlan) -> str:
    address = node.ip or f"<ip@{node.name}>"
    role = tr("spare") if node.member.spare else tr("node {node_rank}", node_rank=node.member.node_rank)
    title = tr(
        "# {role}: {node}, {address}, NIC {nics}",
        role=role,
        node=node.name,
        address=address,
        nics=",".join(node.nics) or "<measured>",
    )
    exports = [f"export {key}={quote_template(value)}" for key, value in sorted(node.env.items())]
    words = [node.ray, node.command] if node.ray and node.command != node.ray else [node.command]
    commands = [" ".join(map(quote_template, each)) for each in words]
    if len(commands) > 1:
        commands[0] += " &"
    activate = [node.activate] if node.activate else []
    return "\n".join([title, *activate, "cd <run_dir>/code", *exports, *commands, ""])


def plan_to_json(plan: LaunchPlan) -> LaunchPlanEntry:
    """Return its part of `launch --dry-run --json`; texts as they are shown, holes as `<name>`."""
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
                "env": {key: render_template(value) for key, value in node.env.items()},
                "argv": [render_template(word) for word in node.command],
            }
            for node in plan.all_nodes
        ],
    }


def offline(member: Member) -> PlanFacts:
    """Return what the inventory alone has of a node."""
    return PlanFacts(
        ip=member.node.ip or (member.node.host if accepts(parse_training_ip, member.node.host) else None),
        nics=member.node.nic,
        gpus=member.node.gpus,
        cpus=None,
        python=None,
    )
