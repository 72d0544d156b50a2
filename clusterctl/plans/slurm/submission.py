"""What is submitted to Slurm: the options of sbatch, the batch script, and the template of all nodes' specs.

The template is planned as any run, for nodes of which nothing is known; what a plan leaves open by name becomes a hole
that the task on the node fills (`node/slurm/spec.py`), or the agent, as before every attempt of a run that may start
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from clusterctl.errors import UsageError
from clusterctl.plans.export.shell import ExportNodes, default_nproc
from clusterctl.plans.export.slurm import render_time
from clusterctl.plans.launch.agent_spec import (
    checkpoints_to_spec,
    min_nodes_to_spec,
    render_spec,
    restart_to_spec,
)
from clusterctl.plans.launch.placement import Member, needs_gpus
from clusterctl.plans.launch.plan import PlanFacts, plan_launch
from clusterctl.plans.launch.template import AgentValue, Segment, Template, Unmeasured
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Node, Slurm, Ssh, Waiver
from clusterctl.specs.job.model import Job, Restart
from clusterctl.specs.json_schema import to_plain
from clusterctl.specs.nodeset import ALL, fold_names, parse_pattern
from clusterctl.specs.text import quote_word
from clusterctl.specs.values import MAX_NODE_NAME

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart
    from clusterctl.protocol.messages.files import LaunchRecord, SetupQuery, Spec
    from clusterctl.protocol.messages.verbs import SlurmTemplate


START_ALLOWANCE = 300.0  # seconds of a Slurm job's time for the start, beyond the job's own stages
END_ALLOWANCE = 60.0  # seconds that our own end, with its records, has before Slurm's
MAX_NODES = 10_000
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


@dataclass(frozen=True)
class Submission:
    """What is handed to Slurm: what the tasks read, options of sbatch, and the batch script."""

    template: SlurmTemplate
    options: Sequence[str]
    script: str


@dataclass(frozen=True)
class SlurmNodes:
    """Which nodes a job gets: how many take part, how many wait as spares, and names where the user gave some."""

    count: int
    spares: int = 0
    names: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Count all nodes of the allocation."""
        return self.count + self.spares


def choose_slurm_nodes(job: Job, pattern: str | None, exclude: str | None) -> SlurmNodes:
    """Read which nodes are meant: a number, or names and ranges; Slurm alone knows which there are."""
    spares = job.restart.spares if job.restart else 0
    excluded = _expand(exclude) if exclude else ()
    if pattern is None and isinstance(job.nodes, int):
        return SlurmNodes(job.nodes, spares, excluded=excluded)
    text = pattern if pattern is not None else str(job.nodes)
    if count := _parse_count(text):
        return SlurmNodes(count, spares, excluded=excluded)
    if text.strip() == ALL:
        raise UsageError("CC-SLURM-001", "all", file=job.file)
    names = tuple(name for name in _expand(text) if name not in excluded)
    if len(names) <= spares:
        raise UsageError("CC-SLURM-001", "spares", names=fold_names(names), spares=spares)
    return SlurmNodes(len(names) - spares, spares, names=names)


def choose_named_nodes(pattern: str | None, exclude: str | None) -> SlurmNodes:
    """Read which nodes are meant where there is no job: names and ranges, else any one node."""
    excluded = _expand(exclude) if exclude else ()
    if pattern and (count := _parse_count(pattern)):
        return SlurmNodes(count, excluded=excluded)
    names = tuple(name for name in _expand(pattern) if name not in excluded) if pattern else ()
    return SlurmNodes(len(names) or 1, names=names, excluded=() if names else excluded)


CHECK = "check"


def plan_check_job(job: Job | None, slurm: Slurm) -> Job:
    """Plan a job that asks for the same nodes as another one, for a few minutes; without one for all GPUs of a node."""
    base = job or Job(name=CHECK, file="", command=("true",), launcher="command")
    if job is None and slurm.gpus_per_node is None:
        base = replace(base, nproc_per_node=1, backend="gloo")
    brief = replace(base, name=CHECK, time_limit=0.0, grace=0.0, setup=None, before=None, after=None)
    return replace(brief, restart=None, secrets=())


def _parse_count(pattern: str) -> int:
    """Return the number of nodes that a pattern is; 0 for names. There are no node ranks before Slurm has chosen."""
    text = pattern.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_NODES)) else 0


def _expand(pattern: str) -> tuple[str, ...]:
    """Write a pattern out; ranks and globs need to know the nodes."""
    names = list(islice((name for term in parse_pattern(pattern) for name in term.expand()), MAX_NODES + 1))
    for name in names:
        if len(names) > MAX_NODES or name.replace("-", "").isdecimal() or set(name) & set("*?"):
            raise UsageError("CC-SLURM-001", "pattern", pattern=pattern)
        if len(name) > MAX_NODE_NAME:
            raise UsageError("CC-SLURM-001", "pattern", pattern=pattern)
    return tuple(dict.fromkeys(names))


