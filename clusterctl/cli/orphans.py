"""What crashed runs have left on the nodes: asked for, shown, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from clusterctl.cli.reaching import reading_exit_code, tell_failures, with_any_python
from clusterctl.console.jsontext import json_text
from clusterctl.console.orphans import orphans_to_json, show_orphans
from clusterctl.errors import ClusterctlError
from clusterctl.plans.orphans import Orphan, Orphans
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.orphans import Ended, end_orphans, find_orphans
from clusterctl.specs.inventory import Node


@dataclass(frozen=True)
class Asked:
    """The nodes' answers, and the nodes that gave none."""

    found: dict[str, Orphans]
    errors: dict[str, ClusterctlError]


def ask_orphans(cluster: Cluster, nodes: Sequence[Node]) -> Asked:
    """Ask every node at the same time."""
    found: dict[str, Orphans] = {}
    errors: dict[str, ClusterctlError] = {}
    for outcome in cluster.each(
        nodes, lambda c, node: with_any_python(node, lambda used: find_orphans(c, node, used))[0]
    ):
        if outcome.value is not None:
            found[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
    return Asked({node.name: found[node.name] for node in nodes if node.name in found}, errors)


def end_all(
    cluster: Cluster, nodes: Sequence[Node], orphans: Mapping[str, Sequence[Orphan]]
) -> tuple[dict[str, Ended], dict[str, ClusterctlError]]:
    """End these on every node at the same time; gives what came of it, and the nodes where nothing did."""
    ended: dict[str, Ended] = {}
    errors: dict[str, ClusterctlError] = {}
    wanted = [node for node in nodes if orphans.get(node.name)]
    for outcome in cluster.each(
        wanted,
        lambda c, node: with_any_python(node, lambda used: end_orphans(c, node, used, orphans[node.name]))[0],
    ):
        if outcome.value is not None:
            ended[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
    return ended, errors


def list_orphans(cluster: Cluster, nodes: Sequence[Node], *, as_json: bool) -> int:
    """Carry out `ps --orphans`; gives the exit code."""
    asked = ask_orphans(cluster, nodes)
    tell_failures(asked.errors.values())
    if as_json:
        click.echo(json_text(orphans_to_json(asked.found), indent=2))
    elif asked.found:
        show_orphans(asked.found)
    return reading_exit_code(len(asked.found), len(nodes))
