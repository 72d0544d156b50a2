"""Conversations with real nodes: answers, errors, deaths, silences."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conversations import Conversations, start, stop_server_side, verbs  # noqa: F401 - a fixture that every test here uses by itself
from counting import count_calls
from servers import Client, Server
from waiting import HANG, wait_until

from clusterctl.client.rpc import session as session_module
from clusterctl.client.rpc.errors import interpreter_not_started
from clusterctl.client.rpc.session import SessionLimits
from clusterctl.client.ssh.config import passwd_home
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import (
    ConnectionLost,
    ConnectTimeout,
    InternalError,
    NodeError,
    NoInterpreter,
    Unreachable,
)
from clusterctl.protocol.untrusted import Untrusted


class TestOverParamiko(Conversations):
    """Over a connection of paramiko."""


@pytest.fixture
def connection(server: Server, client: Client) -> Any:
    """Return an open connection."""
    return client.connect(server.node())


def test_too_many_channels(serve: Callable[..., Server], client: Client) -> None:
    """The server's limit on sessions is an error of its own."""
    connection = client.connect(serve("MaxSessions 1").node())
    with start(connection, "echo"), pytest.raises(Unreachable) as caught:
        start(connection, "echo")
    assert caught.value.code == "CC-SSH-014"
    assert "MaxSessions" in caught.value.fix


def test_unforeseen_error_of_the_node(connection: Any) -> None:
    """An exception that nobody expected arrives with its traceback as evidence."""
    with start(connection, "fail", code="") as session:
        session.receive(HANG)
        with pytest.raises(InternalError) as caught:
            session.receive(HANG)
    assert caught.value.code == "CC-RUN-002"
    assert "KeyError" in caught.value.message
    assert "in run" in caught.value.evidence
    assert "Traceback" in caught.value.evidence  # by this the command line knows what belongs into a file


def test_verb_that_writes_no_frames(connection: Any) -> None:
    """Garbage after the sentinel is not waited on."""
    with start(connection, "garbage") as session, pytest.raises(NodeError) as caught:
        session.receive(HANG)
    assert caught.value.code == "CC-RUN-004"


@pytest.mark.parametrize(
    ("python", "activate", "code"),
    [
        ("/nonexistent/python3", None, "CC-PY-001"),
        ("/nonexistent/python3", "true", "CC-PY-001"),
        ("/etc/passwd", None, "CC-PY-001"),
        ("no-such-python", None, "CC-PY-001"),
        ("/bin/false", None, "CC-PY-003"),
        (sys.executable, "exit 5", "CC-PY-003"),
    ],
)
def test_no_interpreter(connection: Any, python: str, activate: str | None, code: str) -> None:
    """A missing interpreter is told apart from one that does not come up."""
    with (
        start(connection, "echo", python, activate=activate) as session,
        pytest.raises(NoInterpreter) as caught,
    ):
        session.receive(HANG)
    assert caught.value.code == code
    assert caught.value.node == "n1"
    assert ("`activate` ended the shell with status 5" in caught.value.message) == (activate == "exit 5")
    if code == "CC-PY-001":
        assert python in caught.value.message
        assert python in caught.value.evidence  # the shell's own words


def test_a_missing_library_is_no_missing_interpreter(connection: Any, tmp_path: Path) -> None:
    """The shell gives 127 for both; only what the loader says tells them apart."""
    program = tmp_path / "python3"
    program.write_bytes(Path("/bin/true").read_bytes().replace(b"libc.so.6\0", b"libq.so.9\0"))
    program.chmod(0o755)
    with start(connection, "echo", str(program)) as session, pytest.raises(NoInterpreter) as caught:
        session.receive(HANG)
    assert caught.value.code == "CC-PY-003"
    assert caught.value.message == f"{program} exists but cannot load the shared library libq.so.9"
    assert "LD_LIBRARY_PATH" in caught.value.fix
    assert "libq.so.9" in caught.value.evidence


@pytest.mark.parametrize("source", ["the inventory", "/work/job.yaml"])
def test_the_fix_names_the_file_that_sets_python(connection: Any, source: str) -> None:
    """A job's own `python` is not set in the inventory."""
    with (
        start(connection, "echo", "/nonexistent/python3", python_source=source) as session,
        pytest.raises(NoInterpreter) as caught,
    ):
        session.receive(HANG)
    assert caught.value.fix.startswith(f"set `python` in {source} to the absolute path")


