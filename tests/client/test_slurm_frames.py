"""What a login node may send of a job's nodes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from clusterctl.client import slurm
from clusterctl.client.rpc.frames import limits_for


class FakeSession:
    """Keeps its limits, and ends at once."""

    limits: Any = None

    def __init__(self, *_: object, limits: Any) -> None:
        FakeSession.limits = limits

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def receive(self) -> None:
        """Give no frame."""


def test_the_facts_of_a_node_may_be_as_large_as_over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a machine with many packages."""
    monkeypatch.setattr(slurm, "Session", FakeSession)
    monkeypatch.setattr(slurm, "payload_zip", lambda: ("", b""))
    login: Any = cast(
        "Any", type("Login", (), {"__getattr__": lambda self, _: self, "__call__": lambda self, *_: self})()
    )
    submission = slurm.Submission(cast("Any", {"check": {"only": True}}), [], "", {}, "t")
    assert list(slurm.gather_facts(login, submission)) == []
    assert FakeSession.limits.frames.header == limits_for("probe").header
    assert FakeSession.limits.silence == slurm.SUBMIT_LIMIT
