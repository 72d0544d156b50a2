"""End a run on all its nodes at once, with short patience: for runs of which a part has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fabric import Connection

from clusterctl.errors import ClusterctlError
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.specs.inventory import Node

FAILURE_GRACE = (
    1.0  # seconds between TERM and KILL once a part of the run has failed, as on the failed node itself
)


def end_run(
    cluster: Cluster,
    nodes: Sequence[Node],
    interpreters: Mapping[str, tasks.Interpreter],
    run: str,
    reason: str,
) -> dict[str, ClusterctlError]:
    """Stop the run on these nodes; gives the errors of those on which it could not be stopped."""

    def stop(c: Connection, node: Node) -> tasks.Stopped:
        stopped: tasks.Stopped = tasks.stop(c, node, interpreters[node.name], run, FAILURE_GRACE, reason)
        return stopped

    outcomes = cluster.each(nodes, stop)
    return {outcome.node.name: outcome.error for outcome in outcomes if outcome.error is not None}
