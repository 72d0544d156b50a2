"""The verbs that read: follow and ps, of live runs and of what dead ones left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from recorded import EVENTS, FIRST, Frames, Recorded, follow_request, text_of
from session import Session
from waiting import HANG, wait_until

Make = Callable[..., NodeRun]


def test_everything_of_a_dead_run(tmp_path: Path) -> None:
    """State, events and all files, the last line without an end included."""
    run = Recorded(tmp_path, state="FAILED").log(0, b"a\nb", b"oops\n").log(1, b"c\n")
    (run.path / "attempt-1" / "torchrun.log").write_bytes(b"W: note\n")
    frames = run.follow({}, events=0)

    assert frames[0][0]["state"]["state"] == "FAILED"
    assert frames[1] == ({"events": len(EVENTS)}, EVENTS)
    assert [text_of(frames), text_of(frames, 0, "stderr"), text_of(frames, 1)] == [b"a\nb", b"oops\n", b"c\n"]
    assert text_of(frames, None, "stderr") == b"W: note\n"
    assert frames[-1] == ({"end": True}, b"")


@pytest.mark.parametrize(
    ("state", "ranks", "choice", "sent"),
    [
        ("SUCCEEDED", 2, {}, False),
        ("STOPPED", 2, {}, False),
        ("STOPPED", 2, {"torchrun": True}, True),
        ("STOPPED", 0, {}, True),
        ("FAILED", 2, {}, True),
        ("FAILED_SETUP", 0, {}, True),
        ("LOST", 2, {}, True),
    ],
)
def test_what_torchrun_says_comes_last_or_not_at_all(
    tmp_path: Path, state: str, ranks: int, choice: dict[str, Any], sent: bool
) -> None:
    """After a success or a stop it is noise; else it follows all that the ranks said, however much that is."""
    run = Recorded(tmp_path, state=state)
    for rank in range(ranks):
        run.log(rank, b"x" * 1000 * (1 + 1999 * rank), b"e\n")
    (run.path / "attempt-1" / "torchrun.log").parent.mkdir(exist_ok=True)
    (run.path / "attempt-1" / "torchrun.log").write_bytes(b"Traceback\n" * 30)
    files = [header["rank"] for header, _ in run.follow(choice) if "log" in header]
    assert (None in files, files[-1:] == [None]) == (sent, sent)


@pytest.mark.parametrize(("status", "received"), [(3, True), (0, False)])
def test_torchrun_is_silent_while_ranks_run(node: Make, tmp_path: Path, status: int, received: bool) -> None:
    """Its lines arrive after the end of a run that failed, before the last frame."""
    script = (
        "import os, sys, time\nprint('here', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\nsys.exit({status})\n"
    )
    run = node(script).use_stub().go().running()
    with (run.rundir / "attempt-1" / "torchrun.log").open("a") as log:
        log.write("torchrun warns\n")
    request = follow_request(run.workdir, {}, run=run.spec["run"], follow=True, events=0)
    early: Frames = []
    with Session("follow", request) as session:
        while not early or "beat" not in early[-1][0]:
            frame = session.receive()
            assert frame is not None
            early.append(frame)
        (tmp_path / "go").touch()
        rest = session.frames()

    assert text_of(early) == b"here\n"
    assert text_of(early, None, "stderr") == b""
    assert (text_of(rest, None, "stderr") == b"torchrun warns\n") == received


def test_ranks_and_streams_are_chosen(tmp_path: Path) -> None:
    """Nothing else is sent."""
    run = Recorded(tmp_path).log(0, b"a\n", b"x\n").log(1, b"b\n", b"y\n")
    (run.path / "attempt-1" / "torchrun.log").write_bytes(b"W\n")
    frames = run.follow({"ranks": [1], "streams": ["stderr"]})

    assert [body for header, body in frames if "log" in header] == [b"y\n"]
    assert not [header for header, _ in frames if "events" in header]


def test_a_log_that_ranks_share_is_of_no_rank(tmp_path: Path) -> None:
    """It is sent once; who asks for one of the ranks is given it as that rank's."""
    run, shared = Recorded(tmp_path).log(0).log(1), "attempt-1/0/stdout.log"
    (run.path / "attempt-1" / "0").mkdir()
    (run.path / shared).write_bytes(b"both\n")
    for entry in run.state["ranks"].values():
        entry["stdout"] = shared
    (run.path / "state.json").write_text(json.dumps(run.state))

    assert [text_of(run.follow({}), rank) for rank in (None, 0, 1)] == [b"both\n", b"", b""]
    assert text_of(run.follow({"ranks": [1]}), 1) == b"both\n"


