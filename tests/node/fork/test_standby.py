"""What waits for the next run: whom it serves, when it ends, and that a run is taken once."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG, wait_until

from clusterctl.node.fork import standby, warm_client
from clusterctl.node.fork.inherited import read_inherited
from clusterctl.node.fork.standby import Standby, bind, is_short, listen
from clusterctl.node.fork.warm_client import (
    connect,
    query,
    receive,
    send,
    socket_folder,
    socket_name,
)

SPEC: Any = {"node": "gpu01", "python": "python3", "start": {"preload": ["json"]}}


class Waiting:
    """A standby that waits in a thread for a minute; `agent_end` is the other end of its line."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = str(workdir)
        line, self.agent_end = socket.socketpair()
        self.agent_end.settimeout(HANG)
        self.standby = Standby(SPEC, line, standby.now() + 60.0)
        self.listener, own = listen(self.workdir, "gpu01")
        self.path = Path(socket_folder(self.workdir), socket_name("gpu01"))
        self.thread = threading.Thread(
            target=self.standby.wait, args=(self.listener, own, str(self.path)), daemon=True
        )
        self.thread.start()

    def query(self, what: Any, **options: Any) -> Any:
        """Ask it what a verb asks."""
        return query(self.workdir, "gpu01", {"do": what, **options})

    def has_ended(self) -> bool:
        """Wait until it has, and return whether its socket is gone."""
        self.thread.join(HANG)
        return not self.thread.is_alive() and not self.path.exists()


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    """Make one that does not look at this machine's memory."""
    monkeypatch.setattr(standby, "is_memory_short", lambda: False)
    made = Waiting(tmp_path)
    yield made
    made.agent_end.close()
    made.thread.join(HANG)
    made.listener.close()


def order(**changes: Any) -> Any:
    """Make a request for a run."""
    inherited = read_inherited()
    run = {"argv": ["python3", "payload.zip"], "rundir": "/runs/1", "env": ["A=1"], "cwd": "/"}
    return {"do": "start", **run, "inherited": inherited, **changes}


def send_order(waiting: Waiting, request: Any, *, reads: bool = True) -> socket.socket:
    """Send a request for a run with two descriptors, and return the connection, which may take no answer."""
    connection = connect(waiting.workdir, "gpu01")
    assert connection is not None
    if not reads:
        connection.shutdown(socket.SHUT_RD)
    null = os.open(os.devnull, os.O_RDWR)
    send(connection, request, (null, null))
    os.close(null)
    return connection


def test_it_describes_itself_with_the_torch_that_its_gate_has(waiting: Waiting) -> None:
    """Its memory is that of all its processes."""
    assert waiting.query("describe").text("torch") == ""
    send(waiting.agent_end, {"torch": "2.13.0"})
    wait_until(lambda: waiting.query("describe").text("torch") == "2.13.0", "the version of torch")
    described = waiting.query("describe")
    assert (described.count("pid"), described.texts("preload", 10)) == (os.getpid(), ("json",))
    assert described.count("bytes") > 0


def test_an_end_whose_sender_has_left_is_an_end(waiting: Waiting) -> None:
    """A standby that takes its place does not wait for the answer."""
    connection = connect(waiting.workdir, "gpu01")
    assert connection is not None
    with connection:
        send(connection, {"do": "end"})
    assert waiting.has_ended()


def test_it_ends_with_the_process_that_was_to_be_the_agent(waiting: Waiting) -> None:
    """Without it, or its gate, there is nothing warm."""
    waiting.agent_end.close()
    assert waiting.has_ended()


def test_one_whose_socket_another_has_replaced_ends(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verb could reach it; the socket that is there now stays."""
    second, other = listen(waiting.workdir, "gpu01")
    monkeypatch.setattr(standby, "CHECK_INTERVAL", 0.02)
    send(waiting.agent_end, {"torch": "2.13.0"})  # so that it looks
    waiting.thread.join(HANG)
    assert not waiting.thread.is_alive()
    assert waiting.path.stat().st_ino == other.st_ino
    assert [entry.name for entry in waiting.path.parent.iterdir()] == [waiting.path.name]
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


def test_a_run_is_taken_and_passed_on_after_the_answer(waiting: Waiting) -> None:
    """With the agent's socket and its log; then nothing waits any more."""
    connection = send_order(waiting, order())
    with connection:
        answer, _ = receive(connection)
    assert answer is not None
    assert answer.count("pid") == os.getpid()
    assert waiting.has_ended()
    passed, descriptors = receive(waiting.agent_end)
    assert passed is not None
    assert (passed.text("rundir"), len(descriptors)) == ("/runs/1", 2)
    assert waiting.standby.order is not None
    for descriptor in (*descriptors, waiting.standby.log):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("request_changes", "text"),
    [({"inherited": ["limits 1"]}, "this login has other limits or rights: "), ({"argv": []}, "")],
)
def test_a_run_of_another_kind_is_not_taken(
    waiting: Waiting, request_changes: dict[str, Any], text: str
) -> None:
    """A process cannot take the limits of another login; it goes on waiting."""
    with send_order(waiting, order(**request_changes)) as connection:
        answer, _ = receive(connection)
    assert (answer.text("refused") if answer is not None else "").startswith(text)
    assert waiting.query("describe") is not None
    assert waiting.standby.order is None


def test_nothing_starts_once_the_verb_has_left(waiting: Waiting) -> None:
    """It starts the run by itself, and two guardians would ruin it."""
    connection = send_order(waiting, order(), reads=False)
    connection.close()
    assert waiting.query("describe") is not None
    assert waiting.standby.order is None


def test_no_answer_can_be_sent_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a standby that hung would start a run that has been started without it."""
    monkeypatch.setattr(warm_client, "LIMIT", 0.1)
    listener, _ = listen(str(tmp_path), "gpu01")
    assert query(str(tmp_path), "gpu01", {"do": "describe"}) is None
    connection, _ = listener.accept()
    with connection, pytest.raises(BrokenPipeError):
        send(connection, {"pid": 1})
    listener.close()


@pytest.mark.parametrize(
    ("available", "stalled", "short"),
    [(50, "0.00", False), (4, "0.00", True), (50, "12.50", True), (50, None, False), (None, "0.00", False)],
)
def test_memory_is_short(available: int | None, stalled: str | None, short: bool) -> None:
    """When little of it is available, or processes wait for it; an old kernel reports one of them, or none."""
    sizes = ["MemTotal:  100 kB", *([] if available is None else [f"MemAvailable:  {available} kB"])]
    pressure = (
        [] if stalled is None else [f"some avg10={stalled} avg60=0.00 avg300=0.00 total=1", "full avg10=0.00"]
    )
    assert is_short(sizes, pressure) is short
