"""What comes too late between the nodes of a run that is started again: a GO, the memory's release, a wish."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.supervise import restarts as progress

SPEC: dict[str, Any] = {
    "run": "job-1",
    "node": "gpu01",
    "node_rank": 0,
    "nnodes": 2,
    "slot": 0,
    "slots": 2,
    "spare": False,
    "attempt": 2,
    "module": "torch.distributed.run",
    "master_addr": "127.0.0.1",
    "hub": "gpu01",
    "roster": [{"slot": seat, "node": f"gpu0{seat + 1}", "node_rank": seat} for seat in (0, 1)],
    "restart": {"max": 3, "on": ["node_lost"]},
}


@pytest.fixture
def agent(tmp_path: Any) -> Any:
    """What the gang's code and `Restarts` have of an agent between two attempts."""
    record = SimpleNamespace(set=lambda _: None, state={"attempts": [], "ranks": {}})
    return SimpleNamespace(loop=Loop(), record=record, spec={**SPEC, "output_dir": str(tmp_path)})


def test_a_file_system_that_hangs_holds_nobody_up(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the way to the output directory is looked at but in a thread: the agent has to beat."""
    hangs = threading.Event()
    monkeypatch.setattr(os.path, "realpath", lambda _: hangs.wait())
    monkeypatch.setattr(progress, "SCAN_LIMIT", 0.1)
    told: list[bool | None] = []

    compared = progress.Progress(agent.loop, agent.spec["output_dir"], "**")
    compared.begin()
    compared.finish(lambda found: (told.append(found), agent.loop.stop()))
    agent.loop.run()

    hangs.set()
    assert told == [None]