def test_resuming_at_an_offset(tmp_path: Path) -> None:
    """What was read before is not sent again, of logs and of events."""
    run = Recorded(tmp_path).log(0, b"one\ntwo\n")
    file = run.state["ranks"]["0"]["stdout"]
    frames = run.follow({"offsets": {file: 4}}, events=len(FIRST))

    assert [(header["offset"], body) for header, body in frames if "log" in header] == [(4, b"two\n")]
    assert ({"events": len(EVENTS)}, EVENTS[len(FIRST) :]) in frames


def test_tail_and_grep_happen_on_the_node(tmp_path: Path) -> None:
    """The last lines; all hits with their offsets; the last hits."""
    run = Recorded(tmp_path).log(0, "".join(f"step {n} grün\n" for n in range(1000)).encode())

    assert text_of(run.follow({"tail": 2})) == "step 998 grün\nstep 999 grün\n".encode()
    assert text_of(run.follow({"grep": r"99\d grün$"})).count(b"\n") == 10
    hits = run.follow({"grep": r"^step \d+00 ", "tail": 2})
    assert text_of(hits) == "step 800 grün\nstep 900 grün\n".encode()
    offsets = [place for header, _ in hits if "log" in header for place in header["places"]]
    content = (run.path / run.state["ranks"]["0"]["stdout"]).read_bytes()
    assert [content[offset:].split(b" ")[1] for offset in offsets] == [b"800", b"900"]
    assert run.follow({"grep": "("})[0][0]["error"]["code"] == "CC-USE-026"


def test_where_a_tail_begins_is_said_so_that_it_is_measured_once(tmp_path: Path) -> None:
    """Also of files of which nothing is sent; lines from before we came bear the time of the file's last write."""
    run = Recorded(tmp_path).log(0, b"one\ntwo\n").log(1, b"")
    file = run.state["ranks"]["0"]["stdout"]
    os.utime(run.path / file, (5, 7))
    headers = [header for header, _ in run.follow({"tail": 1, "streams": ["stdout"], "ranks": [0, 1]})]
    (whole,) = [header for header, _ in run.follow({"streams": ["stdout"], "ranks": [0]}) if "log" in header]

    positions = next(header["positions"] for header in headers if "positions" in header)
    assert sorted(positions.values()) == [0, 4]
    (log,) = [header for header in headers if "log" in header]
    assert (log["offset"], log["before"], log["written"]) == (4, 8, 7.0)
    assert (whole["offset"], whole["written"], "before" in whole) == (0, 7.0, False)


@pytest.mark.parametrize(
    ("name", "code"), [("job-2", "CC-RUN-011"), ("job", "CC-RUN-011"), ("../x", "CC-RUN-010")]
)
def test_a_run_that_is_not_there(tmp_path: Path, name: str, code: str) -> None:
    """It is said; a prefix is no name, and a path neither."""
    (error, _), _ = Recorded(tmp_path).follow({}, run=name)
    assert error["error"]["code"] == code


def test_following_a_live_run(node: Make) -> None:
    """Every line comes once and whole, soon after it was written, until the verdict."""
    script = (
        "import sys, time\n"
        "for n in range(2000):\n"
        "    sys.stdout.write(f'line {n} '); sys.stdout.flush(); sys.stdout.write('x' * (n % 90) + '\\n')\n"
        "    if n % 100 == 0: sys.stdout.flush(); time.sleep(0.01)\n"
        "sys.stderr.write('no newline at the end')\n"
    )
    run = node(script).use_stub().go()
    request = follow_request(run.workdir, {}, run=run.spec["run"], follow=True, events=0)
    with Session("follow", request) as session:
        frames = session.frames()
    bodies = [body for header, body in frames if header.get("stream") == "stdout"]
    states = [header["state"]["state"] for header, _ in frames if "state" in header]

    assert b"".join(bodies).decode() == "".join(f"line {n} {'x' * (n % 90)}\n" for n in range(2000))
    assert all(body.endswith(b"\n") for body in bodies)
    assert text_of(frames, 0, "stderr") == b"no newline at the end"
    assert states[-1] == "SUCCEEDED"
    events = b"".join(body for header, body in frames if "events" in header)
    assert json.loads(events.splitlines()[-1])["event"] == "ended"


