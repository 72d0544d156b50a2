"""Conversations with real nodes: answers, errors, deaths, silences."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from counting import count_calls
from servers import PATIENT, Client, Server
from waiting import HANG, wait_until

from clusterctl.client.rpc import bundle
from clusterctl.client.rpc import session as session_module
from clusterctl.client.rpc.errors import interpreter_not_started
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits, idle_interpreters
from clusterctl.client.ssh.config import passwd_home
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import (
    ConnectionLost,
    ConnectTimeout,
    InternalError,
    NodeError,
    NoInterpreter,
    SyncError,
    Unreachable,
)
from clusterctl.protocol.untrusted import Untrusted

VERBS = {
    "echo": """
import os
def run(request, stream):
    stream.send({"request": request}, str(os.getpid()).encode() if request.get("pid") else b"")
    while True:
        frame = stream.receive()
        if frame is None or frame[0].get("stop"):
            return
        stream.send(frame[0], frame[1])
""",
    "noisy": """
import os, sys
def run(request, stream):
    for _ in range(request["chunks"]):
        os.write(2, b"e" * 65536)
        os.write(1, b"o" * 65536)
    print("a stray print", flush=True)
    stream.send({"done": True}, b"body")
""",
    "burst": """
def run(request, stream):
    for number in range(request["frames"]):
        stream.send({"n": number}, b"x" * request["size"])
""",
    "deaf": """
import time
def run(request, stream):
    stream.send({"pid": __import__("os").getpid()})
    time.sleep(60)
""",
    "talker": """
def run(request, stream):
    for number in range(request["frames"]):
        stream.send({"n": number}, b"x" * request["size"])
    got = 0
    while True:
        frame = stream.receive()
        if frame[0].get("stop"):
            break
        got += len(frame[1])
    stream.send({"got": got})
""",
    "fail": """
from ..runtime.stream import VerbError
def run(request, stream):
    stream.send({"first": 1})
    if request["code"]:
        raise VerbError(request["code"], "it did not work")
    {}["missing"]
""",
    "die": """
import os
def run(request, stream):
    stream.send({"first": 1})
    os.write(2, b"last words")
    os._exit(9) if request["how"] == "exit" else os.kill(os.getpid(), 9)
""",
    "beats": """
import time
def run(request, stream):
    for number in range(request["beats"]):
        stream.send({"beat": number})
        time.sleep(request["every"])
    time.sleep(request["pause"])
""",
    "garbage": """
import os
def run(request, stream):
    os.write(stream.sink, b"Segmentation fault\\n")
""",
}


@pytest.fixture(scope="module", autouse=True)
def verbs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ship verbs of the test's own, by the real boot code."""
    package, original = tmp_path_factory.mktemp("package"), bundle.PACKAGE
    folder = package / "node" / "verbs"
    folder.mkdir(parents=True)
    (package / "node" / "runtime").mkdir()
    (package / "protocol").mkdir()
    for name in ("node/__init__.py", "node/boot.py", "node/runtime/stream.py", "protocol/frames.py"):
        (package / name).write_bytes((original / name).read_bytes())
    for name, source in VERBS.items():
        (folder / f"{name}.py").write_text(source)
    bundle.PACKAGE = package
    bundle.clear_cache()
    yield
    bundle.PACKAGE = original
    bundle.clear_cache()


@pytest.fixture
def connection(server: Server, client: Client) -> Any:
    """Return an open connection."""
    return client.connect(server.node())


def start(connection: Any, verb: str, python: str = sys.executable, **options: Any) -> Session:
    """Begin a conversation; what is no option of a session is the request."""
    known = {key: options.pop(key) for key in ("timeouts", "limits") if key in options}
    activate, source = options.pop("activate", None), options.pop("python_source", "the inventory")
    interpreter = Interpreter(python, activate, source)
    return Session(connection, verb, options, interpreter, **{"timeouts": PATIENT, **known})


def test_frames_go_both_ways(connection: Any) -> None:
    """Whatever the content, in order, until the end."""
    with start(connection, "echo", text="é\n$HOME") as session:
        assert session.receive(HANG) == (Untrusted({"request": {"text": "é\n$HOME"}}), b"")
        for size in (0, 1, 70_000, 1 << 20):
            body = os.urandom(size)
            session.send({"size": size, "text": "\0\u2028"}, body)
            assert session.receive(HANG) == (Untrusted({"size": size, "text": "\0\u2028"}), body)
        session.send({"stop": True})
        assert session.receive(HANG) is None
        assert session.receive(HANG) is None
        assert session.ended


