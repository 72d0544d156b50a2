"""From the queue of a Slurm cluster to the end of a run; and `stop`, in the queue or later."""

from __future__ import annotations

import sys
import time
from datetime import datetime

import click

from clusterctl.cli.actions.attach import watch_run
from clusterctl.cli.actions.find_runs import FoundRuns, find_runs
from clusterctl.cli.actions.notify import notify_end
from clusterctl.cli.actions.stop import stop_run
from clusterctl.cli.context.nodes import report_failures
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.slurm import LoginNode, QueueState, cancel_job, watch_queue
from clusterctl.client.watch.monitor import MonitorOptions
from clusterctl.console.progress import Phases
from clusterctl.console.terminal import can_redraw, info
from clusterctl.console.verdict import show_verdict
from clusterctl.errors import ClusterctlError, ConnectError, ConnectionLost
from clusterctl.plans.runs.selection import is_live, submitted_at
from clusterctl.plans.runs.verdict import judge, judge_recorded, verdict_to_json
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import RUNNING
from clusterctl.translation import tr

QUEUE = "queue"
RETURN_LIMIT = 3600.0  # seconds without the login node while the job waits
LONGEST_PAUSE = 15.0
END_TIMEOUT = 10.0  # seconds in which a job whose parts were stopped leaves the queue by itself


def follow_from_queue(
    login: LoginNode, run_id: RunId, count: int, output: RunOutput, secrets: tuple[str, ...], began: float
) -> int:
    """Show how the job waits, then follow the run; Ctrl-C detaches, in the queue too."""
    try:
        state = wait_for_nodes(login, run_id, count)
    except KeyboardInterrupt:
        info(output.describe_leaving(run_id, stopping=False))
        output.write_end(RUNNING, 130)
        return 130
    if state.begun:
        info(tr("Slurm job {number} runs on {nodes}", number=state.job, nodes=state.nodes or "?"))
    found = find_runs(login.cluster, [login.node], run_id, only_one=True)
    report_failures(found.errors)
    if run_id not in found.runs:
        return 4
    if not is_live(found.runs[run_id]):
        return show_end(found, run_id, output, secrets, began)
    return follow_found_run(login.cluster, found, run_id, output, secrets, began)


def attach_in_queue(cluster: Cluster, found: FoundRuns, run_id: RunId, output: RunOutput) -> int:
    """Follow a run of which no node has begun."""
    parts, login = found.runs[run_id], found.nodes[0]
    count = max((part.agent_count for part in parts.values() if part), default=1)
    reached = LoginNode(cluster, login, found.pythons[login.name])
    return follow_from_queue(reached, run_id, count, output, (), submitted_at(parts))


def follow_found_run(
    cluster: Cluster,
    found: FoundRuns,
    run_id: RunId,
    output: RunOutput,
    secrets: tuple[str, ...],
    began: float,
) -> int:
    """Follow a run whose nodes have begun."""
    parts = found.runs[run_id]
    nodes = found.nodes_of(run_id)
    options = MonitorOptions(
        run_id, nodes, found.pythons, found.offsets, secrets, inventory_names=[node.name for node in nodes]
    )
    node_ranks = {part.node: part.node_rank for part in parts.values() if part}
    world = max((part.world_size or 1 for part in parts.values() if part), default=1)
    return watch_run(cluster, options, output, output.logs(run_id, node_ranks, world), began)


def show_end(
    found: FoundRuns, run_id: RunId, output: RunOutput, secrets: tuple[str, ...], began: float
) -> int:
    """Show how a run ended of which nothing could be followed, as one that was cancelled in the queue."""
    parts = found.runs[run_id]
    verdict = judge_recorded(run_id, parts, [*parts], found.offsets) or judge(run_id, parts, ())
    output.write_json({"run": run_id, "verdict": verdict_to_json(verdict)})
    seconds = time.time() - began
    show_verdict(verdict, seconds, output.command, 0)
    notify_end(verdict, seconds, output.command, secrets)
    return verdict.exit_code


def wait_for_nodes(login: LoginNode, run_id: RunId, count: int) -> QueueState:
    """Wait until all nodes have begun, or the job is over; a login node that is away is tried again."""
    phases, since, tries, shown = Phases([login.node.name]), time.monotonic(), 0, ""
    phases.start(QUEUE)
    try:
        while True:
            try:
                for state in watch_queue(login, run_id, count):
                    since, tries = time.monotonic(), 0
                    shown = show_queue(phases, describe_queue(state), shown)
                    if state.begun or state.over:
                        return state
            except (ConnectError, ConnectionLost) as error:
                tries = pause_for_login(login, error, since, tries)
    finally:
        phases.stop()


def show_queue(phases: Phases, text: str, shown: str) -> str:
    """Show how the job waits: in the moving line, and where there is none as a line of its own when it changes."""
    phases.set_activity(text)
    if text != shown and not can_redraw(sys.stderr):
        info(f"  {QUEUE}   {text}")
    return text


def pause_for_login(login: LoginNode, error: ClusterctlError, since: float, tries: int) -> int:
    """Wait a while before the next try; raises the error when it has been too long."""
    if time.monotonic() - since > RETURN_LIMIT:
        raise error
    if tries == 0:
        info(
            tr(
                "{node}: {text}; the job stays in the queue; trying again",
                node=login.node.name,
                text=error.message,
            )
        )
    login.cluster.forget(login.node)
    time.sleep(min(LONGEST_PAUSE, 2.0**tries / 2))
    return min(tries + 1, 10)


def describe_queue(state: QueueState) -> str:
    """Say why a job waits and when Slurm expects it to begin."""
    if not state.waits:
        return tr("Slurm job {number}: starting on {nodes}", number=state.job, nodes=state.nodes or "?")
    if state.start is None:
        return state.reason
    start = datetime.fromtimestamp(state.start).strftime("%Y-%m-%d %H:%M")
    return tr("{reason}; expected start {time}", reason=state.reason, time=start)


def stop_slurm_run(
    cluster: Cluster, found: FoundRuns, run_id: RunId, grace: float | None, command: str
) -> int:
    """Stop the nodes' parts by our own order, and take the job out of Slurm if it does not end by that."""
    parts = found.runs.get(run_id, {})
    login_node = found.nodes[0]
    login = LoginNode(cluster, login_node, found.pythons[login_node.name])
    begun = [node for node in found.nodes_of(run_id) if (part := parts.get(node.name)) and not part.is_queued]
    code = 0
    if begun:
        run = tasks.RunHandle(cluster, run_id, begun, found.pythons)
        ended_before = [name for name, part in parts.items() if part and not part.live]
        code = stop_run(run, [], grace, was_live=is_live(parts), ended_before=ended_before, command=command)
    number = cancel_job(login, run_id, END_TIMEOUT if begun else 0.0)
    if number:
        click.echo(tr("{run}: Slurm job {number} cancelled", run=run_id, number=number))
    return code
