"""What `stop` counts as its own where the stop of another node has ended the run before."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from session import Session
from waiting import wait_until

from clusterctl.node.state import temp_dirs
from clusterctl.node.state.lock_holders import share_name
from clusterctl.node.verbs.stop import LAST_EVENTS, RECENT, find_other_account, find_recently_ended

# Holds the lock of a run as an agent does, and tells visitors whose it is.
HOLD = """
import json, os, socket, sys
os.setuid(int(sys.argv[3]))
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen(4)
print("held", flush=True)
while True:
    visitor = listener.accept()[0]
    visitor.send(json.dumps({"run": sys.argv[2]}).encode())
    visitor.close()
"""
RANK = {"pid": 4711, "name": "python3"}


def write(rundir: Path, *events: dict[str, Any]) -> str:
    """Write the events of a run."""
    (rundir / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(rundir)


def end(state: str, ago: float) -> dict[str, Any]:
    """Describe an end that cost one process."""
    return {"time": time.time() - ago, "event": "ended", "state": state, "ended": [RANK]}


def test_an_end_a_moment_ago_is_told(tmp_path: Path) -> None:
    """Also behind more events than are looked at, the first of them cut in two."""
    noise = [{"time": 0.0, "event": "workers", "filler": "x" * 1000}] * (LAST_EVENTS // 1000 + 5)
    assert find_recently_ended(write(tmp_path, *noise, end("STOPPED", 1.0))) == [RANK]


@pytest.mark.parametrize(("state", "ago"), [("STOPPED", RECENT + 1), ("SUCCEEDED", 0.0), ("FAILED", 0.0)])
def test_another_end_is_not_ours(tmp_path: Path, state: str, ago: float) -> None:
    """Long ago, or by itself: there was nothing left to stop."""
    assert find_recently_ended(write(tmp_path, end(state, ago))) == []


def test_a_run_without_events_has_none(tmp_path: Path) -> None:
    """It was never more than a directory."""
    assert find_recently_ended(str(tmp_path)) == []


@pytest.mark.parametrize("content", ["", "{"])
def test_a_run_whose_papers_are_lost_is_swept_all_the_same(tmp_path: Path, content: str) -> None:
    """A power cut may leave an empty spec: what has its tag is searched for and reported; what it left in /tmp goes."""
    run = f"t-20261120T110000-{os.getpid():08x}"
    outside = Path(temp_dirs.TEMPORARY, f"{temp_dirs.own_prefix(run)}1-x")
    outside.mkdir(mode=0o700)
    rundir = tmp_path / "runs" / run / "0-n"
    rundir.mkdir(parents=True)
    (rundir / "spec.json").write_text(content)
    with Session("stop", {"workdir": str(tmp_path), "run": run, "node": "n", "grace": 0}) as session:
        frames = session.frames()
    assert frames[0][0] == {"stopped": {"ended": [], "left": [], "state": None}}
    assert not outside.exists()


def test_a_run_of_another_account_is_named(tmp_path: Path) -> None:
    """Its lock says which run it is, and the kernel whose: nothing is touched, and it is not called ended."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    run, somebody = f"t-20261120T110000-{os.getpid() % 65536:04x}", pwd.getpwnam("nobody")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, share_name(run, "n"), run, str(somebody.pw_uid)],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None

    def stop() -> Any:
        with Session("stop", {"workdir": str(tmp_path), "run": run, "node": "n", "grace": 0}) as session:
            return session.frames()[-2][0]["stopped"]

    with holder:
        holder.stdout.readline()
        # a holder that gets no processor for a second does not answer
        report = wait_until(
            lambda: found if "elsewhere" in (found := stop()) else None, "the answer of the holder"
        )
        holder.kill()
    assert report == {"ended": [], "left": [], "state": None, "elsewhere": "nobody"}
    assert find_other_account(run, "n") is None
