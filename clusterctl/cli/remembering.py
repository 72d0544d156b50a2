"""Ask the nodes which runs they remember; the nodes' word is the truth, from any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.cli.reaching import interpreter
from clusterctl.errors import ClusterctlError
from clusterctl.plans.choose_run import gather_runs
from clusterctl.plans.state import NodeState
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.specs.inventory import Node

REMEMBERED = 200


@dataclass(frozen=True)
class Remembered:
    """The runs by id, newest first, and the nodes that did not answer."""

    runs: dict[str, dict[str, NodeState | None]]
    errors: tuple[ClusterctlError, ...]
    asked: int

    @property
    def answered(self) -> int:
        """Count the nodes that answered."""
        return self.asked - len(self.errors)


def ask_runs(cluster: Cluster, nodes: Sequence[Node], prefix: str | None) -> Remembered:
    """Ask every node for its runs at the same time."""
    answers: dict[str, Sequence[NodeState]] = {}
    errors: dict[str, ClusterctlError] = {}
    for outcome in cluster.each(
        nodes, lambda c, node: tasks.ps(c, node, interpreter(node), prefix, REMEMBERED)
    ):
        if outcome.error is None:
            answers[outcome.node.name] = outcome.value or ()
        else:
            outcome.error.node = outcome.error.node or outcome.node.name
            errors[outcome.node.name] = outcome.error
    ordered = {node.name: answers[node.name] for node in nodes if node.name in answers}
    return Remembered(gather_runs(ordered, list(errors)), tuple(errors.values()), len(nodes))
