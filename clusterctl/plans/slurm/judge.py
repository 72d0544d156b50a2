"""The check inside a Slurm allocation, judged on node 0: the same checks as over SSH, by values alone.

This module and all that it imports are sent to the cluster as one zip; they need no third-party library. No client has
to be connected when Slurm starts the job. What is found is recorded as CheckReport, which a client reads by
`parse_report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.codes.lookup import find_entry
from clusterctl.errors import NodeError, UsageError
from clusterctl.plans.checks.framework import SEVERITIES, Finding, LocalFacts, Observations
from clusterctl.plans.checks.registry import (
    AppliedWaiver,
    CheckSelection,
    evaluate,
    resolve_waivers,
)
from clusterctl.plans.facts.facts import discard_stale_packages, parse_facts
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Waiver
from clusterctl.specs.job.model import Job
from clusterctl.specs.json_schema import from_plain
from clusterctl.specs.values import MAX_NODE_NAME, is_node_name
from clusterctl.translation import tr

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
MAX_FINDINGS, MAX_NODES = 200, 10_000
MAX_TEXT = 4000  # characters


def judge_allocation(request: JudgeRequest) -> CheckReport:
    """Judge the nodes of an allocation; nothing may start on them if one gave no answer, or on errors."""
    check = request["check"]
    nodes = make_nodes(from_plain(check["login"]), request["nodes"])
    facts = {name: None if raw is None else parse_facts(raw) for name, raw in request["facts"].items()}
    observed, _, findings = judge_nodes(
        check, nodes, facts, from_plain(check["job"]), LocalFacts(script_siblings=tuple(check["siblings"]))
    )
    blocks = bool(observed.failures) or (check["enforce"] and has_errors(findings))
    records = [to_record(finding) for finding in findings[:MAX_FINDINGS]]
    return {"findings": records, "blocks": blocks, "skipped": "", "seconds": 0.0}


def judge_nodes(
    check: CheckPart,
    nodes: Sequence[Node],
    answers: Mapping[str, Facts | None],
    job: Job | None,
    local_facts: LocalFacts,
    skipped: frozenset[str] = frozenset(),
) -> tuple[Observations, CheckSelection, tuple[Finding, ...]]:
    """Judge nodes by their facts, and return with the findings what was observed, and what was asked.

    An environment that is yet to be made has other packages.
    """
    installs_torch = bool(check["setup"] and check["setup"]["brings_torch"])
    facts = {
        name: discard_stale_packages(one, installs_torch=installs_torch)
        for name, one in answers.items()
        if one is not None
    }
    failures = {node.name: NodeError(NO_ANSWER, node=node.name) for node in nodes if node.name not in facts}
    observed = Observations(facts, failures, local_facts=local_facts, program=check["program"])
    selection = select_in_allocation(check, nodes, skipped)
    return observed, selection, evaluate(nodes, observed, job, selection)


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


def select_in_allocation(check: CheckPart, nodes: Sequence[Node], skipped: frozenset[str]) -> CheckSelection:
    """Choose the checks that mean something in an allocation, and apply the waivers that name nodes of it."""
    waivers: list[AppliedWaiver] = []
    listed: Sequence[Waiver] = from_plain(check["waive"])
    for waiver in listed:
        try:
            waivers += resolve_waivers([waiver], [node.name for node in nodes])
        except UsageError:  # names other nodes; the client has verified the rest
            continue
    return CheckSelection(SKIPPED | skipped, tuple(waivers))


def parse_report(raw: Untrusted) -> CheckReport | None:
    """Read what the check found, as a login node passes it on; None if there is nothing."""
    if not raw:
        return None
    records = [parse_finding(entry) for entry in raw.records("findings", MAX_FINDINGS)]
    return {
        "findings": [record for record in records if record["severity"] in SEVERITIES],
        "blocks": raw.flag("blocks"),
        "skipped": raw.text("skipped"),
        "seconds": raw.number("seconds", 0.0) or 0.0,
    }


def parse_finding(raw: Untrusted) -> FindingRecord:
    """Read one finding."""
    return {
        "code": clean_text(raw.text("code", 40)),
        "severity": raw.text("severity", 20),
        "nodes": list(filter(is_node_name, raw.texts("nodes", MAX_NODES, MAX_NODE_NAME))),
        "evidence": clean_lines(raw.text("evidence", MAX_TEXT), MAX_TEXT),
        "why": clean_text(raw.text("why")),
        "fix": clean_lines(raw.text("fix", MAX_TEXT), MAX_TEXT),
        "title": clean_text(raw.text("title")),
        "waived": clean_text(raw.text("waived")),
    }


def to_findings(report: CheckReport) -> tuple[Finding, ...]:
    """Return the findings, with title and reason in the language in use: the record is in English."""
    return tuple(_to_finding(record) for record in report["findings"])


def _to_finding(record: FindingRecord) -> Finding:
    entry = find_entry(record["code"])
    return Finding(
        code=record["code"],
        severity=next(word for word in SEVERITIES if word == record["severity"]),
        nodes=tuple(record["nodes"]),
        evidence=record["evidence"],
        why=tr(entry.why) or record["why"],
        fix=record["fix"],
        title=tr(entry.title) or record["title"],
        waived=record["waived"],
    )
