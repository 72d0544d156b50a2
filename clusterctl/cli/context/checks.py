"""Which checks are judged, and what the code of a job alone shows: all without a connection, as a preview has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.console.terminal import stderr
from clusterctl.plans.checks.framework import Finding, LocalFacts, Observations
from clusterctl.plans.checks.registry import CheckSelection, choose_checks, evaluate, resolve_waivers

if TYPE_CHECKING:
    from clusterctl.plans.launch.script import JobCode
    from clusterctl.specs.inventory.model import Inventory, Node
    from clusterctl.specs.job.model import Job


def select_checks(
    inventory: Inventory, job: Job | None, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> CheckSelection:
    """Settle which checks are judged and which findings are waived, by the inventory or the job.

    Raises UsageError for words and codes that mean nothing, before any node is asked.
    """
    names = [node.name for node in inventory.nodes]
    waivers = (*inventory.waive, *(job.waive if job else ()))
    return CheckSelection(choose_checks(only, skip), resolve_waivers(waivers, names))


def report_code(
    nodes: Sequence[Node], job: Job, code: JobCode, selection: CheckSelection
) -> Sequence[Finding]:
    """Print and return what the code alone shows, where no node answers: before a run is queued, or only planned."""
    observed = Observations({}, {}, local_facts=LocalFacts(code=code))
    findings = [replace(finding, nodes=()) for finding in evaluate(nodes, observed, job, selection)]
    if findings:
        from clusterctl.console.findings import render_findings  # which loads tables

        render_findings(stderr(), findings)
    return findings