def test_a_module_that_hides_pythons_own_leads_to_pythonpath() -> None:
    """A traceback while Python imports its own modules: the fix names PYTHONPATH, not the shell's files."""
    said = 'Traceback (most recent call last):\n  File "/x/json.py", line 1\n'
    error = interpreter_not_started("n1", "python3", 1, b"", said)
    assert (error.code, "PYTHONPATH" in error.fix) == ("CC-PY-003", True)


def test_activate_that_becomes_another_program(connection: Any) -> None:
    """Nothing can be told of it but that it is one of three."""
    with (
        start(connection, "echo", activate="exec true") as session,
        pytest.raises(NoInterpreter, match="the login shell, `activate` or") as caught,
    ):
        session.receive(HANG)
    assert caught.value.code == "CC-PY-003"


def test_interpreter_too_old(connection: Any, tmp_path: Path) -> None:
    """An old Python says itself that it is; here one that pretends."""
    old = tmp_path / "python3.6"
    pretend = "import sys; sys.version_info = (3, 6, 9, 'final', 0);"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend} exec(sys.argv[1])" "$2"\n')
    old.chmod(0o755)
    with start(connection, "echo", str(old)) as session, pytest.raises(NoInterpreter) as caught:
        session.receive(HANG)
    assert caught.value.code == "CC-PY-002"
    assert "3.6.9" in caught.value.message


def test_activate_that_hangs(connection: Any) -> None:
    """The interpreter has its own limit, also when the caller would wait longer."""
    session = start(connection, "echo", activate="echo asking; sleep 60", timeouts=Timeouts(start=5.0))
    with session, pytest.raises(NoInterpreter) as caught:
        session.receive(HANG)
    assert "did not finish within 5 s: echo asking; sleep 60" in caught.value.message
    assert (caught.value.code, caught.value.evidence) == ("CC-PY-004", "asking")


@pytest.mark.parametrize("activate", [None, "true"])
def test_a_python_that_hangs(connection: Any, tmp_path: Path, activate: str | None) -> None:
    """Whoever waits, for whatever: the one that does not answer is named, and not `activate` before it."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 60\n")
    python.chmod(0o755)
    session = start(connection, "echo", str(python), activate=activate)
    with session, pytest.raises(ConnectTimeout) as caught:
        session.receive(5.0)
    assert f"{python} did not respond within 5 s" in caught.value.message


def test_hostile_activate_and_python_arrive(connection: Any, tmp_path: Path) -> None:
    """Through a real sshd and login shell nothing is evaluated that should not be."""
    python = tmp_path / 'it\'s $(touch pwned)\n`x` "é" \\0'
    python.symlink_to(sys.executable)
    activate = f"printf %s '$(touch {tmp_path}/pwned) \\n' é >&2\n# '"
    with start(connection, "echo", str(python), activate=activate) as session:
        assert session.receive(HANG) == (Untrusted({"request": {}}), b"")
        assert session.stderr == f"$(touch {tmp_path}/pwned) \\né"
    assert not (passwd_home() / "pwned").exists()
    assert not (tmp_path / "pwned").exists()


def test_answer_has_a_limit(connection: Any) -> None:
    """No answer in time is an error; the conversation goes on."""
    with start(connection, "echo") as session:
        session.receive(HANG)
        with pytest.raises(ConnectTimeout) as caught:
            session.receive(0.2)
        assert caught.value.code == "CC-SSH-004"
        session.send({"late": 1})
        assert session.receive(HANG) == (Untrusted({"late": 1}), b"")


def test_caller_who_was_away_misses_nothing(connection: Any) -> None:
    """Limits are judged after what has arrived, not before."""
    timeouts = Timeouts(start=0.5)
    with start(connection, "echo", timeouts=timeouts, limits=SessionLimits(silence=0.5)) as session:
        arrived = session._channel._channel.in_buffer  # type: ignore[attr-defined]  # paramiko's
        wait_until(lambda: b'"request"' in bytes(arrived._buffer), "an answer")
        time.sleep(2.0)
        assert session.receive(0) == (Untrusted({"request": {}}), b"")


def test_node_that_does_not_read(connection: Any) -> None:
    """Sending has a limit too."""
    with start(connection, "deaf") as session:
        session.receive(HANG)
        began = time.monotonic()
        with pytest.raises(ConnectTimeout) as caught:
            session.send({"big": 1}, b"x" * (16 << 20), timeout=1.0)
        assert time.monotonic() - began >= 1.0
        assert "sending" in caught.value.message


def test_a_node_that_speaks_without_end_is_not_heard_for_ever(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While we send, what nobody asked for is taken in up to a bound, and then the node is named."""
    monkeypatch.setattr(session_module, "MAX_HELD", 4 << 20)
    with start(connection, "burst", frames=64, size=1 << 20) as session:
        with pytest.raises(NodeError, match="without a request") as caught:
            session.send({}, b"y" * (32 << 20), timeout=HANG)
        assert sum(len(body) for _, body in session._frames) < 16 << 20
    assert caught.value.code == "CC-RUN-004"


