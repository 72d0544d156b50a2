"""After the end of an attempt on a Slurm cluster: whether its next one is followed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clusterctl.cli.slurm import follow
from clusterctl.errors import ConnectionLost, NodeError


@pytest.mark.parametrize(
    "error", [NodeError("CC-RUN-003", node="login", verb="slurm", status=9), ConnectionLost("CC-SSH-014")]
)
def test_an_end_is_shown_although_the_login_node_fails_afterwards(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Else the verdict of a run that has failed would be lost, and with it its messages."""

    def watch_queue(*_: object) -> Iterator[Any]:
        raise error
        yield

    monkeypatch.setattr(follow, "watch_queue", watch_queue)
    following = SimpleNamespace(login=None, run_id="j", count=1, requeues=True)
    assert (
        follow.resume_requeued(cast("Any", following), cast("Any", SimpleNamespace(state="FAILED"))) is None
    )


def test_an_end_that_slurm_cannot_undo_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question to the login node starts a Python and squeue there, and would come between the end and its user."""
    asked: list[object] = []
    monkeypatch.setattr(follow, "watch_queue", lambda *found: asked.append(found) or iter(()))
    for state, requeues in (("FAILED", False), ("SUCCEEDED", True), ("FAILED", True)):
        following = SimpleNamespace(login=None, run_id="j", count=1, requeues=requeues)
        verdict = SimpleNamespace(state=state)
        assert follow.resume_requeued(cast("Any", following), cast("Any", verdict)) is None
    assert len(asked) == 1