def test_a_line_reaches_the_client_while_its_rank_lives(node: Make) -> None:
    """With the time when it was written; beats while nothing is said."""
    script = (
        "import os, time\nwhile not os.path.exists('now'): time.sleep(0.01)\n"
        "print(time.time(), flush=True)\ntime.sleep(600)"
    )
    run = node(script).use_stub().go()
    with Session("follow", follow_request(run.workdir, {}, run=run.spec["run"], follow=True)) as session:
        received = []
        while not received or "log" not in received[-1][0]:
            frame = session.receive()
            assert frame is not None
            received.append(frame)
            if "beat" in frame[0]:
                (run.code / "now").touch()

    assert float(received[-1][1]) - 0.1 < received[-1][0]["written"] < time.time()
    assert run.state()["state"] == "RUNNING"


def test_following_ends_with_the_client(node: Make) -> None:
    """A client that hangs up leaves no follower behind, and the run is untouched."""
    run = node("import time; time.sleep(600)").use_stub().go()
    session = Session("follow", follow_request(run.workdir, {}, run=run.spec["run"], follow=True))
    session.receive()
    session.hang_up()

    assert session.process.wait(HANG) == 0
    assert run.state()["state"] == "RUNNING"
    session.close()


def test_following_notices_that_everybody_is_gone(node: Make) -> None:
    """Guardian and agent killed together: LOST, and the follower ends."""
    run = node("import time; time.sleep(600)").use_stub().go().running()
    with Session("follow", follow_request(run.workdir, None, run=run.spec["run"], follow=True)) as session:
        session.receive()
        for name in ("guardian", "agent"):
            os.kill(run.pid(name), 19)
        for name in ("guardian", "agent"):
            os.kill(run.pid(name), 9)
        frames = session.frames()

    assert [header["state"]["state"] for header, _ in frames if "state" in header] == ["LOST"]
    wait_until(lambda: not run.is_alive(), "torchrun passed the kernel's SIGTERM on")


def list_runs(workdir: Path, **request: Any) -> list[dict[str, Any]]:
    """Ask for runs."""
    with Session(
        "ps", {"workdir": str(workdir), "node": "gpu01", "run": None, "limit": None, **request}
    ) as session:
        (answer, _), _ = session.frames()
    runs: list[dict[str, Any]] = answer["runs"]
    return runs


def test_a_list_holds_the_records_of_runs_that_ended_badly(tmp_path: Path) -> None:
    """As many as have room, the newest first: without them a lost node's run would be called cancelled."""
    for number, (state, size) in enumerate(
        [("STOPPED", 10), ("STOPPED", 300_000), ("SUCCEEDED", 10), ("FAILED", 10)]
    ):
        run = Recorded(tmp_path, f"job-{number}", submitted=float(number), state=state)
        record = {"run": f"job-{number}", "hub": None, "whole": True, "stop": None, "parts": []}
        (run.path / "gang.json").write_text(json.dumps({**record, "reason": "x" * size}))

    assert [(state["run"], "gang" in state) for state in list_runs(tmp_path)] == [
        ("job-3", True),
        ("job-2", False),
        ("job-1", False),
        ("job-0", False),
    ]
    assert "gang" in list_runs(tmp_path, run="job-1")[0]


