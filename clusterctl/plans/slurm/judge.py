"""The check inside a Slurm allocation, judged on node 0: the same checks as over SSH, by values alone.

This module and all that it imports are sent to the cluster as one zip; they need no third-party library. No client has
to be connected when Slurm starts the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.errors import NodeError, UsageError
from clusterctl.plans.checks.framework import Finding, LocalFacts, Observations
from clusterctl.plans.checks.registry import (
    AppliedWaiver,
    CheckSelection,
    all_checks,
    evaluate,
    resolve_waivers,
)
from clusterctl.plans.facts.facts import discard_stale_packages, parse_facts
from clusterctl.plans.slurm.report import MOST_FINDINGS
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node, Waiver
from clusterctl.specs.job.model import Job
from clusterctl.specs.serialization import from_plain

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import (
        CheckPart,
        CheckReport,
        FindingRecord,
        JudgedNode,
        JudgeRequest,
    )

# A task of Slurm is in no session of logind, whose end would end it.
SKIPPED = frozenset({"CC-SYS-009"})
NO_ANSWER = "CC-RUN-032"


def judge_allocation(request: JudgeRequest) -> CheckReport:
    """Judge the nodes of an allocation; nothing may start on them if one gave no answer, or on errors."""
    check = request["check"]
    nodes = make_nodes(from_plain(check["login"]), request["nodes"])
    facts = read_facts(check, request["facts"])
    silent = [node.name for node in nodes if node.name not in facts]
    observed = Observations(
        facts,
        {name: NodeError(NO_ANSWER, node=name) for name in silent},
        local_facts=LocalFacts(script_siblings=tuple(check["siblings"])),
        program=check["program"],
    )
    job: Job | None = from_plain(check["job"])
    findings = evaluate(nodes, observed, job, select_in_allocation(check, nodes))
    blocks = bool(silent) or (check["enforce"] and has_errors(findings))
    records = [to_record(finding) for finding in findings[:MOST_FINDINGS]]
    return {"findings": records, "blocks": blocks, "skipped": "", "seconds": 0.0}


def to_record(finding: Finding) -> FindingRecord:
    """Write a finding down."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "nodes": list(finding.nodes),
        "evidence": finding.evidence,
        "why": finding.why,
        "fix": finding.fix,
        "title": finding.title,
        "waived": finding.waived,
    }


def has_errors(findings: Sequence[Finding]) -> bool:
    """Return whether a finding that is not waived is an error."""
    return any(finding.severity == "error" and not finding.waived for finding in findings)


def make_nodes(login: Node, members: Sequence[JudgedNode]) -> tuple[Node, ...]:
    """Describe the nodes of an allocation as an inventory would, with the address and NICs that they train with."""
    return tuple(
        replace(
            login,
            name=member["node"],
            index=index,
            host=member["node"],
            ip=member["address"],
            nic=tuple(member["nics"]),
            network=None,
            allocation=None,
        )
        for index, member in enumerate(members)
    )


def read_facts(check: CheckPart, raw: Mapping[str, object]) -> dict[str, Facts]:
    """Read the facts of the nodes that gave some; an environment that is yet to be made has other packages."""
    facts = {name: parse_facts(answer) for name, answer in raw.items() if answer is not None}
    setup = check["setup"]
    installs_torch = bool(setup and setup["brings_torch"])
    return {name: discard_stale_packages(one, installs_torch=installs_torch) for name, one in facts.items()}


def select_in_allocation(
    check: CheckPart, nodes: Sequence[Node], skipped: frozenset[str] = frozenset()
) -> CheckSelection:
    """Choose the checks that mean something in an allocation, and apply the waivers that name nodes of it."""
    waivers: list[AppliedWaiver] = []
    listed: Sequence[Waiver] = from_plain(check["waive"])
    for waiver in listed:
        try:
            waivers += resolve_waivers(all_checks(), [waiver], [node.name for node in nodes])
        except UsageError:  # names other nodes; the client has verified the rest
            continue
    return CheckSelection(SKIPPED | skipped, tuple(waivers))
