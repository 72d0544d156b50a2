"""A warm server that waits: whose place it gives up, and whom it does not serve."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from clusterctl.node.fork import warm_client, warm_server
from clusterctl.node.fork.imports import Imports
from clusterctl.node.fork.inherited import read_inherited
from clusterctl.node.fork.warm_client import connect, query, receive, send, socket_folder, socket_name
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
    assert ask_to_start(server) == (None, True)


def test_the_ancestors_are_agent_and_guardian() -> None:
    """They are the parent and its parent, each with its start time: a later process with that pid has another."""
    agent = identify(os.getppid())
    assert list_ancestors()[:1] == [agent]
    assert len(list_ancestors()) <= 2


def test_a_server_whose_socket_another_has_replaced_ends(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No agent could reach it; the socket that is there now stays."""
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


def start_with(server: Server, tmp_path: Path, verb: socket.socket) -> Path:
    """Fork guardian and agent, each a shell that appends its role to the file returned."""
    output = tmp_path / "roles"
    argv = ["/bin/sh", "-c", f"echo $0 >> '{output}'"]
    control, log = (os.open(os.devnull, os.O_RDWR) for _ in range(2))
    request = {"do": "start", "argv": argv, "rundir": str(tmp_path), "env": [], "cwd": str(tmp_path)}
    server._open = [socket.socket(), verb]
    server._start(Untrusted(request), [control, log])
    for opened in server._open:
        opened.close()
    for descriptor in (control, log):
        os.close(descriptor)
    return output


def test_the_answer_to_a_start_comes_from_the_guardian(server: Server, tmp_path: Path) -> None:
    """So it means that all is forked."""
    own_end, verb = socket.socketpair()
    output = start_with(server, tmp_path, verb)
    own_end.settimeout(10.0)
    answer, _ = receive(own_end)
    assert answer is not None
    assert answer.integer("pid", 1)
    wait_until(lambda: output.exists() and len(output.read_text().split()) == 2, "guardian and agent")
    assert sorted(output.read_text().split()) == ["agent", "guardian"]


def test_nothing_starts_once_the_verb_has_left(server: Server, tmp_path: Path) -> None:
    """It starts the run without the server, and two guardians would ruin it."""
    own_end, verb = socket.socketpair()
    own_end.shutdown(socket.SHUT_RD)
    output = start_with(server, tmp_path, verb)
    assert own_end.recv(1) == b"", "what it has asked has no answer"
    time.sleep(0.3)
    assert not output.exists()


def test_a_start_that_fails_to_fork_has_no_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb starts the run itself, and the server stays."""

    def fail(*_: object) -> None:
        raise BlockingIOError("no process to be had")

    monkeypatch.setattr(server, "_judge_start", lambda _: (None, True))
    monkeypatch.setattr(server, "_start", fail)
    listener, _ = listen(str(tmp_path), "gpu01")
    stays: list[bool] = []
    serving = threading.Thread(target=lambda: stays.append(server._serve_connection(listener)))
    serving.start()
    request: Any = {"do": "start", "argv": []}
    assert query(str(tmp_path), "gpu01", request) is None
    serving.join()
    assert stays == [True]
    listener.close()


def test_no_answer_can_be_sent_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server that hung would start a run that has been started without it."""
    monkeypatch.setattr(warm_client, "LIMIT", 0.1)
    listener, _ = listen(str(tmp_path), "gpu01")
    assert query(str(tmp_path), "gpu01", {"do": "describe"}) is None
    connection, _ = listener.accept()
    with connection, pytest.raises(BrokenPipeError):
        send(connection, {"pid": 1})
    listener.close()
