"""Ask the nodes which runs they remember; the nodes' word is the truth, from any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterctl.cli.context.nodes import notice, with_any_python
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.selection import Parts, gather_runs, is_complete, is_live
from clusterctl.plans.runs.state import SUCCEEDED, NodeState, whole_state
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import counted

REMEMBERED = 200


@dataclass(frozen=True)
class Remembered:
    """The runs by id, newest first, the nodes that did not answer, and the Python that answered on the others."""

    runs: dict[RunId, dict[str, NodeState | None]]
    errors: tuple[ClusterctlError, ...]
    asked: int
    pythons: dict[str, tasks.Interpreter]
    offsets: dict[str, float]  # each node's clock minus ours, in seconds

    @property
    def answered(self) -> int:
        """Count the nodes that answered."""
        return self.asked - len(self.errors)


def ask_runs(
    cluster: Cluster,
    nodes: Sequence[Node],
    prefix: str | None,
    *,
    pulse: bool = False,
    one: bool = False,
) -> Remembered:
    """Ask every node for its runs at the same time; `pulse`: with signs of life of those that live.

    `one`: no other run is wanted, so that once all of its nodes have spoken nobody waits for one that is dark.
    """
    answers: dict[str, tasks.Listing] = {}
    pythons: dict[str, tasks.Interpreter] = {}
    errors: dict[str, ClusterctlError] = {}

    for outcome in cluster.each(
        nodes,
        lambda c, node: with_any_python(
            node, lambda used: tasks.ps(c, node, used, prefix, REMEMBERED, pulse=pulse)
        ),
    ):
        if outcome.value is not None:
            answers[outcome.node.name], pythons[outcome.node.name] = outcome.value
            _warn(outcome.node.name, outcome.value[0])
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
        if one and prefix is not None and parse_run_id(prefix) and is_complete(_find(answers, prefix)):
            break
    ordered = {node.name: answers[node.name].runs for node in nodes if node.name in answers}
    offsets = {name: listing.offset for name, listing in answers.items()}
    gathered = gather_runs(ordered, [node.name for node in nodes if node.name not in answers])
    names = [node.name for node in nodes]  # what has a rank has it in this order
    runs = {run: {name: parts[name] for name in names if name in parts} for run, parts in gathered.items()}
    return Remembered(runs, tuple(errors.values()), len(answers) + len(errors), pythons, offsets)


def _warn(node: str, listing: tasks.Listing) -> None:
    if listing.unnamed:
        what = counted(listing.unnamed, "line")
        notice(
            f"{node}: {what} of its list of runs name no run and were ignored: is this node what it should be?"
        )


def _find(answers: Mapping[str, tasks.Listing], run: str) -> Parts:
    return {name: state for name, one in answers.items() for state in one.runs if state.run == run}


def recall_end(cluster: Cluster, nodes: Sequence[Node], remembered: Remembered, run: RunId) -> Parts:
    """Give the parts of a run, of one that ended badly with what its nodes know of the end, told only when asked."""
    parts = remembered.runs[run]
    told = any(part.record for part in parts.values() if part)
    if told or is_live(parts) or whole_state(parts) == SUCCEEDED:
        return parts
    again = ask_runs(cluster, [node for node in nodes if parts.get(node.name)], run).runs.get(run, {})
    return {**parts, **{name: part for name, part in again.items() if part}}