def test_a_lost_run_names_the_processes_that_it_has_left(tmp_path: Path) -> None:
    """By their tag; where none is there, nothing is said to be left."""
    Recorded(tmp_path, state="RUNNING")
    assert list_runs(tmp_path, run="job-1")[0]["left"] == []
    environment = {**os.environ, "CLUSTERCTL_RUN": "job-1/gpu01/1"}
    with subprocess.Popen(["sleep", "600"], env=environment) as left:
        # A process in the middle of exec has no environment yet, although Popen has already returned.
        wait_until(lambda: Path(f"/proc/{left.pid}/environ").read_bytes(), "exec")
        (found,) = list_runs(tmp_path, run="job-1")
        left.kill()

    assert (found["state"], [entry["pid"] for entry in found["left"]]) == ("LOST", [left.pid])


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    """By prefix, limited, of this node only."""
    for number in range(3):
        Recorded(tmp_path, f"job-{number}", submitted=float(number))
    Recorded(tmp_path, "other-9", submitted=0.5)
    (tmp_path / "runs" / "job-1" / "1-gpu02").mkdir()
    (tmp_path / "runs" / "synced-only" / "0-gpu01" / "code").mkdir(parents=True)

    assert [state["run"] for state in list_runs(tmp_path)] == ["job-2", "job-1", "other-9", "job-0"]
    assert [state["run"] for state in list_runs(tmp_path, run="job", limit=2)] == ["job-2", "job-1"]
    assert list_runs(tmp_path, node="gpu02") == []
    assert list_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"state": "RUNNING"}, "LOST"),
        ({"state": "RUNNING", "boot_id": "another"}, "UNKNOWN"),
        ({"state": "FAILED", "boot_id": "another"}, "FAILED"),
        ({"state": "SUBMITTED", "agent": None, "since": 2.0}, "LOST"),
        ({"state": "SUBMITTED", "agent": None, "since": 9e10}, "SUBMITTED"),
        ({"state": "RUNNING", "agent": {"pid": 1, "starttime": 1}}, "LOST"),
    ],
)
def test_runs_that_nobody_watches(tmp_path: Path, changes: dict[str, Any], state: str) -> None:
    """What the state file says counts only while its keeper lives, on the same boot."""
    Recorded(tmp_path, **changes)
    assert [found["state"] for found in list_runs(tmp_path)] == [state]


def test_a_part_that_ran_on_another_machine_is_named_as_that(tmp_path: Path) -> None:
    """A shared home under a name that another machine bore: not a restart, and nothing to signal here."""
    elsewhere = Recorded(tmp_path, state="RUNNING", boot_id="another", machine="gpu99")
    (state,) = list_runs(tmp_path)

    assert state["reason"].startswith("it ran on machine gpu99, this is ")
    assert elsewhere.state["state"] == "RUNNING"


def test_stop_signals_nothing_that_another_machine_recorded(tmp_path: Path) -> None:
    """Pid and start time fit a process here, but the boot is another one: a shared home shows other nodes' pids."""
    with subprocess.Popen(["sleep", "3600"]) as bystander:
        started = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
        guardian = {"pid": bystander.pid, "starttime": started}
        run = Recorded(tmp_path, state="RUNNING", boot_id="another", guardian=guardian, agent=guardian)
        request = {"run": "job-1", "node": "gpu01", "workdir": str(run.workdir), "grace": 0, "reason": "x"}
        with Session("stop", request) as session:
            stopped = session.frames()[-2][0]["stopped"]
        (run.path / "state.json").write_text(json.dumps({**run.state, "machine": "gpu99"}))
        with Session("stop", request) as session:
            refused = session.frames()[-2][0]["error"]
        lives = bystander.poll() is None
        bystander.kill()

    assert lives
    assert (stopped["ended"], stopped["left"], stopped["state"]["state"]) == ([], [], "UNKNOWN")
    assert (refused["code"], refused["message"].startswith("nothing was stopped: it ran on")) == (
        "CC-RUN-015",
        True,
    )
    assert not (run.path / "stop.json").exists()


def test_a_torn_state_file_is_not_the_end(tmp_path: Path) -> None:
    """The spec still tells what the run was."""
    run = Recorded(tmp_path)
    (run.path / "state.json").write_bytes(b"")
    os.utime(run.path / "spec.json", (0, 0))
    (found,) = list_runs(tmp_path)
    assert (found["run"], found["state"]) == ("job-1", "LOST")
