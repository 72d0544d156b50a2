"""What the type checker refuses: numbers that are mixed up, keys and states that no message has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.client.rpc.bundle import PACKAGE

MIX_UPS = """
from clusterctl.node.gang.roster import Roster
from clusterctl.protocol.ranks import NodeRank, Rank, Slot

def f(roster: Roster, node_rank: NodeRank, slot: Slot, rank: Rank) -> None:
    roster.mark_lost(slot, "")
    roster.mark_lost(node_rank, "")
    roster.mark_lost(rank, "")
    roster.node_ranks[slot] = slot
"""

MISSPELLED = """
from clusterctl.client.rpc.session import Session
from clusterctl.node.runtime.stream import Stream
from clusterctl.node.state.run_record import Record
from clusterctl.protocol.messages.files import Spec, State
from clusterctl.protocol.messages.verbs import PsAnswer, PsRequest

def f(session: Session, stream: Stream, record: Record, spec: Spec, state: State) -> None:
    session.send({"do": "go", "master_port": 1})
    session.send({"do": "go", "masterport": 1})
    session.send({"do": "goo", "master_port": 1})
    stream.answer({"runs": [], "time": 1.0})
    stream.answer({"runs": [], "tiem": 1.0})
    a: PsRequest = {"workdir": "", "node": "", "run": None, "limit": 1, "activity": True}
    b: PsRequest = {"workdir": "", "node": "", "run": None, "limit": "1", "activity": True}
    spec["worldsize"] = 4
    state["state"] = "RUNING"
    record.state["torchrn"]
    record.set({"began": 1.0})
    record.set({"begun": 1.0})
    record.add_event("go_received", {"master": "a:1"})
    record.add_event("go_received", {"mastr": "a:1"})
    record.add_event("gone")
    if record.state["state"] == "RUNNING" and spec["nnodes"] > 1 and a["limit"] and b["limit"]:
        return
"""
WRONG = {("mixed_up.py", 7), ("mixed_up.py", 8), ("mixed_up.py", 9)}
WRONG |= {("misspelled.py", line) for line in (10, 11, 13, 15, 16, 17, 18, 20, 22, 23)}


@pytest.mark.process
def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    """The type checker names these lines, and no other; one run, since most of its time goes into what is imported."""
    (tmp_path / "mixed_up.py").write_text(MIX_UPS)
    (tmp_path / "misspelled.py").write_text(MISSPELLED)
    options = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path / 'cache'}")
    command = [sys.executable, "-m", "mypy", *options, *map(str, tmp_path.glob("*.py"))]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    errors = [line.split(":") for line in done.stdout.splitlines() if " error: " in line]
    assert {(Path(file).name, int(line)) for file, line, *_ in errors} == WRONG, done.stdout + done.stderr
