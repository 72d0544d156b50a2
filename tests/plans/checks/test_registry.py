"""Checks: every case of the data files, and rules that hold for all of them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import pytest
from cases import ASKED, FAMILIES, HEARD, answers, every_case, judge, nodes, read_cases
from rich.console import Console

from clusterctl.codes.lookup import REPORTED, find_entry
from clusterctl.console.findings import check_to_json, render_check
from clusterctl.errors import Unreachable
from clusterctl.plans.checks.access import UNANSWERED
from clusterctl.plans.checks.framework import (
    SEVERITIES,
    CheckContext,
    Finding,
    Hit,
    Observations,
    check,
    split_votes,
)
from clusterctl.plans.checks.registry import all_checks, evaluate, join_evidence, join_fixes
from clusterctl.plans.facts.facts import parse_facts
from clusterctl.translation import use_language


@dataclass
class Judged:
    """What every case gives in English: the findings of each family's cases, and the fixes of all."""

    findings: dict[str, list[tuple[Finding, ...]]] = field(default_factory=dict)
    fixes: set[tuple[str, str | None]] = field(default_factory=set)


@pytest.fixture(scope="module")
def judged() -> Judged:
    """Judge every case once for all tests of this file."""
    found = Judged()
    with_fix = Hit.with_fix

    def record(hit: Hit, code: str, context: CheckContext) -> Hit:
        found.fixes.add((code, hit.case))
        return with_fix(hit, code, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hit, "with_fix", record)
        found.findings = {family: [*map(judge, read_cases(family))] for family in FAMILIES}
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_case(family: str, judged: Judged) -> None:
    """A case gives exactly its findings, with these nodes and these words."""
    for case, findings in zip(read_cases(family), judged.findings[family], strict=True):
        compare(case, findings)


def compare(case: dict[str, Any], findings: tuple[Finding, ...]) -> None:
    """Compare the findings of a case with those that it names."""
    found = {(finding.code, finding.waived): finding for finding in findings}
    expected = {(told["code"], told.get("waived", "")): told for told in case.get("findings", [])}
    assert sorted(found) == sorted(expected), (case["name"], found)
    for key, told in expected.items():
        finding = found[key]
        assert finding.nodes == tuple(told["nodes"]), finding
        assert told.get("severity", finding.severity) == finding.severity
        assert finding.fix, f"{finding.code} says no way out"
        for words in told.get("evidence", []):
            assert words in finding.evidence
        for words in told.get("fix", []):
            assert words in finding.fix
        assert told.get("whole_fix", finding.fix) == finding.fix


def test_every_check_fires_in_some_case() -> None:
    """No check is without a case that makes it speak."""
    fired = {told["code"] for case in every_case() for told in case.get("findings", [])}
    assert sorted(set(all_checks()) - fired) == []


def test_every_fix_of_a_check_is_given_in_some_case(judged: Judged) -> None:
    """A fix whose facts are missing fails here, not on the user's screen."""
    # those of a node that gave no answer are errors; that of the deep check is given by the verb
    elsewhere = {*UNANSWERED, "CC-DEEP-006"}
    fixes = {(code, case) for code in set(all_checks()) - elsewhere for case in find_entry(code).cases}
    assert fixes - judged.fixes == set()


CHINESE = re.compile("[\u4e00-\u9fff]")


def test_no_finding_is_chinese_in_english(judged: Judged) -> None:
    """`--json` switches to English, and then nothing of any finding is Chinese."""
    for finding in chain(*chain(*judged.findings.values())):
        assert not CHINESE.search(json.dumps(asdict(finding), ensure_ascii=False)), finding


def test_every_finding_is_in_chinese() -> None:
    """Its reason and its title."""
    use_language("zh")
    try:
        findings = [finding for case in every_case() for finding in judge(case)]
    finally:
        use_language("en")
    for finding in findings:
        assert CHINESE.search(finding.why), finding
        assert CHINESE.search(finding.title) or finding.title == "", finding


@pytest.mark.parametrize("count", [1, 2, 8])
def test_healthy_nodes_have_no_findings(count: int) -> None:
    """Healthy nodes give nothing, with and without a job."""
    assert judge({"nodes": count}) == ()
    for job in (
        {"backend": "nccl"},
        {"backend": "gloo", "nproc_per_node": 2},
        {"backend": "nccl", "nproc_per_node": 2},
    ):
        assert judge({"nodes": count, "job": job}) == ()