def refuse_unsupported(job: Job, slurm: Slurm) -> None:
    """Raise UsageError for what a run on a Slurm cluster cannot do, before anything is sent."""
    if job.gpus:
        raise UsageError("CC-SLURM-001", "gpus", file=job.file)
    if default_nproc(job) == "gpu" and slurm.gpus_per_node is None:
        raise UsageError("CC-SLURM-001", "gpus-per-node")


def plan_options(job: Job, slurm: Slurm, nodes: SlurmNodes, run_id: RunId) -> list[str]:
    """Return the options of sbatch."""
    limit = plan_slurm_time(job, slurm)
    return [
        f"--job-name={run_id}",
        f"--nodes={nodes.total}",
        "--ntasks-per-node=1",
        *_account_options(slurm),
        *_plan_resources(job, slurm),
        *([f"--time={render_time(limit)}"] if limit else []),
        *([f"--nodelist={fold_names(nodes.names)}"] if nodes.names else []),
        *([f"--exclude={fold_names(nodes.excluded)}"] if nodes.excluded else []),
        *(["--no-kill"] if job.restart else []),  # a lost node: the others start again
        "--requeue" if may_requeue(job) else "--no-requeue",
        "--open-mode=append",
        *slurm.extra,
    ]


def _account_options(slurm: Slurm) -> list[str]:
    named = {"partition": slurm.partition, "account": slurm.account, "qos": slurm.qos}
    return [f"--{key}={value}" for key, value in named.items() if value]


def choose_script_nodes(
    job: Job, slurm: Slurm, login: Node, pattern: str | None, exclude: str | None
) -> ExportNodes:
    """Choose the nodes of a script for sbatch, and the options of the cluster that it has; no node is a spare."""
    nodes = choose_slurm_nodes(replace(job, restart=None), pattern, exclude)
    node = replace(login, ip=None, gpus=slurm.gpus_per_node)
    names = nodes.names or (ANY_NODE,) * nodes.count
    members = tuple(Member(replace(node, name=name), Slot(number)) for number, name in enumerate(names))
    is_shorter = slurm.time is not None and (job.time_limit is None or slurm.time < job.time_limit)
    options = (
        *_account_options(slurm),
        *([f"--time={render_time(slurm.time)}"] if slurm.time is not None and is_shorter else []),
        *([f"--exclude={fold_names(nodes.excluded)}"] if nodes.excluded else []),
        *map(quote_word, slurm.extra),
    )
    return ExportNodes(nodes.count, members, bool(nodes.names), options)


def may_requeue(job: Job) -> bool:
    """Return whether Slurm may start the job again: where the job file lets a lost node start it again."""
    return job.restart is not None and "node_lost" in job.restart.on


def _plan_resources(job: Job, slurm: Slurm) -> list[str]:
    """Ask for whole nodes where the job takes all of a node, else for as much as its workers need at least."""
    nproc = default_nproc(job)
    gpus = (int(nproc) if nproc.isdecimal() else slurm.gpus_per_node) if needs_gpus(job) else None
    whole = job.exclusive or not nproc.isdecimal()
    return [
        *([f"--gpus-per-node={gpus}"] if gpus else []),
        *(["--exclusive", "--mem=0"] if whole else [f"--cpus-per-task={nproc}"]),
    ]


def plan_slurm_time(job: Job, slurm: Slurm) -> float | None:
    """Return the seconds to ask Slurm for: the job's own limit with room for start and end, or the inventory's."""
    if job.time_limit is None:
        return slurm.time
    stages = sum(stage.time_limit for stage in (job.setup, job.before, job.after) if stage)
    wanted = job.time_limit + stages + job.grace + START_ALLOWANCE + END_ALLOWANCE
    return wanted if slurm.time is None else min(wanted, slurm.time)


def plan_time_limit(job: Job, slurm: Slurm) -> float | None:
    """Return the seconds after which the agents end the run themselves, so that its end is on record before Slurm's."""
    if slurm.time is None:
        return job.time_limit
    room = min(START_ALLOWANCE + END_ALLOWANCE + job.grace, slurm.time / 4)
    return slurm.time - room if job.time_limit is None else min(job.time_limit, slurm.time - room)


