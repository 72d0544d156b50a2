"""What a job asks for and an exported script does not do: a comment in the script and a note on the screen."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.export.nodes import ExportNodes, Target
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job, Restart
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

_DEFAULTS = Job(name="x", file="")


def list_notes(job: Job, nodes: ExportNodes, target: Target) -> tuple[str, ...]:
    """List what the script leaves out or does differently, in the language of the user."""
    own = _slurm_notes(job, nodes) if target == "slurm" else _bash_notes(job)
    return (*_restart_notes(job.restart, target), *own, *_common_notes(job))


def _restart_notes(restart: Restart | None, target: Target) -> Iterator[str]:
    if restart is None:
        return
    if target == "slurm" and requeues(restart):
        yield tr(
            "restart: Slurm starts the job again after a lost node or a preemption (--requeue), "
            "not after a failed worker, and does not count"
        )
    else:
        yield tr("restart: the script never starts the job again")
    if restart.spares:
        yield tr("restart.spares: no spare nodes are reserved")


def requeues(restart: Restart | None) -> bool:
    """Tell whether Slurm starts the job again when a node is lost."""
    return restart is not None and restart.most > 0 and "node_lost" in restart.on


def _slurm_notes(job: Job, nodes: ExportNodes) -> Iterator[str]:
    if nodes.named:
        yield tr("nodes: Slurm numbers the nodes itself; the node_rank may differ from the inventory's")
    if job.gpus:
        yield tr("gpus: Slurm chooses {count} GPUs of each node itself", count=len(job.gpus))
    for name in hidden_variables(job):
        yield tr("env.{name}: left out, Slurm sets the visible GPUs", name=name)
    lent: dict[int | None, list[str]] = {}
    for member in nodes.members:
        lent.setdefault(member.node.gpus, []).append(member.name)
    if job.nproc_per_node == "gpu" and len(lent) > 1 and not job.gpus:
        listing = "; ".join(
            f"{fold_names(names)}: {'?' if count is None else count}" for count, names in lent.items()
        )
        yield tr(
            "the nodes have different numbers of GPUs ({listing}); Slurm gives whole nodes", listing=listing
        )
    if job.grace != _DEFAULTS.grace:
        yield tr(
            "grace: the time between SIGTERM and SIGKILL is KillWait of the Slurm cluster, not {grace}",
            grace=render_duration(job.grace),
        )


def hidden_variables(job: Job) -> tuple[str, ...]:
    """Name the job's variables that would contradict Slurm's choice of GPUs."""
    return tuple(name for name in VISIBLE_DEVICES_VARIABLES if name in job.env)


def _bash_notes(job: Job) -> Iterator[str]:
    if job.exclusive or job.gpus or job.nproc_per_node == "gpu":
        yield tr("GPUs are not locked: another run may use the same ones")
    if any(pattern.startswith("!") for pattern in job.sync.exclude):
        yield tr("sync.exclude: patterns with ! are left out, tar has none")


def _common_notes(job: Job) -> Iterator[str]:
    if job.start != "exec":
        yield tr("start: {start} is left out, every worker starts a new interpreter", start=job.start)
    if job.log_limit != _DEFAULTS.log_limit:
        yield tr("log_limit: the output is not limited")
    if job.on_end is not None:
        yield tr("on_end: the command is not run")
    if job.notify:
        yield tr("notify: no message is sent")
