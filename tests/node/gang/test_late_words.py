"""What comes too late between the nodes of a run that is started again: a GO, the memory's release, a wish."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.gang.hub import RestartHub
from clusterctl.node.gang.membership import StopOrder
from clusterctl.node.gang.messages import Welcome
from clusterctl.node.gang.peer import RestartPeer
from clusterctl.node.gang.restarts import GangState
from clusterctl.node.lifecycle.state import RunState, new_attempt
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


@pytest.fixture
def agent(tmp_path: Any) -> Any:
    """What the gang's code and `Restarts` have of an agent between two attempts."""
    record = SimpleNamespace(set=lambda **_: None, state={"attempts": [], "ranks": {}})
    return SimpleNamespace(loop=Loop(), record=record, spec={**SPEC, "output_dir": str(tmp_path)})


def test_no_go_is_given_to_an_attempt_that_is_ending(agent: Any) -> None:
    """A gate becomes ready while the stop of the others is on its way to it."""
    went: list[str] = []
    hub = RestartHub(standing_of(agent))
    restarts = hub.state.restarts
    restarts.on_go = lambda address, port: went.append(f"{address}:{port}")  # type: ignore[method-assign]  # listens in
    hub.on_go()
    hub.on_startup_event("port", {"port": 20000})
    hub.on_startup_event("ready", {})
    hub._stop_all("gpu02", StopOrder("gpu02: the gate died", 1.0, "failure"))
    hub._on_ready(1, {"port": None, "address": "127.0.0.2"})
    hub.on_startup_event("listening", {"port": 20000})

    assert went == []


def test_a_wish_that_came_while_nobody_led_is_told_to_who_leads_next(agent: Any) -> None:
    """Otherwise the run would be started again although somebody has stopped it here."""
    said: list[dict[str, Any]] = []
    standing = standing_of(agent)
    standing.record_stop(StopOrder("stopped by ann@laptop", 5.0, "stop"))
    peer = RestartPeer(standing, 1)
    peer._rejoining = peer._started = True
    peer._channel = SimpleNamespace(send=lambda kind, **facts: said.append({"kind": kind, **facts}))  # type: ignore[assignment]  # what is sent is all that counts

    peer._on_message(Welcome())

    assert [message["kind"] for message in said] == ["hello", "stop"]
    assert (said[1]["reason"], said[1]["occasion"]) == ("stopped by ann@laptop", "stop")


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


def standing_of(agent: Any) -> GangState:
    """Make what a seat keeps whoever leads."""
    names = ("report", "stop", "save_record", "leave")
    side = SimpleNamespace(
        loop=agent.loop, spec=agent.spec, token=b"", **dict.fromkeys(names, lambda *_, **__: None)
    )
    state = RunState(new_attempt({**agent.spec, "processes": 1, "world_size": 2}, idle=False), True)
    restarts = Restarts(agent.spec, agent.record, lambda _: None, lambda: state)
    return GangState(side, restarts, lambda _: None)  # type: ignore[arg-type]  # a side by shape
