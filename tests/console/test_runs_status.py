"""The list of runs, and `status`: what is cut where there is no room, what is whole, and runs that start again."""

from __future__ import annotations

import re
import time
from io import StringIO
from typing import Any

import pytest
from ends import judge
from rich.console import Console

from clusterctl.console import terminal
from clusterctl.console.run import listing
from clusterctl.console.run.listing import describe_live_runs, runs_to_json, show_runs
from clusterctl.console.run.status import render_status, show_status, showing_lines, status_to_json
from clusterctl.console.run.verdict import render_cause, show_verdict
from clusterctl.plans.runs.rows import join_ranks
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import NodeState, parse_state, run_seconds
from clusterctl.plans.runs.verdict import conclude
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import render_duration

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


ME = Owner("ann@laptop")
GOOD, BAD = RunId("digits-20260101T000000-00aa"), RunId("oom-20260101T000000-00bb")


def part(run: str, node: str = "gpu01", rank: int = 0, state: str = "SUCCEEDED", **more: Any) -> NodeState:
    """Build a node's part of a run that ran for 30 s and ended 90 s ago."""
    now = time.time()
    times = {"submitted": now - 200, "began": now - 120, "since": now - 90}
    about = {"run": run, "job": run.partition("-")[0], "node": node, "node_rank": rank, "nnodes": 1}
    return parse_state(Untrusted({**about, **times, "state": state, "launched_by": ME.name, **more}))


def failed() -> NodeState:
    """Build a part whose only rank ran out of memory."""
    said = ["Traceback (most recent call last):", "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"]
    failure = {"rank": 0, "exit": 1, "time": 9.0, "last_at": 9.0, "tail": said}
    failure["tracebacks"] = [{"at": 9.0, "lines": said}]
    own = {"node": "gpu01", "node_rank": 0, "state": "FAILED", "time": 9.1, "failures": [failure]}
    return part(BAD, state="FAILED", gang={"hub": "gpu01", "whole": True, "parts": [own]})


def listed(capsys: pytest.CaptureFixture[str], *, me: Owner = ME) -> list[str]:
    """Print a run that failed and one that did not, without the padding."""
    show_runs({BAD: {"gpu01": failed()}, GOOD: {"gpu01": part(GOOD)}}, me)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_run_is_one_line_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order in which they come, with the short id, how long it ran, when it started, and why it failed."""
    assert listed(capsys) == [
        "ID JOB STATE NODES RAN STARTED BY CAUSE",
        "00bb oom ✗ FAILED 1/1 30.0 s 3m20s ago you r0 gpu01: CUDA out of memory (tried 2 GiB)",
        "00aa digits ✓ SUCCEEDED 1/1 30.0 s 3m20s ago you",
    ]


def test_verbose_shows_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ids and the nodes; another's run has a name."""
    monkeypatch.setitem(terminal._OPTIONS, "chatter", "verbose")
    last = listed(capsys, me=Owner("bob@x"))[-1]
    assert last == f"{GOOD} digits ✓ SUCCEEDED gpu01 30.0 s 3m20s ago ann@laptop"


def test_verbose_is_a_block_for_each_run_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of the list is broken; what is piped stays a table."""
    monkeypatch.setitem(terminal._OPTIONS, "chatter", "verbose")
    monkeypatch.setattr(listing, "stdout", lambda: Console(width=60, force_terminal=True, color_system=None))
    lines = listed(capsys)
    assert lines[:2] == [f"{BAD} ✗ FAILED", "JOB oom"]
    assert "CAUSE r0 gpu01: CUDA out of memory (tried 2 GiB)" in lines


def test_ids_that_end_alike_are_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown names one run."""
    twin = RunId("other-20260101T000000-00aa")
    show_runs({GOOD: {"gpu01": part(GOOD)}, twin: {"gpu01": part(twin)}}, ME)
    shown = capsys.readouterr().out
    assert GOOD in shown
    assert twin in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(42, "42 s"), (420, "7m"), (11_520, "3h12m"), (183_600, "2d03h"), (99.6, "1m40s"), (5970, "1h39m")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    """Two units at most."""
    assert render_duration(seconds) == text


def test_a_run_that_lives_goes_on_and_one_that_never_began_has_no_duration() -> None:
    """The clock starts with the workers."""
    assert run_seconds({"gpu01": part(GOOD, state="RUNNING", began=100.0)}, 220.0) == 120
    assert run_seconds({"gpu01": part(GOOD, state="FAILED_SETUP", began=None)}, 220.0) is None


