"""What a node reports when it is cleaned is read with distrust."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import pytest
from waiting import HANG

from clusterctl.client import cleanup
from clusterctl.client.cleanup import read_storage, remove_stored_runs
from clusterctl.client.rpc import session
from clusterctl.client.rpc.session import Session
from clusterctl.errors import NodeError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory


class Told:
    """A node that reports one thing."""

    stderr = ""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._frames = iter([(Untrusted(header), b"")])

    def send(self, _: Mapping[str, Any]) -> None:
        """Take what is asked."""

    def receive(self, _: float) -> tuple[Untrusted, bytes] | None:
        """Say it, then hang up."""
        return next(self._frames, None)


@pytest.mark.parametrize("runs", [5, "abc", {"a": 1}, [5, None, []], None])
def test_runs_that_are_none_are_no_runs(runs: Any) -> None:
    """A number where a list should be is no bug of this side."""
    found = read_storage(
        cast(Session, Told({"found": {"workdir_id": "x", "runs": runs, "store": runs}})), "n1"
    )
    assert found is not None
    assert (found.stored_runs, found.store.contents) == ((), 0)


@pytest.mark.parametrize("failed", [5, "abc", [5], None])
def test_failures_that_are_none_are_not_reported(failed: Any) -> None:
    """Neither is what it reports of its removals believed to be text."""
    removed = remove_stored_runs(cast(Session, Told({"removed": {"runs": "9", "failed": failed}})), (), "n1")
    assert (removed.runs, removed.failed) == (0, ())


@pytest.mark.parametrize("header", [{"found": 5}, {"found": []}])
def test_what_is_no_answer_is_an_error(header: Mapping[str, Any]) -> None:
    """And names the node's words, not ours."""
    with pytest.raises(NodeError) as caught:
        read_storage(cast(Session, Told(header)), "n1")
    assert caught.value.code == "CC-RUN-004"


def test_a_node_that_gets_nowhere_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats alone are no progress: a removal on a dead mount would never end here."""
    monkeypatch.setattr(session, "STALL", 0.05)
    node = Told({})
    node.receive = lambda limit: (Untrusted({"beat": limit, "steps": 7}), b"")  # type: ignore[method-assign]  # it never ends
    with pytest.raises(NodeError, match="no progress") as caught:
        read_storage(cast(Session, node), "n1")
    assert (caught.value.code, caught.value.node) == ("CC-CLEAN-003", "n1")


def test_beats_without_end_are_no_answer() -> None:
    """A beat every few seconds would hold `ps --orphans` for ever; the session judges the time that is left."""

    class Beats(Told):
        began = time.monotonic()

        def receive(self, timeout: float) -> tuple[Untrusted, bytes] | None:
            if timeout <= 0:
                raise TimeoutError
            return (Untrusted({"beat": 1}), b"") if time.monotonic() < self.began + HANG else None

    with pytest.raises(TimeoutError):
        cleanup._receive_answer(cast(Session, Beats({})), "orphans", 0.05)


def test_a_large_removal_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that makes progress is waited for, longer than for processes to end."""
    monkeypatch.setattr(cleanup, "WORK_LIMIT", 0.0)
    node = Told({})
    beats = [Untrusted({"beat": 1, "steps": step}) for step in range(3)]
    frames = iter([*beats, Untrusted({"removed": {"contents": 7}})])
    node.receive = lambda _: (next(frames), b"")  # type: ignore[method-assign]  # several frames
    monkeypatch.setattr(cleanup, "Session", lambda *_, **__: nullcontext(node))
    (gpu01,) = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-").nodes
    report = cleanup.remove_staged.body(None, gpu01, None, ())
    assert report.contents == 7