def test_several_verbs_on_one_connection(connection: Any) -> None:
    """Conversations do not disturb each other; a connection carries eight at a time, any number in turn."""
    sessions = [start(connection, "echo", n=number) for number in range(8)]
    for number, session in reversed(list(enumerate(sessions))):
        assert session.receive(HANG) == (Untrusted({"request": {"n": number}}), b"")
        session.close()
    for number in range(5):
        with start(connection, "echo", n=number) as session:
            assert session.receive(HANG) == (Untrusted({"request": {"n": number}}), b"")


def test_too_many_channels(serve: Callable[..., Server], client: Client) -> None:
    """The server's limit on sessions is an error of its own."""
    connection = client.connect(serve("MaxSessions 1").node())
    with start(connection, "echo"), pytest.raises(Unreachable) as caught:
        start(connection, "echo")
    assert caught.value.code == "CC-SSH-014"
    assert "MaxSessions" in caught.value.fix


def test_noise_does_not_break_frames(connection: Any) -> None:
    """Megabytes of stray output neither block the verb nor reach the frames; the end of stderr is kept."""
    with start(connection, "noisy", chunks=100) as session:
        assert session.receive(HANG) == (Untrusted({"done": True}), b"body")
        assert session.receive(HANG) is None

        def all_said() -> bool:  # stderr is a stream of its own, and may be behind
            assert list(session.pump()) == []
            return session.stderr.endswith("a stray print\n")

        wait_until(all_said, "the end of stderr")
        assert session.stderr.endswith("o" * 1000 + "a stray print\n")
        assert len(session.stderr) == 64 << 10


def test_errors_of_the_node(connection: Any) -> None:
    """What came before the error is not lost; the code decides the kind."""
    for code, kind in (("CC-SYNC-003", SyncError), ("CC-DISK-001", NodeError), ("CC-PY-002", NoInterpreter)):
        with start(connection, "fail", code=code) as session:
            assert session.receive(HANG) == (Untrusted({"first": 1}), b"")
            with pytest.raises(kind) as caught:
                session.receive(HANG)
            assert (type(caught.value), caught.value.code, caught.value.node) == (kind, code, "n1")
            assert caught.value.message == "it did not work"
            with pytest.raises(kind):  # and again: it stays failed
                session.receive(HANG)


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


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_verb_that_dies(connection: Any, how: str) -> None:
    """The process ends without a word: an error, with what it had said, and the connection lives on."""
    with start(connection, "die", how=how) as session:
        assert session.receive(HANG) == (Untrusted({"first": 1}), b"")
        with pytest.raises(NodeError) as caught:
            session.receive(HANG)
    assert caught.value.code == "CC-RUN-003"
    assert caught.value.evidence == "last words"
    with start(connection, "echo") as session:
        assert session.receive(HANG) is not None


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


def test_activate_that_ends_the_shell_is_named(connection: Any) -> None:
    """Even with a status that means something else; what it said is the evidence."""
    activate = "echo no such module >&2; exit 127"
    with (
        start(connection, "echo", activate=activate) as session,
        pytest.raises(NoInterpreter) as caught,
    ):
        session.receive(HANG)
    assert (caught.value.code, caught.value.evidence) == ("CC-PY-003", "no such module")
    assert "`activate` ended the shell with status 127" in caught.value.message


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


def test_both_sides_write_at_once(connection: Any) -> None:
    """While the node writes more than a window before it reads, sending does not lock up."""
    with start(connection, "talker", frames=20, size=1 << 20) as session:
        session.send({}, b"y" * (8 << 20), timeout=HANG)
        session.send({"stop": True})
        sizes = []
        while (frame := session.receive(HANG)) is not None:
            sizes.append(frame[0].integer("got") or len(frame[1]))
    assert sizes == [1 << 20] * 20 + [8 << 20]


def test_a_node_that_speaks_without_end_is_not_heard_for_ever(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While we send, what nobody asked for is taken in up to a bound, and then the node is named."""
    monkeypatch.setattr(session_module, "MOST_HELD", 4 << 20)
    with start(connection, "burst", frames=64, size=1 << 20) as session:
        with pytest.raises(NodeError, match="without a request") as caught:
            session.send({}, b"y" * (32 << 20), timeout=HANG)
        assert sum(len(body) for _, body in session._frames) < 16 << 20
    assert caught.value.code == "CC-RUN-004"


def test_connection_killed(serve: Callable[..., Server], client: Client) -> None:
    """The server's process for us is killed: noticed by who reads and by who sends, and not by a limit."""
    server = serve()
    connection = client.connect(server.node())
    session = start(connection, "deaf")
    session.receive(HANG)
    for pid in server.children():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConnectionLost) as caught:
        session.receive(HANG)
    assert (caught.value.code, caught.value.node) == ("CC-SSH-015", "n1")
    with pytest.raises(ConnectionLost):
        session.send_heartbeat()
    with pytest.raises(ConnectionLost):
        start(connection, "echo")
    session.close()