def test_every_check_can_be_explained() -> None:
    """Each check has a title, a reason of one sentence, and an explanation that reports more."""
    for one in all_checks().values():
        entry = one.entry
        assert entry.severity in SEVERITIES
        assert entry.title and not entry.title.endswith(".")
        assert entry.why.endswith(".") and len(entry.why) < 140, one.code
        assert len(entry.what) > 20, one.code


def test_findings_come_worst_first() -> None:
    """Errors stand before warnings, warnings before notes."""
    case = {"facts": {"gpu2": {"hostname.addresses": ["127.0.1.1"], "nics.1.mtu": 1500, "torch": None}}}
    assert [finding.severity for finding in judge(case)] == ["error", "warning", "info"]


def test_codes_are_taken_once() -> None:
    """A second check under the same code is refused."""
    with pytest.raises(ValueError, match="CC-NET-001 is taken"):

        @check("CC-NET-001")
        def again(seen: CheckContext) -> list[Any]:
            return list(seen.nodes)


def test_majority_names_the_odd_one() -> None:
    """The odd node comes first, with the number of those that agree."""
    split = split_votes({"a1": "x", "a2": "x", "a3": "y", "a4": "x"})
    assert split is not None
    assert (split.odd, split.majority, split.evidence) == (("a3",), "x", "a3: y; the other 3: x")


def test_tie_blames_no_node() -> None:
    """Without a majority both groups are reported and all are named."""
    split = split_votes({"a1": "x", "a2": "y"})
    assert split is not None
    assert (split.odd, split.majority) == (("a1", "a2"), None)
    assert split.evidence == "a1: x; a2: y; no majority"


def test_votes_that_agree_are_no_split() -> None:
    """One value, or none at all, is agreement."""
    assert split_votes({"a": "x", "b": "x"}) is None
    assert split_votes({}) is None


def test_long_evidence_and_fixes_are_cut() -> None:
    """Many different lines end in a line that reports how many more there are."""
    hits = [Hit((f"a{n:02}",), f"line {n}", fix=f"fix {n}", shared=True) for n in range(30)]
    assert join_evidence(hits).endswith("line 11\nand 18 more")
    assert join_fixes(hits).endswith("fix 3\n# the same on a[04-29]")


def test_lines_that_differ_in_numbers_alone_are_one() -> None:
    """Twenty nodes with little room are one line; three are three."""
    few = [Hit((f"a{n:02}",), f"{n}.5 GiB free on /") for n in range(1, 4)]
    many = [Hit((f"a{n:02}",), f"{n}.5 GiB free on /") for n in range(1, 21)]
    assert join_evidence(few) == "a01: 1.5 GiB free on /\na02: 2.5 GiB free on /\na03: 3.5 GiB free on /"
    assert join_evidence(many) == "a[01-20]: 1.5 GiB free on / (a01; similar on the others)"


def test_two_hundred_nodes_are_a_screen_that_can_be_read() -> None:
    """Ten nodes in trouble among two hundred: each trouble is reported once, and the whole fits on two screens."""
    low = {f"gpu{n}": {"workdir_disk.free": (40 + n) * 10**6} for n in range(71, 91)}
    odd = {
        "gpu7": {"torch": None},
        "gpu99": {"nics.1.mtu": 1500},
        "gpu120": {"gpus": {"problem": "no answer within 7.5 s"}},
    }
    gone = {f"gpu{n}": f"no route to 10.0.0.{n}" for n in range(13, 18)}
    failures = {name: Unreachable("CC-SSH-003", REPORTED, message=text) for name, text in gone.items()}
    case = {"nodes": 200, "facts": {**odd, **low}}
    told_by = {name: raw for name, raw in answers(case).items() if name not in gone}
    facts = {name: parse_facts(raw, sent_at=ASKED, received_at=HEARD) for name, raw in told_by.items()}
    findings = evaluate(nodes(case), Observations(facts, failures))
    console = Console(file=io.StringIO(), width=100)
    render_check(console, nodes(case), facts, findings)
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # the file is the StringIO above

    assert len(shown.splitlines()) < 50, shown
    assert "gpu[13-17]: no route to 10.0.0.13 (gpu13; similar on the others)" in shown
    assert shown.startswith("✗ 6 of 200 nodes cannot take part (2 errors, 3 warnings)\n")
    told = check_to_json(nodes(case), facts, findings)
    assert len(told["nodes"]) == 200 and sum(node["answered"] for node in told["nodes"]) == 195
