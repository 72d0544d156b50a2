"""The agent's end of the keeper: what is asked is answered, by the process or for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.runtime.processes import reap
from clusterctl.node.supervise import keeper
from clusterctl.node.supervise.keeper import MAX_STARTS, Keeper, rotate
from clusterctl.protocol.messages.checkpoints import Address, KeeperOrder, KeeperReport, Part, Restore, Seal

# Answers orders but `collect` of `step-1`, ends at `take`, and hangs in the middle of a restore of `step-hung`.
PROGRAM = """
import json, signal, socket, sys
channel = socket.socket(fileno=int(sys.argv[3]))
lines = channel.makefile("r")
settings = json.loads(lines.readline())
def say(**report):
    channel.sendall(json.dumps(report).encode() + b"\\n")
say(event="listening", port=41000)
say(event="part", attempt=1, name="unasked")
say(event="marked", attempt=1, name=settings["path"], identity=settings["token"])
for line in lines:
    order = json.loads(line)
    about = {key: order[key] for key in ("name", "attempt", "serial")}
    if order["do"] == "take":
        sys.exit(3)
    if order["do"] == "restore" and order["name"] == "step-hung":
        say(event="restoring", **about)
        signal.pause()
    if order["do"] == "begin":
        begun = f"attempt {order['attempt']}, node rank {order['node_rank']}, {order['serial']}"
    if order["do"] == "collect" and order["name"] != "step-1":
        say(event="part", identity=begun, **about)
    if order["do"] in ("begin", "conclude"):
        say(event={"begin": "begun", "conclude": "kept"}[order["do"]], **about)
"""


class Side:
    """The agent around a keeper."""

    def __init__(self, root: Path) -> None:
        self.loop = Loop()
        self.reports: list[KeeperReport] = []
        self.spared: set[int] = set()
        path = [{"fill": "output_dir"}, "/step-*"]
        wanted = {"path": path, "complete": "", "copies": 2, "keep": 2, "rate": None, "needs": "all"}
        spec: Any = {
            "attempt": 1,
            "node": "gpu01",
            "node_rank": 0,
            "nnodes": 1,
            "world_size": 1,
            "output_dir": str(root / "out"),
            "address": "127.0.0.1",
            "checkpoints": wanted,
        }
        self.keeper = Keeper(self.loop, str(root), spec, b"token", self.spared, self.reports.append)

    def until(self, condition: Callable[[], object]) -> None:
        """Serve until something holds."""

        def turn() -> object:
            self.loop.after(0.01, "turn", lambda: None)
            self.loop._run_once()
            for pid, _ in reap():
                self.keeper.on_child_exit(pid)
            return condition()

        wait_until(turn, "what was waited for")

    def events(self) -> list[str]:
        """Name what was reported."""
        return [report.event for report in self.reports]


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    """Make one whose program is that of the tests."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(sys, "argv", [str(program)])
    made = Side(tmp_path)
    yield made
    made.keeper.stop()
    made.until(lambda: not list(reap()))


def test_reports_have_the_port_and_only_what_was_asked_is_passed_on(side: Side, tmp_path: Path) -> None:
    """The settings hold the absolute pattern and a token of the run's own; the process is spared at an end."""
    side.keeper.begin(1, 0)
    side.until(lambda: "begun" in side.events())
    marked, begun = side.reports
    assert (marked.name, marked.port, len(marked.identity)) == (f"{tmp_path}/out/step-*", 41000, 64)
    assert (begun.attempt, begun.port) == (1, 41000)
    assert len(side.spared) == 1


def test_what_an_ended_process_was_asked_is_answered_for_it(side: Side) -> None:
    """The hub waits for nothing that will not come, and another process watches on: later checkpoints are kept."""
    side.keeper.begin(1, 0)
    side.keeper.send(KeeperOrder(do="collect", attempt=1, name="step-1", node_rank=1))
    side.keeper.send(KeeperOrder(do="take", attempt=1, name="step-0", part=Part(node_rank=2)))
    side.until(lambda: "held" in side.events())
    answers = {report.event: report for report in side.reports}
    assert "the process that keeps checkpoints has ended" in answers["note"].why
    assert answers["note"].code == "CC-CKPT-014"
    assert all(answers[event].why for event in ("part", "held"))
    assert (answers["held"].name, answers["held"].node_rank) == ("step-0", 2)
    side.keeper.send(KeeperOrder(do="collect", attempt=1, name="step-2"))
    side.until(lambda: side.reports[-1].name == "step-2")
    assert (side.reports[-1].why, side.reports[-1].identity) == ("", "attempt 1, node rank 0, 1")
    side.until(lambda: len(side.spared) == 1)


