"""A warm server that waits: whose place it gives up, and whom it does not serve."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import HANG, wait_until

import clusterctl
from clusterctl.node.fork import standby, warm_client, warm_server
from clusterctl.node.fork.imports import Imports
from clusterctl.node.fork.inherited import read_inherited
from clusterctl.node.fork.standby import Launch
from clusterctl.node.fork.warm_client import (
    close_all,
    connect,
    pack_variables,
    query,
    receive,
    send,
    socket_folder,
    socket_name,
)
from clusterctl.node.fork.warm_server import GateProgram, Server, bind, list_ancestors, listen
from clusterctl.node.runtime.processes import identify, own_processes
from clusterctl.protocol.untrusted import Untrusted


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Make a server that has imported nothing and waits for a minute."""
    monkeypatch.setattr(warm_server, "is_memory_short", lambda: False)
    imports = Imports(payload="payload.zip", python="python3", preload=(), env={}, files={})
    program = GateProgram(lambda _: None, lambda *_: lambda _: None)
    made = Server(imports, {"mode": "fork", "preload": [], "workers": 1}, program)
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


ROLE = """
import json, sys
sys.path.insert(0, {root!r})
from clusterctl.node.fork.standby import await_order
role, ends = sys.argv[1], json.loads(sys.argv[3])
ends.pop("agent", None)
rundir = await_order(ends)
with open("roles", "a") as output:
    print(role, rundir, sorted(ends), file=output)
"""
STARTED = ["agent RUN ['beats', 'control', 'orders', 'warm']", "guardian RUN ['beats', 'orders']"]


def launch(tmp_path: Path, **env: str) -> Launch:
    """Start guardian and agent as programs that only write down what they were given."""
    root = str(Path(clusterctl.__file__).parents[1])
    return Launch([sys.executable, "-c", f"# {tmp_path}{ROLE.format(root=root)}"], env)


def start_with(
    server: Server, tmp_path: Path, verb: socket.socket, given: str = os.devnull, **env: str
) -> None:
    """Let the server start a run, whose agent's socket and log are, for this test, an open file."""
    argv, variables = launch(tmp_path, **env)
    request = {"argv": argv, "env": pack_variables(variables), "rundir": "RUN", "cwd": str(tmp_path)}
    control, log = (os.open(given, os.O_RDWR) for _ in range(2))
    listener = socket.socket()
    server._open = [listener, verb]
    server._start(Untrusted(request), [control, log])
    close_all((control, log, listener.detach(), verb.detach()))
    server._open = []


def assert_started_once(tmp_path: Path) -> None:
    """Wait until guardian and agent have written down what they were given, and ended; no others may have."""
    # an agent that has not yet executed the program is not in the list of processes
    wait_until(lambda: set(STARTED) <= set(started(tmp_path)), "guardian and agent have the run")
    assert started(tmp_path, len(STARTED)) == STARTED


def started(tmp_path: Path, count: int = 0) -> list[str]:
    """Return what guardian and agent have written, once there are `count` lines and both have ended."""
    output = tmp_path / "roles"

    def read() -> list[str]:
        return sorted(output.read_text().splitlines()) if output.exists() else []

    wait_until(lambda: len(read()) >= count and not list_pids(tmp_path), "the end of guardian and agent")
    return read()


def list_pids(tmp_path: Path) -> list[int]:
    """List the processes of guardian and agent."""
    mark = f"# {tmp_path}".encode()
    return [stat.pid for stat in own_processes("cmdline", lambda words: any(mark in word for word in words))]


def test_the_answer_to_a_start_comes_from_the_guardian(server: Server, tmp_path: Path) -> None:
    """So it means that all is there."""
    own_end, verb = socket.socketpair()
    start_with(server, tmp_path, verb)
    own_end.settimeout(HANG)
    answer, _ = receive(own_end)
    assert answer is not None
    assert answer.integer("pid", 1)
    assert_started_once(tmp_path)


def test_nothing_starts_once_the_verb_has_left(server: Server, tmp_path: Path) -> None:
    """It starts the run without the server, and two guardians would ruin it."""
    own_end, verb = socket.socketpair()
    own_end.shutdown(socket.SHUT_RD)
    log = tmp_path / "agent.log"
    log.touch()
    start_with(server, tmp_path, verb, str(log))
    own_end.settimeout(HANG)
    assert own_end.recv(1) == b"", "what it has asked has no answer"
    wait_until(log.read_text, "the guardian's line, in the log that the run goes on with")
    assert started(tmp_path) == []
    assert log.read_text() == "the verb has ended; it starts the run itself\n"


