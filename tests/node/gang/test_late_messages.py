"""What comes too late between the nodes of a run that is started again: a GO, the memory's release, a wish."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.supervise import progress
from clusterctl.node.supervise.restarts import Restarts

SPEC: dict[str, Any] = {
    "run": "job-1",
    "node": "gpu01",
    "node_rank": 0,
    "nnodes": 2,
    "seat": 0,
    "seats": 2,
    "spare": False,
    "attempt": 2,
    "module": "torch.distributed.run",
    "master_addr": "127.0.0.1",
    "hub": "gpu01",
    "roster": [{"seat": seat, "node": f"gpu0{seat + 1}", "node_rank": seat} for seat in (0, 1)],
    "restart": {"max": 3, "on": ["node_lost"]},
}


class Memory:
    """GPUs whose memory is not free yet."""

    held = True

    def __init__(self) -> None:
        self.done: Callable[[], None] = lambda: None

    def when_free(self, done: Callable[[], None]) -> None:
        """Take who waits for it."""
        self.done = done


@pytest.fixture
def agent(tmp_path: Any) -> Any:
    """What `Restarts` has of an agent between two attempts."""
    attempt = SimpleNamespace(
        ended=True,
        idle=False,
        began=None,
        gpu_memory_wait=Memory(),
        process_tree=SimpleNamespace(signalled=list),
    )
    record = SimpleNamespace(add_event=lambda *_, **__: None, set=lambda **_: None, state={"began": None})
    client = SimpleNamespace(send_event=lambda *_, **__: None, close=lambda: None)
    claim = SimpleNamespace(on_order=lambda _: None)
    about = {"attempt": attempt, "record": record, "client": client, "locks": claim}
    return SimpleNamespace(loop=Loop(), spec={**SPEC, "output_dir": str(tmp_path)}, **about)


def test_a_go_after_the_end_of_an_attempt_is_not_followed(agent: Any) -> None:
    """Its gate's pipe is closed, and the descriptor may be something else by now."""
    went: list[int] = []
    agent.attempt.startup = SimpleNamespace(on_go=lambda port, _: went.append(port))
    restarts = Restarts(agent)

    restarts.on_go("127.0.0.1", 20000)
    after_the_end = list(went)
    agent.attempt.ended = False
    restarts.on_go("127.0.0.1", 20001)

    assert (after_the_end, went) == ([], [20001])


def test_who_waits_for_the_memory_at_the_very_end_is_not_forgotten(agent: Any) -> None:
    """The gang decides at once that it was the last attempt: the agent goes when the memory is free."""
    left: list[str] = []
    restarts = Restarts(agent)

    def decide(_: Any) -> None:
        restarts.conclude({"state": "", "reason": ""})
        agent.attempt.gpu_memory_wait.when_free(
            lambda: left.append("gone")
        )  # as the agent does when the gang is done

    agent.gang = SimpleNamespace(on_end=decide, on_cleared=lambda *_: None)
    restarts.on_attempt_ended({"state": "SUCCEEDED", "reason": "", "node_rank": 0}, [])
    agent.attempt.gpu_memory_wait.done()

    assert left == ["gone"]


def test_a_file_system_that_hangs_holds_nobody_up(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the way to the output directory is looked at but in a thread: the agent has to beat."""
    hangs = threading.Event()
    monkeypatch.setattr(os.path, "realpath", lambda _: hangs.wait())
    monkeypatch.setattr(progress, "SCAN_LIMIT", 0.1)
    told: list[bool | None] = []

    restarts = Restarts(agent)
    restarts.begin()
    restarts._progress.finish(lambda found: (told.append(found), agent.loop.stop()))
    agent.loop.run()

    hangs.set()
    assert told == [None]