def test_after_the_end_of_an_attempt_another_process_is_started_only_for_what_needs_one(side: Side) -> None:
    """What else is asked is answered for it."""
    side.keeper.begin(1, 0)
    side.keeper.pause()
    side.keeper.send(KeeperOrder(do="take", attempt=1, name="step-0", part=Part(node_rank=2)))
    side.until(lambda: "held" in side.events())
    side.until(lambda: not side.spared)
    side.keeper.send(KeeperOrder(do="collect", attempt=1, name="step-2"))
    assert (side.reports[-1].name, bool(side.reports[-1].why)) == ("step-2", True)
    side.keeper.send(KeeperOrder(do="conclude", attempt=1, serial=9))
    side.until(lambda: side.reports[-1].event == "kept")
    assert (side.reports[-1].serial, side.reports[-1].why) == (9, "")


def test_nodes_begin_with_different_sources() -> None:
    """All get the same order; none of the sources is left out."""
    sources = tuple(Address(address=f"10.0.0.{number}", port=1) for number in range(3))
    assert [rotate(sources, rank)[0] for rank in range(4)] == [*sources, sources[0]]
    assert set(rotate(sources, 2)) == set(sources)
    assert rotate((), 2) == ()


def test_a_restore_that_was_given_up_is_not_answered(side: Side) -> None:
    """Its answer would be taken for that of the next attempt, and its failure for that of the checkpoint."""
    side.keeper.restore(Restore(seal=Seal(name="step-0", number=1)), 7, 0)
    side.keeper.pause()
    side.keeper.send(KeeperOrder(do="take", attempt=1, name="step-0", part=Part(node_rank=0)))
    side.until(lambda: "held" in side.events())
    assert "restored" not in side.events()


def test_a_restore_that_goes_on_no_more_is_ended(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node fails with the cause, and the process is gone, long before the start has lasted too long."""
    monkeypatch.setattr(keeper, "SILENT_LIMIT", 0.5)
    side.keeper.restore(Restore(seal=Seal(name="step-hung", number=1)), 7, 0)
    side.until(lambda: "restored" in side.events())
    note, restored = side.reports[-2:]
    why = "the process that keeps checkpoints has ended: it reports no progress within 0.5 s"
    assert (note.event, note.code, note.why) == ("note", "CC-CKPT-014", why)
    assert (restored.name, restored.serial, restored.code, restored.why) == (
        "step-hung",
        7,
        "CC-CKPT-014",
        why,
    )
    side.until(lambda: not side.spared)


def test_what_need_not_be_restored_any_more_may_take_long(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause no progress is expected: the process lives, and answers what follows."""
    monkeypatch.setattr(keeper, "SILENT_LIMIT", 0.2)
    side.keeper.begin(1, 0)
    side.keeper.restore(Restore(seal=Seal(name="step-hung", number=1)), 7, 0)
    side.keeper.pause()
    passed: list[bool] = []
    side.loop.after(1.0, "several limits", lambda: passed.append(True))
    side.until(lambda: passed)
    assert (side.events().count("note"), len(side.spared)) == (0, 1)


def test_a_process_that_ends_again_and_again_is_given_up(side: Side) -> None:
    """A restore fails then, and everything else goes on without."""
    for number in range(MAX_STARTS):
        side.keeper.send(KeeperOrder(do="begin", attempt=number + 1))
        side.keeper.send(KeeperOrder(do="take", attempt=1, name="step-0", part=Part(node_rank=0)))
        side.until(lambda number=number: side.events().count("held") == number + 1)
    side.keeper.restore(Restore(seal=Seal(name="step-0", number=1)), 7, 0)
    last = side.reports[-1]
    assert (last.event, last.name, last.serial, last.code) == ("restored", "step-0", 7, "CC-CKPT-014")
