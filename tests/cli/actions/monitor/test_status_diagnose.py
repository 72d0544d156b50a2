"""What `diagnose` makes of the answers of a run's nodes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions.monitor import status
from clusterctl.client.rpc.cluster import Answers
from clusterctl.console.run.hang import describe_asked
from clusterctl.errors import NodeError
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.protocol.run_id import RunId

RUN = RunId("a-20261123T140026-66e1")


def rank(number: int, *entries: Entry) -> RankEvidence:
    """Make a rank that answers."""
    return RankEvidence(
        number, "gpu01", process="S", cpu=0.0, silent=9.0, groups=(GroupRecord("0", "", (), entries),)
    )


def entry(number: int, age: float, *, done: bool) -> Entry:
    """Make an entry of the flight recorder."""
    return Entry(number, None, "all_reduce", "[[1000]]", "Float", done, age)


@pytest.mark.parametrize(
    ("reported", "live", "age", "code"),
    [
        ("stall", True, 3.0, "CC-HANG-004"),
        ("stall", True, 0.5, "CC-HANG-009"),
        ("stall", False, 3.0, "CC-HANG-009"),  # a node that was lost then cannot report its end
        ("", True, 3.0, "CC-HANG-009"),
        ("stop", True, 3.0, "CC-HANG-009"),
    ],
)
def test_a_stall_that_the_nodes_report_is_no_progress(
    reported: str, live: bool, age: float, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job with `stall: {after: 2s}` is not denied what its page already shows; others get their five seconds."""
    first = rank(0, entry(6, age + 0.1, done=True), entry(7, age, done=False))
    ranks = [first, rank(1, entry(6, age + 0.1, done=True))]
    answers = Answers({"gpu01": NodeEvidence("gpu01", tuple(ranks), 0.1)}, {})
    monkeypatch.setattr(status, "diagnose_ranks", lambda *_: answers)
    part = SimpleNamespace(diagnosed=reported, live=live, world_size=2, attempt=1, ranks=())
    assert diagnose({"gpu01": part}, monkeypatch).judgement.code == code


def diagnose(parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> status.Diagnosis:
    """Ask nodes whose answers are prepared."""
    monkeypatch.setattr(status, "SECOND_LOOK", 0.0)
    monkeypatch.setattr(status, "refuse_without_nodes", lambda *_: None)
    monkeypatch.setattr(status, "read_gpus", lambda *_: {})
    nodes = [SimpleNamespace(name=name) for name in parts]
    found: Any = SimpleNamespace(runs={RUN: parts}, pythons={}, errors={}, holders=lambda _: nodes)
    cluster: Any = None
    return status.diagnose_run(cluster, found, RUN, "clusterctl", slow=False)


def at(number: int, node: str, line: int) -> RankEvidence:
    """Make a rank at a line of the job, in no collective."""
    frames = (Frame("train.py", line, "step"),)
    return replace(rank(number), node=node, stack=f"line {line}", frames=frames, groups=())


@pytest.mark.parametrize(("line", "code"), [(5, "CC-HANG-008"), (9, "CC-HANG-010")])
def test_a_node_that_answers_only_once_keeps_its_answer_and_is_not_accused(
    line: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes two looks is not said of its ranks; they are shown, and so is that the second answer is missing."""
    first = {"gpu01": (at(0, "gpu01", 9), at(1, "gpu01", 9)), "gpu02": (at(2, "gpu02", line),)}
    nodes = {name: NodeEvidence(name, ranks, 0.1) for name, ranks in first.items()}
    error = NodeError("CC-RUN-004", node="gpu02")
    looks = [Answers(nodes, {}), Answers({"gpu01": nodes["gpu01"]}, {"gpu02": error})]
    monkeypatch.setattr(status, "diagnose_ranks", lambda *_: looks.pop(0))
    part = SimpleNamespace(diagnosed="", live=True, world_size=3, attempt=1, ranks=())

    found = diagnose(dict.fromkeys(nodes, part), monkeypatch)

    assert (found.judgement.code, found.judgement.suspects) == (code, ())
    assert [one.rank for node in found.answers.nodes.values() for one in node.ranks] == [0, 1, 2]
    assert found.exit_code == 5 and list(found.answers.errors) == ["gpu02"]
    assert describe_asked(found.answers)[1:] == [
        "no answer to the second query, the first one is shown: gpu02"
    ]
