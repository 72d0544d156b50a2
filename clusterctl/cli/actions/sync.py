"""Send code to the nodes' stores and say what each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from clusterctl.cli.context.nodes import interpreter, notice, open_cluster, tell_failures
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.sync.distribute import Passing, Place, Turns
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import Synced
from clusterctl.console.progress import Phases, render_freight, render_size
from clusterctl.console.text import json_text, sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.plans.launch.placement import Member
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names

SHOWN = 12  # digits of a tree hash that people compare


def sync_code(job: Job, members: Sequence[Member], scan: ScanResult, *, as_json: bool) -> int:
    """Send the code to all nodes at once; gives the exit code of the verb."""
    names, ranks = [member.name for member in members], {member.name: member.node_rank for member in members}
    held: dict[str, Synced] = {}
    errors: dict[str, ClusterctlError] = {}
    phases, turns = Phases(names), Turns() if len(members) > 1 else None
    passing: Passing | None = None

    def send(c: Any, node: Node) -> Synced:
        ours = partial(phases.move, node.name)
        held: Synced = tasks.sync(
            c, node, interpreter(node, job), None, ranks[node.name], scan, ours, turns, passing
        )
        return held

    with open_cluster() as cluster:
        cluster.open_early(member.node for member in members)  # a person is asked before the screen moves
        phases.look_at(cluster.steps)
        phases.begin("code")
        try:
            passing = find_places(cluster, job, [member.node for member in members], scan.manifest.size)
            for outcome in cluster.each([member.node for member in members], send, step="taking the code"):
                if outcome.value is not None:
                    held[outcome.node.name] = outcome.value
                    phases.arrive("code", outcome.node.name)
                elif outcome.error is not None:
                    errors[outcome.node.name] = outcome.error
                    phases.fail(outcome.node.name)
        finally:
            phases.stop()
            if passing is not None:
                passing.close()
    ordered = {name: held[name] for name in names if name in held}
    if as_json:
        document = synced_to_json(scan, ordered, errors, names)
        click.echo(json_text(document, indent=2))
    else:
        show_synced(ordered)
    tell_failures(errors[name] for name in names if name in errors)
    return exit_code(ordered, list(errors.values()))


def find_places(cluster: Cluster, job: Job, nodes: Sequence[Node], size: int) -> Passing | None:
    """Find out at which training addresses the nodes can pass the code on, if that may be worth it."""
    passing = Passing(job.sync.via, {node.name: Place("", node.ports) for node in nodes}, notice)
    if passing.offer(nodes[0].name, size) is None:
        return None
    # It brings along all that can be told of a node, which small code does without.
    from clusterctl.plans.launch.network import resolve_network

    known = {node.name: resolve_network(node, None).ip for node in nodes if not node.nic and not node.network}
    unknown = [node for node in nodes if not known.get(node.name)]
    ask = tasks.probe
    for outcome in cluster.each(
        unknown, lambda c, node: ask(c, node, interpreter(node, job), nodes), step="telling its addresses"
    ):
        known[outcome.node.name] = resolve_network(outcome.node, outcome.value).ip
    found = {node.name: Place(ip, node.ports) for node in nodes if (ip := known.get(node.name))}
    return replace(passing, places=found)


def show_synced(held: Mapping[str, Synced]) -> None:
    """Print what the nodes hold, those with the same to tell together."""
    groups: dict[str, list[str]] = {}
    for name, one in held.items():
        taken = f", {render_size(one.taken)} from another node" if one.taken else ""
        line = f"{render_freight(one.files, one.bytes, one.sent)}{taken}; tree {one.tree[:SHOWN]}"
        groups.setdefault(line, []).append(name)
    for line, names in groups.items():
        click.echo(sanitize(f"{fold_names(names)}: {line}"))


def synced_to_json(
    scan: ScanResult, held: Mapping[str, Synced], errors: Mapping[str, ClusterctlError], order: Sequence[str]
) -> dict[str, Any]:
    """Give `sync --json`; `tree` is null for a node that does not hold the code."""
    nodes = []
    for name in order:
        one, error = held.get(name), errors.get(name)
        nodes.append(
            {
                "node": name,
                "tree": one.tree if one else None,
                "sent": one.sent if one else None,
                "taken": one.taken if one else None,
                "taken_from": one.giver or None if one else None,
                "error": f"{error.code} {error.message}" if error else None,
            }
        )
    tree = {"tree": scan.manifest.hash, "files": scan.manifest.files, "bytes": scan.manifest.size}
    return {"schema": 1, **tree, "nodes": nodes}


def exit_code(held: Mapping[str, Synced], errors: Sequence[ClusterctlError]) -> int:
    """Give 0 when all nodes hold the code, 5 when some do, 4 or 1 when none does."""
    if not errors:
        return 0
    if held:
        return 5
    return 4 if any(error.exit_code == 4 for error in errors) else 1
