"""A warm server that waits: whose place it gives up, and whom it does not serve."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from clusterctl.node.fork import warm_server
from clusterctl.node.fork.imports import Imports
from clusterctl.node.fork.inherited import read_inherited
from clusterctl.node.fork.warm_client import connect, socket_folder, socket_name
from clusterctl.node.fork.warm_messages import send
from clusterctl.node.fork.warm_server import Server, bind, list_ancestors, listen
from clusterctl.node.runtime.processes import identify
from clusterctl.protocol.untrusted import Untrusted


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Make a server that has imported nothing and waits for a minute."""
    monkeypatch.setattr(warm_server, "is_memory_short", lambda: False)
    made = Server(
        Imports(payload="payload.zip", python="python3", preload=(), env={}, files={}), lambda _: None
    )
    made._ends_at = warm_server.now() + 60.0
    return made


def ask_to_start(server: Server) -> Any:
    """Give the server's judgement of a start that nothing else is against."""
    request = {"do": "start", "argv": ["payload.zip"], "inherited": read_inherited()}
    return server._judge_start(Untrusted(request))


def test_no_run_is_forked_while_the_previous_one_ends(server: Server) -> None:
    """The kernel would make its guardian a child of the previous agent or guardian, which kill all that is below."""
    parent = os.fork()
    if parent == 0:
        time.sleep(60)
    server._ancestors = [identify(parent)]
    judgement = ask_to_start(server)
    os.kill(parent, 9)
    os.waitpid(parent, 0)
    assert judgement == ({"refused": "the previous run is still ending"}, True)
    assert "refused" not in (ask_to_start(server)[0] or {})


def test_the_ancestors_are_agent_and_guardian() -> None:
    """They are the parent and its parent, each with the start time by which a later process is told apart."""
    agent = identify(os.getppid())
    assert list_ancestors()[:1] == [agent]
    assert len(list_ancestors()) <= 2


def test_a_server_whose_socket_another_has_replaced_ends(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could reach it; the socket that is there now stays."""
    monkeypatch.setattr(warm_server, "CHECK_INTERVAL", 0.02)
    first, own = listen(str(tmp_path), "gpu01")
    path = Path(socket_folder(str(tmp_path))) / socket_name("gpu01")
    waiting = threading.Thread(target=server._wait, args=(first, own, str(path)), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    second, other = listen(str(tmp_path), "gpu01")
    waiting.join(10.0)
    assert not waiting.is_alive()
    assert path.stat().st_ino == other.st_ino
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    first.close()
    second.close()


def test_the_file_of_a_socket_is_its_own(tmp_path: Path) -> None:
    """Also that of one whose name is taken at once."""
    directory = os.open(tmp_path, os.O_RDONLY)
    (first, own), (second, other) = bind(directory, "name"), bind(directory, "name")
    os.close(directory)
    assert own.st_ino != other.st_ino
    assert (tmp_path / "name").stat().st_ino == other.st_ino
    first.close()
    second.close()


def test_an_end_whose_sender_has_left_is_an_end(server: Server, tmp_path: Path) -> None:
    """An agent does not wait for the answer."""
    listener, _ = listen(str(tmp_path), "gpu01")
    connection = connect(str(tmp_path), "gpu01")
    assert connection is not None
    with connection:
        send(connection, {"do": "end"})
    server._describe = lambda: {"pid": 1}  # type: ignore[assignment,method-assign,return-value,typeddict-item]
    assert not server._serve_connection(listener)
    listener.close()