BEGINNING = r"""#!/bin/bash
# Written by `clusterctl launch`: one task on each node, which guards the run there. $1 is the run's shared folder.
# A file per task: srun waits for every process that holds a shared one. A task that fails ends no other: the agents
# end the run together, and record why. Without the folder the launch has failed: no verb would list this job.
folder=$1 payload=$2 status=0
cd "$folder" || exit 1
if [ ! -e job.json ]; then # the launch was killed before it wrote the number
    printf '{"job": "%s", "cluster": "%s"}\n' "$SLURM_JOB_ID" "$SLURM_CLUSTER_NAME" >job.new && mv job.new job.json
fi
rm -f ended.json
mkdir -p -m 700 exchange "exchange/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
"""
# Slurm starts a job again only if it had to end it: after the warning of a partition's GraceTime it must not end first.
WAIT_FOR_REQUEUE = """if [ "$status" = 75 ]; then # Slurm has stopped the run, and may start the job again
    sleep 300
    exit 75
fi
"""
END = r"""rm -f secrets.json
printf '{"job": "%s", "status": %s}\n' "$SLURM_JOB_ID" "$status" >ended.new
mv ended.new ended.json
exit "$status"
"""
# The task is no rank of MPI: else mpirun, or a program with mpi4py, would take itself for one.
SRUN = "srun --export=ALL --mpi=none --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none --input=none"


def render_script(job: Job, login: Node) -> str:
    """Write the batch script; no secret is in it, since Slurm keeps and shows it."""
    activate = job.activate or login.activate
    python = job.python or login.python
    program = f'"$HOME"/{quote_word(python[2:])}' if python.startswith("~/") else quote_word(python)
    # as the guardian is started over SSH: apart from the account's Python settings
    command = f'i=-I; [ -z "${{PYTHONHOME:-}}" ] || i=; exec {program} $i -S -X utf8 "$2" task "$1"'
    if activate:
        command = f"{activate}\n{command}"
    shell = "/bin/bash -l -c" if activate else "/bin/bash -c"  # modules are functions of a login shell
    options = '--no-kill --output="$folder/task.%t.out"' if job.restart else '--output="$folder/task.%t.out"'
    run = f'{SRUN} \\\n    {options} {shell} {quote_word(command)} task "$folder" "$payload" || status=$?\n'
    return "".join([BEGINNING, run, WAIT_FOR_REQUEUE if may_requeue(job) else "", END])


def describe_request(options: Sequence[str]) -> str:
    """Write what is asked of Slurm in one line."""
    return " ".join(["sbatch", *map(quote_word, options)])


def plan_check(
    job: Job | None,
    login: Node,
    waivers: Sequence[Waiver],
    siblings: Sequence[str],
    program: str,
    setup: SetupQuery | None,
) -> CheckPart:
    """Plan the check inside the allocation; `siblings` are names beside the job's script."""
    if job is not None:  # what a check does not look at need not travel, nor what may be secret in a URL
        stage = tuple(replace(entry, source=entry.label) for entry in job.stage)
        job = replace(job, on_end=None, notify=(), secrets=(), stage=stage)
    return {
        "job": to_plain(job),
        "login": to_plain(replace(login, ssh=Ssh(), allocation=None)),
        "waive": to_plain(tuple(waivers)),
        "siblings": list(siblings),
        "program": program,
        "setup": setup,
        "enforce": True,
        "only": False,
    }


def plan_submission(
    job: Job,
    slurm: Slurm,
    login: Node,
    nodes: SlurmNodes,
    run_id: RunId,
    record: LaunchRecord,
    check: CheckPart,
) -> Submission:
    """Plan what is handed to Slurm; `record` holds who launches, when and in which cluster."""
    spec, workers = _plan_spec(job, slurm, login, nodes, run_id, record)
    template: SlurmTemplate = {
        "spec": spec,
        "workers": 1 if check["only"] else workers,  # of a check none starts
        "nic": list(login.nic),
        "network": login.network,
        "requeue": may_requeue(job),
        "check": check,
    }
    return Submission(template, plan_options(job, slurm, nodes, run_id), render_script(job, login))


def _plan_spec(
    job: Job, slurm: Slurm, login: Node, nodes: SlurmNodes, run_id: RunId, record: LaunchRecord
) -> tuple[Spec, int | Literal["gpu", "cpu"]]:
    """Plan the spec of every node, as far as it is the same, and how many workers each has."""
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
        spec.update(min_nodes_to_spec(job))  # type: ignore[typeddict-item]  # mypy does not know that it is a part
    if job.checkpoints is not None:
        spec["checkpoints"] = checkpoints_to_spec(job.checkpoints, run_id)
    return spec, int(nproc) if nproc.isdecimal() else ("cpu" if nproc == "cpu" else "gpu")


def _leave_holes(value: Template, *, one_nic: bool = False) -> Template:
    return tuple(_leave_hole(part, one_nic=one_nic) for part in value)


def _leave_hole(part: Segment, *, one_nic: bool) -> Segment:
    if not isinstance(part, Unmeasured):
        return part
    name = HOLES[part.name]
    return AgentValue("nic" if one_nic and name == "nics" else name)
