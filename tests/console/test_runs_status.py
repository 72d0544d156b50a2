"""`status` prints what a rank wrote, and what is to be copied, as `launch` does: no line break of its own in it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.console.run.status import show_status, showing_lines
from clusterctl.console.run.verdict import render_cause, show_verdict
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import conclude
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.untrusted import Untrusted

RUN = RunId("digits-20261121T101500-ab12")
COMMAND = "clusterctl -i /home/ann/clusters/an-inventory-with-a-long-name.yaml"
LINE = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB 'of which a long explanation follows here'"


def parts() -> dict[str, NodeState | None]:
    """Give a run of one rank that failed, with its record."""
    said = ["Traceback (most recent call last):", LINE]
    failure = {"rank": 0, "exit": 1, "signal": None, "time": 9.0, "last_at": 9.0, "tail": said}
    failure["tracebacks"] = [{"at": 9.0, "lines": said}]
    own: dict[str, Any] = {
        "node": "gpu01",
        "node_rank": 0,
        "state": "FAILED",
        "reason": "rank 0",
        "time": 9.1,
    }
    gang = {"hub": "gpu01", "whole": True, "parts": [{**own, "stopped_at": None, "failures": [failure]}]}
    state = {**own, "run": RUN, "job": "digits", "nnodes": 1, "gang": gang, "world_size": 1}
    state["outside"] = {"files": 1, "bytes": 9, "names": ["a-file-of-some-length-in-a-folder/model.pt"]}
    return {"gpu01": parse_state(Untrusted(state))}


def test_status_breaks_no_line_of_a_rank_and_no_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns the same lines as those of `launch`, each traceback line behind its mark, before the nodes."""
    monkeypatch.setenv("COLUMNS", "80")
    show_status(RUN, parts(), command=COMMAND)
    status = capsys.readouterr().out.splitlines()
    verdict = conclude(RUN, parts())
    assert verdict is not None and verdict.cause is not None
    show_verdict(verdict, 1.0, COMMAND)
    launch = capsys.readouterr().err.splitlines()

    assert f"    next  {COMMAND} logs {short_id(RUN)} --rank 0" in status
    start = status.index(next(line for line in status if "rank 0 on gpu01" in line))
    assert status[start].removeprefix("✗ ") == launch[0].removeprefix("✗ FAILED after 1.0 s   ")
    end = status.index("", start)
    notes = len(status) - next(index for index, line in enumerate(status) if line.startswith("note: "))
    assert start == 1 and status[end + 1].startswith("job ")
    assert [*status[start + 1 : end], *status[-notes:]] == launch[1:]


def test_an_explanation_is_wrapped_once_to_the_terminal() -> None:
    """Its lines are as long as the terminal lets them be, and no longer than is good to read."""
    verdict = conclude(RUN, parts())
    assert verdict is not None and verdict.cause is not None
    for width, most in ((80, 80), (60, 60), (300, 110)):
        lines = render_cause(verdict.cause, RUN, "clusterctl", width)
        text = [line for line in lines if not line.strip().startswith(("try", "more", "all"))]
        assert most - 20 < max(map(len, text)) <= most


def test_the_last_line_of_a_watched_run_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The first record of the end gives the run's state; of a node that changes after that there is a line too."""
    live = parse_state(Untrusted({"run": RUN, "node": "gpu02", "nnodes": 2, "state": "RUNNING"}))
    ended = parse_state(Untrusted({"run": RUN, "node": "gpu02", "nnodes": 2, "state": "STOPPED"}))
    with showing_lines(RUN) as show:
        for state in (live, ended):
            show({**parts(), "gpu02": state})
    lines = [line.split()[1:3] for line in capsys.readouterr().out.splitlines()]

    end = [RUN, "FAILED"]
    assert lines == [["gpu01", "FAILED"], ["gpu02", "RUNNING"], end, ["gpu02", "STOPPED"], end]
    with showing_lines(RUN) as show:
        show(parts())
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["gpu01", RUN]
