"""`stage --verify`: whether what was staged is still the same on every node, by the hash of every file."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.cli.context.checks import select_checks
from clusterctl.cli.context.nodes import open_cluster, query_nodes, reading_exit_code
from clusterctl.client.cleanup import query_staged
from clusterctl.console.documents.output import write_document
from clusterctl.console.progress import Phases
from clusterctl.console.staging import report_verified, verified_to_json
from clusterctl.plans.checks.framework import Observations
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.checks.staged import sources_of
from clusterctl.plans.sync.staged import newest_by_node
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

DIFFERS = 3  # exit code, as of a check that failed


def verify_staged(
    job: Job, inventory: Inventory, nodes: Sequence[Node], command: str, *, as_json: bool
) -> int:
    """Have all nodes hash what the job stages, and show which node differs in which file; gives the exit code."""
    nodes = nodes if inventory.slurm is None else nodes[:1]
    selection = select_checks(inventory, job, only=("STAGE",))
    sources, phases = sources_of(job), Phases([node.name for node in nodes])
    with open_cluster() as cluster:
        cluster.open_early(nodes)  # questions come before the live progress
        with phases.display_phase("verify", cluster.steps):
            found, failed = query_nodes(
                cluster,
                nodes,
                lambda c, node, python: query_staged(c, node, python, verified=sources),
                step=tr("hashing what was staged"),
            )
    answered = [node for node in nodes if node.name in found]
    findings = evaluate(answered, Observations({}, {}, staged=found, program=command), job, selection)
    copies = {source: newest_by_node(found, source) for source in sources}
    if as_json:
        write_document(verified_to_json(found, findings, failed))
    else:
        report_verified(copies, answered, findings, command_line("stage", job.file, command=command))
    absent = any(len(of_nodes) < len(answered) for of_nodes in copies.values())
    if absent or any(finding.severity != "info" and not finding.waived for finding in findings):
        return DIFFERS
    return reading_exit_code(len(found), len(nodes))
