"""Bytes to and from a port or a rank of a node."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from servers import closed_port

from clusterctl.node.diagnose import breakpoint as debugged_rank
from clusterctl.node.diagnose import query
from clusterctl.node.diagnose import rank as asked_rank
from clusterctl.node.runtime.processes import identify
from clusterctl.node.runtime.stream import Stream
from clusterctl.node.state.run_record import new_state
from clusterctl.node.verbs.machine import connect
from clusterctl.node.verbs.machine.connect import connect_to_rank
from clusterctl.protocol.run_paths import RunPaths

REQUEST: Any = {"workdir": "", "node": "gpu01", "run": "r-1"}


@pytest.fixture
def rundir(tmp_path: Path) -> Path:
    """A run's directory, as far as a tunnel reads it."""
    folder = tmp_path / "runs/r-1/0-gpu01"
    (folder / "diagnose/1").mkdir(parents=True)
    (folder / "spec.json").write_text(
        json.dumps(
            {
                "run": "r-1",
                "node": "gpu01",
                "address": "127.0.0.1",
                "env": {"A": "b"},
                "output_dir": "/out",
                "python": "/py",
            }
        )
    )
    return folder


def test_the_two_sides_of_diagnose_have_the_same_numbers() -> None:
    """One of them is alone in the run's directory."""
    names = ("SIGNAL", "STATE", "RECORDS")
    assert [getattr(asked_rank, name) for name in names] == [getattr(query, name) for name in names]
    assert asked_rank.BREAKPOINT == debugged_rank.MODULE


def serve(request: Any) -> tuple[Stream, threading.Thread]:
    """Serve a request in a thread; returns the client's stream."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs:
            connect.run(request, Stream(theirs.fileno(), theirs.fileno()))

    serving = threading.Thread(target=run)
    serving.start()
    client = ours.detach()
    return Stream(client, client), serving


@pytest.mark.usefixtures("rundir")
def test_a_port_answers_after_the_client_has_closed(tmp_path: Path) -> None:
    """Each direction has its own end, and where the port accepts is reported."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client, serving = serve({**REQUEST, "workdir": str(tmp_path), "to": "port", "number": port})
        assert read(client) == ({"connected": "127.0.0.1"}, b"")
        client.send({"data": True}, b"a question")
        client.send({"close": True})
        call = server.accept()[0]
        assert call.makefile("rb").read() == b"a question"
        call.sendall(b"an answer")
        call.close()
        assert read(client) == ({"data": True}, b"an answer")
        assert read(client) == ({"closed": "ended"}, b"")
        serving.join(60)
        os.close(client.source)


@pytest.mark.usefixtures("rundir")
def test_a_refused_port_is_reported(tmp_path: Path) -> None:
    """With the last address that was tried, which is the node's training address."""
    request = {**REQUEST, "workdir": str(tmp_path), "to": "port", "number": closed_port()}
    client, serving = serve(request)
    reason = f"127.0.0.1:{request['number']}: Connection refused"
    assert read(client) == ({"closed": reason}, b"")
    serving.join(60)
    os.close(client.source)


def read(client: Stream) -> Any:
    """Read the next frame that is no beat."""
    frame = client.receive(30)
    return read(client) if frame is not None and "beat" in frame[0] else frame


WAITS = """
import os, sys
sys.path.insert(0, {here!r})
from clusterctl.node.diagnose.breakpoint import install
install({folder!r}, 3)
value = 42
breakpoint()
print("went on", value)
"""


@pytest.mark.parametrize(("waits", "reason"), [(True, "left"), (False, "continued")])
def test_the_last_answer_comes_before_the_end(
    rundir: Path, monkeypatch: pytest.MonkeyPatch, waits: bool, reason: str
) -> None:
    """Also if what was typed ends at once; then it is reported whether the rank still waits."""
    folder = rundir / "diagnose/1"
    me = identify(os.getpid()).as_dict()
    state: Any = new_state(json.loads((rundir / "spec.json").read_text()))
    state |= {"state": "RUNNING", "agent": me, "guardian": me, "ranks": {"3": me}, "attempt": 1}
    Path(RunPaths(str(rundir)).state).write_text(json.dumps(state))
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(folder)  # a whole path may be longer than an address can be
    listener.bind("rank-3.pdb")
    listener.listen()
    client, serving = serve({**REQUEST, "workdir": str(rundir.parents[2]), "to": "rank", "number": 3})
    assert read(client) == ({"waits": 3}, b"")
    client.send({"data": True}, b"p value\n")
    client.send({"close": True})
    rank = listener.accept()[0]
    assert rank.makefile("rb").read() == b"p value\n"
    rank.sendall(b"42\n")
    if not waits:
        (folder / "rank-3.pdb").unlink()
    rank.close()
    assert read(client) == ({"data": True}, b"42\n")
    assert read(client) == ({"closed": reason}, b"")
    serving.join(60)
    os.close(client.source)
    listener.close()


def test_a_rank_waits_until_it_may_go_on(rundir: Path) -> None:
    """It survives who leaves; its socket is this account's alone, and is gone when the rank goes on."""
    folder = rundir / "diagnose/1"
    program = WAITS.format(here=str(Path(__file__).parents[3]), folder=str(folder))
    rank = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert rank.stderr is not None
    assert "rank 3 waits at <string>:" in rank.stderr.readline()
    assert (folder / "rank-3.pdb").stat().st_mode & 0o777 == 0o600
    for words, answer in (("p value\n", "42"), ("value = 7\nc\n", "(rank 3)")):
        connection = connect_to_rank(str(folder), 3)
        assert connection is not None
        connection.sendall(words.encode())
        received = ""
        while answer not in received:
            received += connection.recv(1000).decode()
        connection.close()
    out, _ = rank.communicate(timeout=60)
    assert out == "went on 7\n"
    assert connect_to_rank(str(folder), 3) is None
    assert not (folder / "rank-3.pdb").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_socket_of_another_account_is_left_alone(tmp_path: Path) -> None:
    """Another account's program is no rank of ours."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "rank-0.pdb"))
        listener.listen()
        os.chown(tmp_path / "rank-0.pdb", 65534, 65534)
        assert connect_to_rank(str(tmp_path), 0) is None