def test_many_alike_nodes_share_a_row() -> None:
    """The failed one stands alone; few nodes have a row each."""
    from io import StringIO

    from rich.console import Console

    def shown(count: int) -> list[str]:
        states: dict[str, NodeState | None] = {
            f"gpu{number:02}": part(
                GOOD,
                f"gpu{number:02}",
                number,
                "FAILED" if number == 3 else "STOPPED",
                nnodes=count,
                ranks={
                    str(number): {"exit": 1 if number == 3 else None, "signal": None if number == 3 else 15}
                },
            )
            for number in range(count)
        }
        console = Console(width=120, file=StringIO(), record=True)
        console.print(render_status(GOOD, states))
        return [
            re.sub(r"\b\d+m\d+s\b", "AGE", " ".join(line.split()))
            for line in console.export_text().splitlines()
        ]

    assert shown(64)[3:] == [
        "0-2, 4-63 gpu[00-02,04-63] STOPPED AGE r0-2, 4-63 SIGTERM",
        "3 gpu03 FAILED AGE r3 exit 1",
    ]
    assert len(shown(8)) == 11
    assert join_ranks(["7", "spare", "0", "1", "spare"]) == "0-1, 7, spare"


def test_the_live_run_of_each_node_with_its_ranks() -> None:
    """The newest, where a node has several; none of those that have ended."""
    new, old = RunId("new-20260102T000000-0002"), RunId("old-20260101T000000-0001")
    ranks = {str(rank): {} for rank in range(4, 8)}
    runs = {
        new: {"gpu01": part(new, state="RUNNING", ranks=ranks), "gpu03": None},
        old: {"gpu01": part(old, state="RUNNING"), "gpu02": part(old, "gpu02", 1, "WAITING")},
        GOOD: {"gpu04": part(GOOD, "gpu04")},
    }
    assert describe_live_runs(runs) == {"gpu01": "0002 r4-7", "gpu02": "0001"}


def test_a_run_without_a_recorded_end_has_no_duration() -> None:
    """Of a part whose agent is gone `since` is when it began to run; clocks of nodes are put right."""
    lost = part(GOOD, state="LOST", began=1000.0, since=1000.5)
    ended = part(GOOD, "gpu02", 1, state="FAILED", began=1000.0, since=1060.0)

    assert run_seconds({"gpu01": lost}, 9000.0) is None
    assert run_seconds({"gpu01": lost, "gpu02": ended}, 9000.0) == 60.0
    assert run_seconds({"gpu02": ended, "gpu01": None}, 9000.0, {"gpu02": 3600.0}) == 60.0
    longer = part(GOOD, "gpu03", 2, state="FAILED", began=1000.0, since=1090.0)
    assert run_seconds({"gpu02": ended, "gpu03": longer}, 9000.0) == 90.0


def test_a_live_run_has_run_since_its_first_node_began() -> None:
    """Of our clock: that of one node is an hour ahead, and it was the first to begin."""
    parts = {
        "gpu01": part(GOOD, state="RUNNING", began=3700.0),
        "gpu02": part(GOOD, "gpu02", 1, state="RUNNING", began=130.0),
    }
    assert run_seconds(parts, 220.0, {"gpu01": 3600.0}) == 120.0


FIRST = {"attempt": 1, "reason": "node_lost", "text": "gpu02 is lost", "node": "gpu02"}
REPLACED = [
    {"slot": 0, "node": "gpu01", "node_rank": 0},
    {"slot": 1, "node": "gpu02", "node_rank": None, "lost": True, "reason": "it was silent for 20 s"},
    {"slot": 2, "node": "gpu03", "node_rank": 1},
    {"slot": 3, "node": "gpu04", "node_rank": None},
]


def restarted_part(node: str, rank: int, state: str, **more: Any) -> NodeState:
    """Build a node's part of a run in its second attempt, on two nodes, with two spares."""
    known = {"run": "r-1", "job": "digits", "nnodes": 2, "slots": 4, "submitted": time.time(), "attempt": 2}
    about = {
        "node": node,
        "node_rank": rank,
        "state": state,
        "since": time.time(),
        "launched_by": "ann@laptop",
    }
    return parse_state(Untrusted({**known, **about, "roster": REPLACED, "attempts": [FIRST], **more}))


def restarted_parts(state: str, **more: Any) -> dict[str, NodeState | None]:
    """Build the whole run; the lost node is silent."""
    shown = {name: restarted_part(name, rank, state, **more) for name, rank in (("gpu01", 0), ("gpu03", 1))}
    spare = restarted_part("gpu04", 3, "WAITING" if state == "RUNNING" else "SUCCEEDED", reason="spare")
    return {"gpu01": shown["gpu01"], "gpu02": None, "gpu03": shown["gpu03"], "gpu04": spare}


