"""What `diagnose` makes of the answers of a run's nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions.monitor import status
from clusterctl.plans.diagnose.evidence import Entry, GroupRecord, RankEvidence
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
    answers = SimpleNamespace(nodes={"gpu01": SimpleNamespace(ranks=ranks, watchers=())}, errors={})
    monkeypatch.setattr(status, "diagnose_ranks", lambda *_: answers)
    monkeypatch.setattr(status, "refuse_without_nodes", lambda *_: None)
    monkeypatch.setattr(status, "read_gpus", lambda *_: {})
    part = SimpleNamespace(diagnosed=reported, live=live, world_size=2, ranks=())
    found: Any = SimpleNamespace(runs={RUN: {"gpu01": part}}, pythons={}, errors={}, holders=lambda _: [])
    cluster: Any = None
    judged = status.diagnose_run(cluster, found, RUN, "clusterctl", slow=False).judgement
    assert judged.code == code
