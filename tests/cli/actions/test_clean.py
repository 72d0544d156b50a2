"""Who may agree to what `clean` removes: a person who has seen it, or -y."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions.clean import Clean, CleanOptions, clean_orphans, clean_staged
from clusterctl.client.cleanup import EndedOrphans, RemovalReport
from clusterctl.client.rpc.cluster import Outcome
from clusterctl.errors import NodeError, UsageError
from clusterctl.plans.cleanup import CleanupPlan, Orphans, RetentionPolicy, parse_stored_run
from clusterctl.plans.sync.staged import parse_staged
from clusterctl.protocol.messages.facts import Orphan
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory

(NODE,) = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-").nodes


@pytest.mark.parametrize(
    ("as_json", "yes", "at_terminal", "agreed"),
    [
        (False, False, True, True),
        (True, False, True, False),  # nothing was shown to whoever sits there
        (False, False, False, False),
        (True, True, False, True),
    ],
)
def test_no_one_agrees_to_what_was_not_shown(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, yes: bool, at_terminal: bool, agreed: bool
) -> None:
    """A person at a terminal answers yes to every question; with --json there is none."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: at_terminal, raising=False)
    monkeypatch.setattr("clusterctl.cli.actions.clean.is_confirmed", lambda *_, **__: True)
    wishes = CleanOptions(RetentionPolicy(), everyone=False, dry_run=False, yes=yes, as_json=as_json)
    if agreed:
        Clean((), wishes)._confirm()
        return
    with pytest.raises(UsageError) as caught:
        Clean((), wishes)._confirm()
    assert ("--dry-run" in caught.value.fix) == as_json


OUTSIDE = {"files": 2, "bytes": 9, "names": ["0.ckpt"], "more": False}


@pytest.mark.parametrize(
    ("yes", "at_terminal", "answer", "kept"),
    [
        (False, True, False, True),
        (False, True, True, False),
        (True, False, False, False),  # -y agrees to all that was shown
        (False, False, False, False),  # no one is asked here: nothing at all is removed then
    ],
)
def test_files_outside_the_output_directory_are_asked_about(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    yes: bool,
    at_terminal: bool,
    answer: bool,
    kept: bool,
) -> None:
    """A person may keep just the runs that have some, on all of their nodes."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: at_terminal, raising=False)
    monkeypatch.setattr("clusterctl.cli.actions.clean.is_confirmed", lambda *_, **__: answer)
    parts = [
        parse_stored_run(
            node,
            Untrusted({"run": f"{run}-20260101T000000-0001", "node_dir": f"0-{node}", "outside": outside}),
        )
        for run, node, outside in (("a", "gpu01", OUTSIDE), ("a", "gpu02", None), ("b", "gpu01", None))
    ]
    choice = CleanupPlan(tuple((part, "old") for part in parts if part), ())
    wishes = CleanOptions(RetentionPolicy(), everyone=False, dry_run=False, yes=yes, as_json=False)
    left = Clean((), wishes)._keep_stranded(choice)
    assert {part.run_id[0] for part, _ in left.removals} == ({"b"} if kept else {"a", "b"})
    asked = capsys.readouterr().err
    assert ("2 files outside ${output_dir}: 0.ckpt, ... (9 bytes) on gpu01" in asked) == (
        at_terminal and not yes
    )
    assert ("cannot know whether they were downloaded" in asked) == (at_terminal and not yes)


LOST = NodeError("CC-RUN-018", node="gpu01", account="bob")


@pytest.mark.parametrize(
    ("ended", "code", "left"),
    [
        (Outcome(NODE, EndedOrphans(("pid 7",), ()), None, 0.0), 0, []),
        (Outcome(NODE, EndedOrphans((), ("pid 7",)), None, 0.0), 5, ["pid 7"]),
        (Outcome(NODE, None, LOST, 0.0), 5, None),  # it answered, but not when it was to end them
    ],
)
def test_processes_that_were_not_ended_are_no_success(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: Outcome[EndedOrphans],
    code: int,
    left: list[str] | None,
) -> None:
    """A script that reads only the exit code knows that something is still there."""
    found = Orphans(
        (
            Orphan(
                run="a-20260101T000000-0001",
                pid=7,
                starttime=8,
                age=9.0,
                command="python train.py",
                known=True,
            ),
        ),
        {},
    )
    answers: Iterator[list[Outcome[Any]]] = iter([[Outcome(NODE, found, None, 0.0)], [ended]])
    cluster = SimpleNamespace(each=lambda *_, **__: next(answers))
    monkeypatch.setattr("clusterctl.cli.actions.clean.open_cluster", lambda: nullcontext(cluster))
    options = CleanOptions(RetentionPolicy(), everyone=True, dry_run=False, yes=True, as_json=True)

    assert clean_orphans([NODE], options) == code
    said = capsys.readouterr()
    assert json.loads(said.out)["orphans"][0]["left"] == left
    assert ("CC-RUN-018" in said.err) == (ended.error is not None)


STAGED = parse_staged(
    Untrusted(
        {
            "staged": [
                {
                    "source": "./corpus",
                    "path": "/data/corpus",
                    "bytes": 3 << 30,
                    "by": "ann@pc",
                    "state": "whole",
                }
            ]
        }
    )
)


@pytest.mark.parametrize(
    ("dry_run", "report", "code"),
    [
        (True, None, 0),
        (False, RemovalReport(0, 3 << 30, 7, ()), 0),
        (False, RemovalReport(0, 0, 0, ("/data/corpus: in use",)), 5),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_staged_content(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dry_run: bool,
    report: RemovalReport | None,
    code: int,
    as_json: bool,
) -> None:
    """Its size on each node is shown; what could not be removed is no success."""
    answers: Iterator[Any] = iter([[Outcome(NODE, STAGED, None, 0.0)], [Outcome(NODE, report, None, 0.0)]])
    cluster = SimpleNamespace(each=lambda *_, **__: next(answers))
    monkeypatch.setattr("clusterctl.cli.actions.clean.open_cluster", lambda: nullcontext(cluster))
    options = CleanOptions(RetentionPolicy(), everyone=False, dry_run=dry_run, yes=True, as_json=as_json)

    assert clean_staged([NODE], options) == code
    shown = capsys.readouterr()
    if as_json:
        document = json.loads(shown.out)
        assert [(one["node"], one["path"]) for one in document["staged"]] == [("gpu01", "/data/corpus")]
        assert (document["nodes"][0]["removed"] is None) == dry_run
        return
    assert "gpu01: /data/corpus  3.2 GB, from ./corpus" in shown.out
    assert "gpu01: 3.2 GB staged in all" in shown.out
    assert ("gpu01: removed" in shown.out) == (not dry_run)
    assert " run" not in shown.out
    assert ("NOT removed: /data/corpus: in use" in shown.err) == (code == 5)


def test_staged_content_is_not_removed_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal -y is needed."""
    cluster = SimpleNamespace(each=lambda *_, **__: [Outcome(NODE, STAGED, None, 0.0)])
    monkeypatch.setattr("clusterctl.cli.actions.clean.open_cluster", lambda: nullcontext(cluster))
    options = CleanOptions(RetentionPolicy(), everyone=False, dry_run=False, yes=False, as_json=False)
    with pytest.raises(UsageError):
        clean_staged([NODE], options)
