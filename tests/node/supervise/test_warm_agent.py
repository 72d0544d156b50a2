"""The agent's side of a warm server that hangs."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.node.fork.warm_client import receive, send
from clusterctl.node.fork.warm_server import listen
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.supervise import warm_server
from clusterctl.node.supervise.spawn import AttemptPaths
from clusterctl.node.supervise.warm_server import WarmServer, send_end


def ask_for_gate(tmp_path: Path, end: socket.socket) -> tuple[WarmServer, Any]:
    """Have a gate forked by the server at the other end."""
    rundir = tmp_path / "runs" / "run" / "0-gpu01"
    rundir.mkdir(parents=True)
    spec: Any = {"node": "gpu01", "module": warm_server.TORCHRUN, "python": "python3", "nproc": 1}
    server = WarmServer(Loop(), SimpleNamespace(rundir=str(rundir)), spec, end.detach())  # type: ignore[arg-type]
    server._greeted = True
    paths = AttemptPaths(str(rundir), str(rundir), str(rundir / "torchrun.log"), str(rundir), {})
    return server, server.fork_gate(spec, {}, paths)


def test_a_server_that_hangs_costs_less_than_the_limit_of_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the one that is to fork the gate nor the one at the socket, which is asked to end, is waited for."""
    monkeypatch.setattr(warm_server, "GATE_LIMIT", 0.2)
    listener, _ = listen(str(tmp_path), "gpu01")
    own_end, _server_end = socket.socketpair()
    began = time.monotonic()
    server, gate = ask_for_gate(tmp_path, own_end)
    assert time.monotonic() - began < 2.0
    assert (gate, server.refusal) == (None, "it does not answer")
    connection, _ = listener.accept()
    request, _ = receive(connection)
    assert request is not None
    assert request.text("do") == "end"
    connection.close()
    listener.close()


def test_the_end_needs_nobody_who_listens(tmp_path: Path) -> None:
    """There may be no server, or one that accepts no more connections."""
    send_end(str(tmp_path), "gpu01")
    listener, _ = listen(str(tmp_path), "gpu01")
    began = time.monotonic()
    for _ in range(20):
        send_end(str(tmp_path), "gpu01")
    assert time.monotonic() - began < 2.0
    listener.close()


def test_an_answer_of_the_server_is_the_refusal(tmp_path: Path) -> None:
    """It is what the run records."""
    own_end, server_end = socket.socketpair()

    def refuse() -> None:
        receive(server_end)
        send(server_end, {"refused": "SEED differs"})

    answering = threading.Thread(target=refuse)
    answering.start()
    server, gate = ask_for_gate(tmp_path, own_end)
    answering.join()
    assert (gate, server.refusal) == (None, "SEED differs")
