"""The check inside an allocation judges as that over SSH, by values alone and in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterctl.client.rpc.bundle import judge_zip
from clusterctl.node.verbs.probe import gather
from clusterctl.plans.slurm.judge import judge_allocation, parse_report, to_findings
from clusterctl.plans.slurm.submission import plan_check
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Waiver
from clusterctl.specs.job.model import Job
from clusterctl.specs.json_schema import from_plain, to_plain

JOB = Job(name="j", file="job.yaml", script="t.py", backend="gloo", nproc_per_node=1)
LOGIN = Node(name="login", index=0, host="login")
MISSING = "CC-TORCH-001"


@pytest.fixture(scope="module")
def facts() -> Any:
    """What this machine reports of itself; torch is set by the tests."""
    return gather({"host": "a", "workdir": "/tmp", "nic": [], "peers": {}}, 0.0)  # type: ignore[typeddict-item]  # enough


def ask(facts: Any, torches: dict[str, str | None], *waivers: Waiver, enforce: bool = True) -> Any:
    """Make the request for nodes with these versions of torch; without one a node did not answer."""
    check = {**plan_check(JOB, LOGIN, waivers, (), "clusterctl", None), "enforce": enforce}
    nodes = [
        {"node": name, "address": f"10.0.0.{place}", "nics": ["eth0"]}
        for place, name in enumerate(torches, 1)
    ]
    reported = {
        name: None if version is None else {**facts, "torch": {**(facts["torch"] or {}), "version": version}}
        for name, version in torches.items()
    }
    return {"check": check, "nodes": nodes, "facts": reported}


def codes_of(report: Any) -> dict[str, list[str]]:
    """Give the nodes of each finding."""
    return {record["code"]: record["nodes"] for record in report["findings"]}


def test_nodes_with_different_torch_block_the_run(facts: Any) -> None:
    """Unless the launch starts in spite of errors, as asked."""
    request = ask(facts, {"a": "2.4.0", "b": "2.4.0", "c": "2.1.0"})
    report = judge_allocation(request)
    assert report["blocks"] and codes_of(report)["CC-TORCH-002"] == ["c"]
    assert not judge_allocation(ask(facts, {"a": "2.4.0", "b": "2.1.0"}, enforce=False))["blocks"]


def test_a_node_without_facts_blocks_whatever_was_asked(facts: Any) -> None:
    """As over SSH a node that gives no answer."""
    report = judge_allocation(ask(facts, {"a": "2.4.0", "b": None}, enforce=False))
    assert report["blocks"] and ["b"] in codes_of(report).values()


def test_waivers_hold_for_nodes_of_the_allocation(facts: Any) -> None:
    """One that names other nodes is passed over."""
    waivers = [Waiver(code="CC-TORCH-002", nodes=nodes, reason="r", file="f") for nodes in ("other07", "all")]
    report = judge_allocation(ask(facts, {"a": "2.4.0", "b": "2.1.0"}, *waivers))
    waived = [record["waived"] for record in report["findings"] if record["code"] == "CC-TORCH-002"]
    assert waived and all(waived)


def test_the_program_that_is_sent_judges_alike(facts: Any, tmp_path: Path) -> None:
    """It needs no other library; what it writes is read within bounds, in the language of who reads."""
    program = tmp_path / "judge.zip"
    program.write_bytes(judge_zip()[1])
    request = ask(facts, {"a": "2.4.0", "b": "2.1.0"})
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program)],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=True,
        env={"CLUSTERCTL_LANG": "en"},
    )
    answer = json.loads(done.stdout)
    assert answer == judge_allocation(request)
    report = parse_report(Untrusted(answer))
    assert report is not None and [finding.code for finding in to_findings(report)] == list(codes_of(answer))


def test_what_a_login_node_passes_on_may_be_anything() -> None:
    """Nothing of it is an error here."""
    assert parse_report(Untrusted({})) is None
    report = parse_report(Untrusted({"findings": [{"code": 7, "severity": "fatal"}, 3], "blocks": "yes"}))
    assert report == {"findings": [], "blocks": False, "skipped": "", "seconds": 0.0}


def test_a_job_travels_whole() -> None:
    """As values that JSON can hold."""
    assert from_plain(json.loads(json.dumps(to_plain(JOB)))) == JOB
