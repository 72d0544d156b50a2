"""Send code to the stores of the nodes and report what each of them has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from clusterctl.cli.context.nodes import interpreter, notice, open_cluster, report_failures
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Answers, Cluster, collect
from clusterctl.client.sync.distribution import Distribution, TransferAddress, Via
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import SharedHomeLocks, SyncResult, TreeUpload
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases, render_upload
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.plans.launch.placement import Member
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_size
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import SyncDocument, SyncedNode

SHOWN_DIGITS = 12  # digits of a tree hash that people compare


def sync_code(job: Job, members: Sequence[Member], scan: ScanResult, *, as_json: bool) -> int:
    """Send the code to all nodes at once; gives the exit code of the verb."""
    nodes, slots = [member.node for member in members], {member.name: member.slot for member in members}
    names = [node.name for node in nodes]
    phases, home_locks = Phases(names), SharedHomeLocks() if len(members) > 1 else None
    distribution: Distribution | None = None

    def send(c: Any, node: Node) -> SyncResult:
        count_sent = partial(phases.add_bytes, node.name)
        result: SyncResult = tasks.sync(
            c,
            node,
            interpreter(node, job),
            None,
            slots[node.name],
            TreeUpload(scan, home_locks, distribution, phases.add_expected, phases.add_taken),
            count_sent,
        )
        return result

    with open_cluster() as cluster:
        cluster.open_early(nodes)  # questions come before the live progress
        phases.set_steps(cluster.steps)
        phases.start("code")
        try:
            distribution = find_addresses(cluster, job.sync.via, nodes, scan.manifest.size, job)
            outcomes = cluster.each(nodes, send, step=tr("receiving the code"))
            answers = collect(nodes, phases.follow("code", outcomes))
        finally:
            phases.stop()
            if distribution is not None:
                distribution.close()
    if as_json:
        write_document(synced_to_json(scan, answers, names))
    else:
        show_synced(answers.nodes)
    report_failures(answers.errors.values())
    return transfer_exit_code(answers.errors.values(), done=bool(answers.nodes))


def find_addresses(
    cluster: Cluster, via: Via, nodes: Sequence[Node], size: int, job: Job | None = None
) -> Distribution | None:
    """Find out at which training addresses the nodes can pass contents on, if that may be worth it."""
    distribution = Distribution(via, {node.name: TransferAddress("", node.ports) for node in nodes}, notice)
    if distribution.offer(nodes[0].name, size) is None:
        return None
    # imports all facts of nodes, which is not needed for small code
    from clusterctl.plans.launch.network import resolve_network

    # of a node with `nic` or `network` only, its facts decide
    ips = {
        node.name: resolve_network(node, None).ip
        for node in nodes
        if node.ip or not (node.nic or node.network)
    }
    unknown = [node for node in nodes if not ips.get(node.name)]
    probe = tasks.probe
    for outcome in cluster.each(
        unknown, lambda c, node: probe(c, node, interpreter(node, job), nodes), step=tr("reading addresses")
    ):
        ips[outcome.node.name] = resolve_network(outcome.node, outcome.value).ip
    addresses = {node.name: TransferAddress(ip, node.ports) for node in nodes if (ip := ips.get(node.name))}
    return replace(distribution, addresses=addresses)


def show_synced(results: Mapping[str, SyncResult]) -> None:
    """Print what the nodes have, with equal lines folded."""
    groups: dict[str, list[str]] = {}
    for name, result in results.items():
        facts = {
            "upload": render_upload(result.files, result.bytes, result.sent),
            "tree": result.tree[:SHOWN_DIGITS],
        }
        if result.taken:
            taken = render_size(result.taken)
            line = tr("{upload}, {taken} from another node; tree {tree}", taken=taken, **facts)
        else:
            line = tr("{upload}; tree {tree}", **facts)
        groups.setdefault(line, []).append(name)
    for line, names in groups.items():
        click.echo(sanitize(f"{fold_names(names)}: {line}"))


def synced_to_json(scan: ScanResult, answers: Answers[SyncResult], order: Sequence[str]) -> SyncDocument:
    """Return the document of `sync --json`; `tree` is null for a node that does not hold the code."""
    nodes: list[SyncedNode] = []
    for name in order:
        result, error = answers.nodes.get(name), answers.errors.get(name)
        nodes.append(
            {
                "node": name,
                "tree": result.tree if result else None,
                "sent": result.sent if result else None,
                "taken": result.taken if result else None,
                "taken_from": result.provider or None if result else None,
                "error": f"{error.code} {error.message}" if error else None,
            }
        )
    return {
        "schema": 1,
        "tree": scan.manifest.hash,
        "files": scan.manifest.files,
        "bytes": scan.manifest.size,
        "nodes": nodes,
    }


def transfer_exit_code(errors: Collection[ClusterctlError], *, done: bool, incomplete: bool = False) -> int:
    """Return 0, 5 where something is missing, or 4 or 1 where nothing was transferred."""
    if not errors:
        return 5 if incomplete else 0
    if done:
        return 5
    return 4 if any(error.exit_code == 4 for error in errors) else 1