def test_beats_keep_a_quiet_connection(connection: Any) -> None:
    """As long as something is heard within the limit, nothing is lost; then it is, and not before."""
    session = start(connection, "beats", beats=10, every=0.4, pause=20, limits=SessionLimits(silence=3.0))
    for number in range(10):
        assert session.receive(HANG) == (Untrusted({"beat": number}), b"")
    with pytest.raises(ConnectionLost):
        session.receive(HANG)
    session.close()


def test_frozen_server_and_a_new_channel(serve: Callable[..., Server], client: Client) -> None:
    """Opening a channel has a limit, whatever the library is waiting for."""
    server = serve()
    connection = client.connect(server.node())
    stop_server_side(server)
    with pytest.raises(ConnectTimeout) as caught:
        start(connection, "echo", timeouts=Timeouts(channel=0.5))
    assert "channel" in caught.value.message


def test_frozen_server_and_sending(serve: Callable[..., Server], client: Client) -> None:
    """Sending into a frozen machine ends within its limit."""
    server = serve()
    connection = client.connect(server.node())
    session = start(connection, "echo")
    session.receive(HANG)
    stop_server_side(server)
    with pytest.raises((ConnectTimeout, ConnectionLost)):
        for _ in range(20):
            session.send({"big": 1}, b"x" * (1 << 20), timeout=1.0)
    session.close()


def test_what_a_verb_said_before_it_ended_is_not_lost_to_a_late_word(connection: Any) -> None:
    """Sending to one that has ended in order raises nothing: the frames tell why it did."""
    session = start(connection, "burst", frames=2, size=1)
    time.sleep(1.0)
    with session:
        for _ in range(3):
            session.send({"late": True})
        assert [session.receive(HANG), session.receive(HANG)] == [
            (Untrusted({"n": 0}), b"x"),
            (Untrusted({"n": 1}), b"x"),
        ]
        assert session.receive(HANG) is None


def test_silence_is_checked_without_waiting(connection: Any) -> None:
    """A reader of many nodes asks each whether it is still there."""
    session = start(connection, "beats", beats=3, every=0.1, pause=20)
    for _ in range(3):
        session.receive(HANG)
    session.check_silence(HANG)
    time.sleep(0.6)
    with pytest.raises(ConnectionLost):
        session.check_silence(0.5)
    session.close()


def test_reading_costs_no_polling(connection: Any) -> None:
    """Waiting for a silent node is one wait, and no series of short ones."""
    session = start(connection, "deaf")
    session.receive(HANG)

    def wait() -> None:
        with pytest.raises(ConnectTimeout):
            session.receive(1.5)

    assert count_calls(wait) < 300
    session.close()


def test_the_process_of_a_verb_that_has_ended_takes_the_next_one(connection: Any) -> None:
    """Only one that was started with the same Python, and only once its verb has ended in order."""

    def pid_of(python: str = sys.executable, *, finish: bool = True) -> bytes:
        with start(connection, "echo", python, pid=True) as session:
            frame = session.receive(HANG)
            assert frame is not None
            if finish:
                session.send({"stop": True})
                session.finish()
        return frame[1]

    first = pid_of()
    assert pid_of(finish=False) == first  # and ends with its verb
    second = pid_of()
    assert second != first
    assert pid_of(python="python3") != second
    waiting = connection.transport._idle_processes
    os.kill(int(second), signal.SIGKILL)
    wait_until(lambda: waiting[0].channel.at_eof, "the end of one that waits")
    assert pid_of() != second
