"""Where the ranks of a run are: asked on all its nodes, and judged; for `diagnose` and for the page of `ui`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterctl.cli.actions.find_runs import FoundRuns, refuse_without_nodes
from clusterctl.client.diagnose import Answers, count_entries, diagnose_ranks, read_gpus, watchers_of
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.plans.diagnose.hang import Judgement, choose_least_wait, judge
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.run_id import RunId


@dataclass(frozen=True)
class Diagnosis:
    """What the ranks' nodes have answered, and what follows; `asked` counts all nodes of the run.

    `gpus` are read only of a run that hangs.
    """

    answers: Answers
    judgement: Judgement
    gpus: Mapping[str, Sequence[GpuUsage]]
    asked: int


def diagnose_run(cluster: Cluster, found: FoundRuns, run_id: RunId, command: str, *, slow: bool) -> Diagnosis:
    """Ask all nodes of a run that answer; raises UsageError for a run that no node has begun."""
    parts = found.runs[run_id]
    refuse_without_nodes(found, run_id, "diagnose", command)
    nodes = [node for node in found.nodes_of(run_id) if parts.get(node.name) and node.name in found.pythons]
    handle = RunHandle(cluster, run_id, nodes, found.pythons)
    answers = diagnose_ranks(handle, count_entries(parts, slow=slow))
    silent = [name for name, part in parts.items() if part is None or name in answers.errors]
    world = next((part.world_size for part in parts.values() if part and part.world_size), None)
    least_wait = choose_least_wait(part.diagnosed for part in parts.values() if part and part.live)
    judgement = judge(answers.ranks, silent, world, least_wait, watchers_of(answers))
    answered = [node for node in nodes if node.name in answers.nodes]
    gpus = read_gpus(handle.on(answered)) if judgement.hangs and not slow else {}
    return Diagnosis(answers, judgement, gpus, len(nodes) + len(found.errors))