def stop_server_side(server: Server) -> None:
    """Freeze what serves us, as a machine that hangs does."""
    for pid in server.children():
        with suppress(ProcessLookupError):  # that of another conversation, which has just ended
            os.kill(pid, signal.SIGSTOP)


def test_frozen_server_is_noticed_by_silence(serve: Callable[..., Server], client: Client) -> None:
    """The connection stands, nothing comes: the silence limit ends it."""
    server = serve()
    connection = client.connect(server.node())
    session = start(connection, "beats", beats=1000, every=0.1, pause=0, limits=SessionLimits(silence=5.0))
    for _ in range(3):
        session.receive(HANG)
    stop_server_side(server)
    with pytest.raises(ConnectionLost) as caught:
        while True:
            session.receive(None)
    assert caught.value.code == "CC-SSH-016"
    session.close()
    connection.close()


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


def test_many_nodes_in_one_thread(server: Server, client: Client) -> None:
    """A selector over sessions: every frame arrives once, in order, and each end shows."""
    sessions = [
        start(client.connect(server.node(f"n{number}")), "burst", frames=50, size=number * 100)
        for number in range(6)
    ]
    selector = selectors.DefaultSelector()
    for session in sessions:
        selector.register(session, selectors.EVENT_READ)
    seen: dict[str, list[int]] = {session.node: [] for session in sessions}
    deadline = time.monotonic() + HANG
    while selector.get_map() and time.monotonic() < deadline:
        for key, _ in selector.select(5):
            session = key.fileobj
            assert isinstance(session, Session)
            for header, _body in session.pump():
                if header.flag("end"):
                    selector.unregister(session)
                else:
                    seen[session.node].append(header.integer("n") or 0)
    selector.close()
    assert seen == {f"n{number}": list(range(50)) for number in range(6)}


def test_pump_raises_after_what_came_before(connection: Any) -> None:
    """A reader of many nodes gets the frames first, then the error."""
    session = start(connection, "fail", code="CC-DISK-001")
    got, deadline = [], time.monotonic() + HANG
    with session, pytest.raises(NodeError):
        while time.monotonic() < deadline:
            for frame in session.pump():
                got.append(frame)  # kept although the loop raises
            time.sleep(0.01)
    assert got == [(Untrusted({"first": 1}), b"")]


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


def test_threads_may_send_together(connection: Any) -> None:
    """Frames of two senders do not mix."""
    session = start(connection, "echo")
    session.receive(HANG)
    bodies = [bytes([65 + number]) * 300_000 for number in range(4)]
    threads = [threading.Thread(target=session.send, args=({}, body)) for body in bodies]
    for thread in threads:
        thread.start()
    got = [session.receive(HANG) for _ in bodies]
    for thread in threads:
        thread.join()
    assert sorted(frame[1] for frame in got if frame) == bodies
    session.close()


def test_closing_ends_the_verb(connection: Any) -> None:
    """The verb's process is gone soon after its session is closed."""
    with start(connection, "echo", pid=True) as session:
        frame = session.receive(HANG)
    assert frame is not None
    process = Path(f"/proc/{int(frame[1])}")
    wait_until(lambda: not process.exists(), "its end")


def test_a_released_interpreter_serves_the_next_verb(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a verb that leaves nothing behind ran in is there for one that can run in it, and for no other."""
    monkeypatch.setattr(session_module, "LEAVE_CLEAN", frozenset({"echo"}))
    monkeypatch.setattr(session_module, "RUN_ANYWHERE", frozenset({"echo"}))

    def pid_of(verb: str = "echo", python: str = sys.executable, *, ended: bool = False) -> bytes:
        with start(connection, verb, python, pid=True) as session:
            frame = session.receive(HANG)
            assert frame is not None
            if ended:
                session.send({"stop": True})
                assert session.receive(HANG) is None
            session.release()
        return frame[1]

    first = pid_of()
    assert pid_of(ended=True) == first
    assert pid_of() == first
    assert pid_of(python="python3") != first  # another one
    with start(connection, "deaf") as session:
        frame = session.receive(HANG)
        assert frame is not None
        assert frame[0].integer("pid") != int(first)
    waiting = idle_interpreters(connection.transport)._idle
    os.kill(int(first), signal.SIGKILL)
    wait_until(lambda: any(idle.channel.at_eof for idle in waiting), "the end of one that waits")
    assert pid_of() != first
