"""What the check inside a Slurm allocation found, as a login node passes it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterctl.codes.lookup import find_entry
from clusterctl.plans.checks.framework import SEVERITIES, Finding
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.values import LONGEST_NODE_NAME, is_node_name
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import (
        CheckReport,
        FindingRecord,
    )

MOST_FINDINGS, MOST_NODES = 200, 10_000
LONGEST_TEXT = 4000


def parse_report(raw: Untrusted) -> CheckReport | None:
    """Read what the check found, as a login node passes it on; None if there is nothing."""
    if not raw:
        return None
    records = [parse_finding(entry) for entry in raw.records("findings", MOST_FINDINGS)]
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
        "nodes": list(filter(is_node_name, raw.texts("nodes", MOST_NODES, LONGEST_NODE_NAME))),
        "evidence": clean_lines(raw.text("evidence", LONGEST_TEXT), LONGEST_TEXT),
        "why": clean_text(raw.text("why")),
        "fix": clean_lines(raw.text("fix", LONGEST_TEXT), LONGEST_TEXT),
        "title": clean_text(raw.text("title")),
        "waived": clean_text(raw.text("waived")),
    }


def to_findings(report: CheckReport) -> tuple[Finding, ...]:
    """Give the findings, with title and reason in the language in use: the record is in English."""
    return tuple(_to_finding(record) for record in report["findings"])


def _to_finding(record: FindingRecord) -> Finding:
    entry = find_entry(record["code"])
    return Finding(
        record["code"],
        next(word for word in SEVERITIES if word == record["severity"]),
        tuple(record["nodes"]),
        record["evidence"],
        tr(entry.why) or record["why"],
        record["fix"],
        tr(entry.title) or record["title"],
        record["waived"],
    )