@pytest.mark.parametrize("changed", [{}, {"HOME": "/else"}])
def test_guardian_and_agent_wait_for_the_next_run(
    server: Server, tmp_path: Path, changed: dict[str, str]
) -> None:
    """They are its guardian and agent if they were started with its variables; else they end."""
    server._next = launch(tmp_path, HOME="/home")
    server._ancestors = [identify(os.getpid())]
    server._prepare()
    assert server._standby is None, "a guardian that ends would kill it"
    server._ancestors = []
    server._prepare()
    wait_until(lambda: len(list_pids(tmp_path)) == 2, "guardian and agent")
    waiting = list_pids(tmp_path)
    own_end, verb = socket.socketpair()
    start_with(server, tmp_path, verb, **{"HOME": "/home", **changed})
    own_end.settimeout(HANG)
    answer, _ = receive(own_end)
    assert answer is not None
    assert (answer.integer("pid", 1) in waiting) is (not changed)
    assert_started_once(tmp_path)


def test_a_server_of_the_run_holds_neither_its_client_nor_its_log(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the verb would not see that the agent has closed its end, and the log could not be removed on NFS."""
    log, fork_server = tmp_path / "agent.log", server._fork_server
    log.touch()

    def list_and_fork(private: Iterable[int]) -> int:
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        (tmp_path / "held").write_text("\n".join(map(str, links)))
        return fork_server(private)

    monkeypatch.setattr(server, "_fork_server", list_and_fork)
    own_end, verb = socket.socketpair()
    start_with(server, tmp_path, verb, str(log))
    own_end.settimeout(HANG)
    assert receive(own_end)[0] is not None
    assert started(tmp_path, len(STARTED)) == STARTED
    held = (tmp_path / "held").read_text().splitlines()
    assert os.devnull in held
    assert str(log) not in held


def test_the_memory_of_all_that_waits_is_counted(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share most of it with the server, so that little of it would be the server's alone."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13"))
    counted: set[int] = set()

    def count(pids: Iterable[int]) -> int:
        counted.update(pids)
        return 7

    monkeypatch.setattr(warm_server, "count_bytes", count)
    server._next = launch(tmp_path)
    server._prepare()
    wait_until(lambda: len(list_pids(tmp_path)) == 2, "guardian and agent")
    assert server._describe()["bytes"] == 7
    assert {os.getpid(), *list_pids(tmp_path)} < counted, "and the agent's server"
    assert server._standby is not None
    server._standby.line.close()
    assert started(tmp_path) == []
    assert server._standby.pid in counted


def test_a_guardian_that_is_halted_does_not_halt_the_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads nothing, and many variables are more than a socket holds: another is started then."""
    monkeypatch.setattr(standby, "ORDER_LIMIT", 0.1)
    server._next = Launch([sys.executable, "-c", f"# {tmp_path}\nimport time\ntime.sleep(3600)"], {})
    server._prepare()
    assert server._standby is not None
    order = Launch([], {"LONG": "x" * 1_000_000})
    assert not server._standby.hand_over("RUN", order, str(tmp_path), ())
    wait_until(lambda: len(list_pids(tmp_path)) == 2, "guardian and agent")
    for pid in list_pids(tmp_path):
        os.kill(pid, signal.SIGKILL)
    assert started(tmp_path) == []


def test_a_gate_that_waits_has_no_descriptor_of_the_first_run(server: Server) -> None:
    """Its number would be that of another process, or of none."""
    start = {"mode": "fork", "preload": [], "workers": 1}
    assert Server(server._imports, {**start, "warm": 7}, server._program)._start_plan == start  # type: ignore[typeddict-item]


def test_who_waits_ends_with_the_server(server: Server, tmp_path: Path) -> None:
    """However it ends: its sockets are closed."""
    server._next = launch(tmp_path)
    server._prepare()
    assert server._standby is not None
    wait_until(lambda: len(list_pids(tmp_path)) == 2, "guardian and agent")
    server._standby.line.close()
    assert started(tmp_path) == []


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