def drawn(run: dict[str, NodeState | None]) -> list[str]:
    """Draw `status`, as words line by line."""
    console = Console(width=160, record=True, file=StringIO())
    console.print(render_status("r-1", run))
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_status_shows_who_takes_part_now() -> None:
    """Ranks are those of this attempt; the spare and the lost node have none, and the run is not unknown for it."""
    lines = drawn(restarted_parts("RUNNING"))

    assert lines[0] == "r-1 ● RUNNING"
    assert "attempt 2" in lines[2]
    assert lines[3] == "attempt 1: gpu02 is lost (node_lost)"
    assert lines[5:] == [
        "0 gpu01 RUNNING 0 s",
        "1 gpu03 RUNNING 0 s",
        "- gpu02 LOST it was silent for 20 s",
        "spare gpu04 WAITING 0 s spare",
    ]
    shown = status_to_json("r-1", restarted_parts("RUNNING"))
    assert [(node["node"], node["node_rank"]) for node in shown["nodes"]] == [
        ("gpu01", 0),
        ("gpu02", None),
        ("gpu03", 1),
        ("gpu04", None),
    ]
    assert (shown["run"]["attempt"], shown["run"]["spares"]) == (2, ["gpu04"])
    assert shown["run"]["attempts"][0]["text"] == "gpu02 is lost"


def test_ps_names_spares_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts them, reports which attempt it is, and names all nodes with -v."""
    show_runs({"r-1": restarted_parts("RUNNING")}, ME)
    assert "RUNNING, attempt 2  2/2 +1 spare" in capsys.readouterr().out

    monkeypatch.setitem(terminal._OPTIONS, "chatter", "verbose")
    show_runs({"r-1": restarted_parts("RUNNING")}, ME)
    assert "RUNNING, attempt 2  gpu[01,03]; spare: gpu04; lost: gpu02" in capsys.readouterr().out
    assert runs_to_json({"r-1": restarted_parts("RUNNING")}, ME)["runs"][0]["attempt"] == 2


def test_the_verdict_counts_the_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    """Success after a loss; and where it was given up, the reason."""
    show_verdict(judge("r-1", restarted_parts("SUCCEEDED"), []), 61.2)
    show_verdict(judge("r-1", restarted_parts("FAILED", gave_up="no_progress"), []), 61.2)

    _, good, bad = capsys.readouterr().err.split(" after 1m01s, 2 attempts   r-1\n")
    assert good.splitlines()[-2:] == ["attempt 1: gpu02 is lost (node_lost)", "✗ FAILED"]
    assert "given up: three attempts in a row made no progress" in bad


def test_a_silent_node_has_the_rank_that_is_missing() -> None:
    """Two of them too: ranks follow the inventory. Where more are silent than are missing, no one knows."""
    three = {"nnodes": 3, "slots": 0, "roster": [], "attempts": [], "attempt": 1}
    one = restarted_part("b", 1, "RUNNING", **three)

    assert drawn({"a": None, "b": one, "c": None})[3:] == [
        "0 a UNKNOWN no answer",
        "1 b RUNNING 0 s",
        "2 c UNKNOWN no answer",
    ]
    assert drawn({"a": None, "b": one, "c": None, "d": None})[4].startswith("? a")


def test_status_shows_the_checkpoints_that_the_nodes_keep(capsys: pytest.CaptureFixture[str]) -> None:
    """How far the newest is and from which one the attempt resumed, in the text and in the document."""
    checkpoint = {"name": "step-300\x1b[2J", "attempt": 2, "state": "safe", "nodes": 4, "of": 4, "copies": 2}
    state = {"run": RUN, "job": "digits", "state": "RUNNING", "attempt": 2, "resumed": "step-200"}
    node = parse_state(Untrusted({**state, "checkpoints": [{**checkpoint, "time": time.time() - 40}]}))
    show_status(RUN, {"gpu01": node})
    lines = capsys.readouterr().out.splitlines()

    assert any(re.match(r"checkpoint step-300\S*: 4/4 nodes, 2 copies, 4\d s ago", line) for line in lines)
    assert "attempt 2 resumed from step-200" in lines
    assert not any("\x1b[2J" in line for line in lines)
    run = status_to_json(RUN, {"gpu01": node})["run"]
    assert run["resumed"] == "step-200" and run["checkpoints"][0]["copies"] == 2
