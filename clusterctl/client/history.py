"""What the nodes of a run have on record of it, from all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.client.rpc import tasks
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.history import NodeRecord


@dataclass(frozen=True)
class Records:
    """What each node has answered, or why it has not; in the order of the inventory."""

    nodes: Mapping[str, NodeRecord]
    errors: Mapping[str, ClusterctlError]


def fetch_records(run: tasks.RunHandle, choice: tasks.HistoryChoice) -> Records:
    """Ask all nodes of a run; one that hangs costs its limit and is an error among the others' answers."""
    nodes, errors = dict[str, NodeRecord](), dict[str, ClusterctlError]()
    for outcome in run.cluster.each(
        run.nodes, lambda c, node: tasks.history(c, node, run.interpreters[node.name], run.run_id, choice)
    ):
        if outcome.value is not None:
            nodes[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
    names = [node.name for node in run.nodes]
    return Records(
        {name: nodes[name] for name in names if name in nodes},
        {name: errors[name] for name in names if name in errors},
    )
