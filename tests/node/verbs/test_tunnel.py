"""Bytes to and from a node: windows, a rank's socket, a shell's environment."""

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

from clusterctl.node.diagnose import breakpoint as debugged_rank
from clusterctl.node.diagnose import rank as asked_rank
from clusterctl.node.diagnose import stacks
from clusterctl.node.runtime.stream import Stream
from clusterctl.node.verbs.tunnel import (
    Channel,
    DebugTunnel,
    PortTunnel,
    connect_to_rank,
    render_known,
    run_environment,
)

REQUEST: Any = {
    "workdir": "",
    "node": "gpu01",
    "run": "r-1",
    "port": 0,
    "argv": [],
    "term": "",
    "size": [24, 80],
}
WINDOW = 1000


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
    assert [getattr(asked_rank, name) for name in names] == [getattr(stacks, name) for name in names]
    assert asked_rank.BREAKPOINT == debugged_rank.MODULE


@pytest.mark.usefixtures("rundir")
def test_no_more_is_sent_than_is_taken(tmp_path: Path) -> None:
    """A reader that takes nothing holds up its own channel only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = {**REQUEST, "workdir": str(tmp_path), "to": "port", "window": WINDOW}
        request |= {"addresses": ["127.0.0.1"], "port": server.getsockname()[1]}
        ours, theirs = socket.socketpair()
        tunnel = PortTunnel(Stream(theirs.fileno(), theirs.fileno()), request)
        serving = threading.Thread(target=tunnel.serve)
        serving.start()
        client = Stream(ours.fileno(), ours.fileno())
        client.send({"open": 1})
        call = server.accept()[0]
        call.sendall(b"x" * 3 * WINDOW)
        received = b""
        while len(received) < WINDOW:
            received += read(client)[1]
        client.send({"open": 2})
        second = server.accept()[0]
        second.sendall(b"quick")
        assert read(client) == ({"data": 2}, b"quick")
        client.send({"taken": 1, "bytes": 10})
        assert read(client) == ({"data": 1}, b"x" * 10)
        client.send({"data": 2}, b"an answer")
        assert second.recv(100) == b"an answer"
        assert read(client) == ({"taken": 2, "bytes": 9}, b"")
        ours.shutdown(socket.SHUT_RDWR)
        serving.join()
        for one in (ours, theirs, call, second):
            one.close()


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
def test_the_last_answer_comes_before_the_end(rundir: Path, waits: bool, reason: str) -> None:
    """Also if what was typed ends at once; then it is said whether the rank still waits."""
    ours, theirs = socket.socketpair()
    rank, far = socket.socketpair()
    tunnel = DebugTunnel(
        Stream(theirs.fileno(), theirs.fileno()),
        {
            **REQUEST,
            "workdir": str(rundir.parents[2]),
            "to": "debug",
            "addresses": [],
            "rank": 3,
            "window": WINDOW,
        },
    )
    tunnel._channels[0] = Channel(far.fileno(), far, WINDOW)
    tunnel._socket = str(rundir / "rank-3.pdb")
    serving = threading.Thread(target=tunnel.serve)
    serving.start()
    client = Stream(ours.fileno(), ours.fileno())
    client.send({"data": 0}, b"p value\n")
    client.send({"close": 0})
    typed = b""
    while piece := rank.recv(100):
        typed += piece
    rank.sendall(b"42\n")
    if waits:
        (rundir / "rank-3.pdb").touch()
    rank.close()
    serving.join(60)
    assert typed == b"p value\n"
    frames = [read(client), read(client), read(client)]
    assert frames == [
        ({"taken": 0, "bytes": 8}, b""),
        ({"data": 0}, b"42\n"),
        ({"close": 0, "reason": reason}, b""),
    ]
    for one in (ours, theirs):
        one.close()


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
        heard = ""
        while answer not in heard:
            heard += connection.recv(1000).decode()
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


def test_a_shell_has_the_jobs_variables_and_none_of_a_rank(
    rundir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that has ended."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("PET_LOG_DIR", "/x")
    env = run_environment(str(rundir))
    assert (env["A"], env["CLUSTERCTL_OUTPUT_DIR"], env["CLUSTERCTL_PYTHON"]) == ("b", "/out", "/py")
    assert not {"RANK", "PET_LOG_DIR", "CLUSTERCTL_RUN"} & set(env)
    assert render_known({"A": ["x", {"fill": "b"}], "C": [{"fill": "d"}]}, {"b": "y"}) == {"A": "xy"}
