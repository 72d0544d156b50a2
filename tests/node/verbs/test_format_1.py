"""Runs that format 1 of spec.json and state.json has recorded (format_1) are listed, stopped and removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from session import Session
from waiting import HANG, wait_until

from clusterctl.node.runtime.processes import boot_id
from clusterctl.plans.runs.state import parse_roster, parse_state
from clusterctl.protocol.states import PROTOCOL
from clusterctl.protocol.untrusted import Untrusted

RECORDED = Path(__file__).with_name("format_1")  # of a run with a spare that was started again once
RUNNING, ENDED = "job-20261120T110000-00000001", "job-20261120T110000-00000002"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Make a work directory of this machine that holds both runs."""
    workdir = tmp_path / "work"
    workdir.mkdir(mode=0o700)
    (workdir / "id").write_text("0123456789abcdef")
    shutil.copytree(RECORDED, workdir / "runs")
    for state in workdir.glob("runs/*/*/state.json"):
        text = state.read_text().replace("BOOT_ID", boot_id()).replace("MACHINE", os.uname().nodename)
        state.write_text(text)
    return workdir


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of the run that is recorded as running; its agent and guardian are not running."""
    with subprocess.Popen(
        ["sleep", "3600"], env={**os.environ, "CLUSTERCTL_RUN": f"{RUNNING}/gpu02/2"}
    ) as process:
        # A process in the middle of exec has no environment yet, although Popen has already returned.
        wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes(), "exec")
        yield process
        process.kill()


def ask(verb: str, workdir: Path, node: str, **request: Any) -> list[dict[str, Any]]:
    """Run a verb; gives its answers."""
    with Session(verb, {"workdir": str(workdir), "node": node, **request}) as session:
        return [header for header, _ in session.frames()]


def list_run(workdir: Path, run: str, node: str) -> dict[str, Any]:
    """List one run, as `ps` and `status` do."""
    (state,) = ask("ps", workdir, node, run=run, limit=9, activity=True)[0]["runs"]
    return dict(state)


def test_a_run_that_has_ended_is_listed(workdir: Path) -> None:
    """State and record have slots and roster under their new names, also for the client that parses them."""
    for slot, node in ((0, "gpu01"), (2, "gpu03")):
        raw = list_run(workdir, ENDED, node)
        assert (raw["state"], raw["slot"], raw["slots"]) == ("SUCCEEDED", slot, 3)
        assert not {"seat", "seats", "parted"} & {*raw, *raw["roster"][0], *raw["gang"]["roster"][0]}
        state = parse_state(Untrusted(raw))
        roster = parse_roster(Untrusted(raw).record("gang"))
        assert (state.nnodes, len(state.attempts)) == (2, 1)
        assert [entry.number for entry in roster] == [0, 1, 2]


def test_what_a_failed_rank_wrote_is_read(workdir: Path) -> None:
    """The record of the run's end has it under its new names, so that the client finds the cause."""
    path = workdir / "runs" / ENDED / "0-gpu01" / "gang.json"
    record = json.loads(path.read_text())
    (failure,) = record["parts"][1]["failures"]
    failure.update(said=[{"at": 1.0, "lines": ["ValueError: x"]}], tail=[], frozen=False, starved=True)
    path.write_text(json.dumps(record))

    (read,) = list_run(workdir, ENDED, "gpu01")["gang"]["parts"][1]["failures"]
    assert (read["tracebacks"], read["suspended"], read["oom_killed"]) == (failure["said"], False, True)
    assert not {"said", "frozen", "starved"} & {*read}


def test_a_run_without_an_agent_is_listed_and_stopped(workdir: Path, worker: Any) -> None:
    """Its process is listed as left, and ended; the run has a record of this version."""
    listed = list_run(workdir, RUNNING, "gpu02")
    assert (listed["state"], [entry["pid"] for entry in listed["left"]]) == ("LOST", [worker.pid])
    frames = ask("stop", workdir, "gpu02", run=RUNNING, grace=1.0, reason="stopped by ann", lived=True)
    (report,) = [frame["stopped"] for frame in frames if "stopped" in frame]
    assert ([entry["pid"] for entry in report["ended"]], report["left"]) == ([worker.pid], [])
    assert worker.wait(HANG) != 0
    after = json.loads((workdir / "runs" / RUNNING / "1-gpu02" / "state.json").read_text())
    assert (after["state"], after["slot"], after["slots"], after["protocol"]) == ("LOST", 1, 3, PROTOCOL)


def test_a_run_that_has_ended_is_removed(workdir: Path) -> None:
    """Its directory goes; another node's part stays."""
    request = {"workdir": str(workdir), "node": "gpu01", "unused": 0.0, "payload": "f" * 64}
    with Session("clean", request) as session:
        found = session.receive()
        assert found is not None
        (run,) = found[0]["found"]["runs"]
        assert (run["run"], run["node_dir"], run["blocked"]) == (ENDED, "0-gpu01", "")
        session.send({"remove": {"runs": [[ENDED, "0-gpu01"]], "rest": False}})
        session.frames()
    assert sorted(path.name for path in (workdir / "runs" / ENDED).iterdir()) == ["2-gpu03"]


def test_a_state_that_had_another_name(workdir: Path) -> None:
    """A run that was stopped before the state was called that, in its own record and in that of its end."""
    folder = workdir / "runs" / ENDED / "0-gpu01"
    for name, renamed in (("state.json", {"state": "CANCELLED", "protocol": 3}), ("gang.json", {})):
        record = json.loads((folder / name).read_text())
        if "parts" in record:
            record["parts"][0]["state"] = "CANCELLED"
        (folder / name).write_text(json.dumps({**record, **renamed}))

    listed = list_run(workdir, ENDED, "gpu01")
    assert (listed["state"], listed["protocol"]) == ("STOPPED", PROTOCOL)
    state = parse_state(Untrusted(listed))
    assert state.state == "STOPPED"
    assert state.record is not None
    assert state.record.parts[0].state == "STOPPED"
