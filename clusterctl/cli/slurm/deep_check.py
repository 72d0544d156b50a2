"""`check --deep` on a Slurm cluster: the test job runs on the nodes of the check, in the same allocation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clusterctl.cli.actions.deep_check import conclude, follow_rounds, with_deep_result
from clusterctl.cli.actions.find_runs import find_runs
from clusterctl.cli.actions.preflight import Preflight
from clusterctl.client.rpc import tasks
from clusterctl.client.slurm import LoginNode, watch_queue
from clusterctl.client.sync.scan import scan_source
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.client.watch.monitor import MonitorOptions
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.collective import DeepCheckResult
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.run_id import ALLOCATION, RunId
from clusterctl.specs.inventory.model import Node, Slurm
from clusterctl.specs.job.model import Job

PHASE = "deep"


def choose_deep_backend(job: Job | None, slurm: Slurm) -> str:
    """Take the job's backend; without a job NCCL where the inventory asks for GPUs: the nodes are not known yet."""
    if job is not None:
        return job.backend
    return "nccl" if slurm.gpus_per_node else "gloo"


def send_modules(login: LoginNode, folder: Path, run_id: RunId) -> None:
    """Send what the test job runs to the directory that all nodes share."""
    place, connection = replace(login.node, name=ALLOCATION), login.cluster.connection(login.node)
    upload = TreeUpload(scan_source(folder))
    tasks.sync(connection, place, login.interpreter, run_id, Slot(0), upload, lambda _: None)


def run_deep_check(
    login: LoginNode,
    run_id: RunId,
    backend: str,
    checked: tuple[Sequence[Node], Job | None, Preflight],
) -> Preflight:
    """Follow the test job, which starts when the nodes have passed the check; adds what it finds."""
    nodes, job, preflight = checked
    deep = DeepCheckResult(backend, tuple(node.name for node in nodes), 0)
    phases, began = Phases([login.node.name]), time.monotonic()
    phases.start(PHASE)
    try:
        problem = _wait_for_start(login, run_id, len(nodes))
        if not problem:
            deep = _follow(login, run_id, deep, phases, began)
    except ClusterctlError as error:
        problem = f"{error.code} {error.message}" + (f"\n{error.evidence}" if error.evidence else "")
    finally:
        phases.stop()
    return with_deep_result(nodes, job, preflight, replace(deep, trouble=problem) if problem else deep)


def _wait_for_start(login: LoginNode, run_id: RunId, count: int) -> str:
    """Wait until all nodes have begun; gives why they do not."""
    for state in watch_queue(login, run_id, count):
        if state.begun:
            return ""
        if state.over:
            return translate_node_text(state.failure.text if state.failure else state.reason)
    return ""


def _follow(
    login: LoginNode, run_id: RunId, deep: DeepCheckResult, phases: Phases, began: float
) -> DeepCheckResult:
    found = find_runs(login.cluster, [login.node], run_id, only_one=True)
    parts = found.runs.get(run_id, {})
    options = MonitorOptions(run_id, found.nodes_of(run_id), found.pythons, found.offsets)
    lines, problem = follow_rounds(login.cluster, options)
    phases.mark_done(PHASE, login.node.name)
    ranks = max((part.world_size or 0 for part in parts.values() if part), default=0)
    return conclude(phases, began, replace(deep, ranks=ranks), lines, problem)
