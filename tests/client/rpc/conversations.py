"""Conversations with the same outcome over each transport: a test module takes them in with a connection of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from servers import PATIENT, Client, Server
from waiting import HANG, wait_until

from clusterctl.client.rpc import bundle
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.errors import (
    ConnectionLost,
    NodeError,
    NoInterpreter,
    SyncError,
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
    _forget_sources()
    yield
    bundle.PACKAGE = original
    _forget_sources()


def _forget_sources() -> None:
    """Read and pack again what is sent."""
    for cached in vars(bundle).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def start(connection: Any, verb: str, python: str = sys.executable, **options: Any) -> Session:
    """Begin a conversation; what is no option of a session is the request."""
    known = {key: options.pop(key) for key in ("timeouts", "limits") if key in options}
    activate, source = options.pop("activate", None), options.pop("python_source", "the inventory")
    interpreter = Interpreter(python, activate, source)
    return Session(connection, verb, options, interpreter, **{"timeouts": PATIENT, **known})


def stop_server_side(server: Server) -> None:
    """Freeze what serves us, as a machine that hangs does."""
    for pid in server.children():
        with suppress(ProcessLookupError):  # that of another conversation, which has just ended
            os.kill(pid, signal.SIGSTOP)


class Conversations:
    """The tests; a module's `connection` is what they are about."""

    def test_frames_go_both_ways(self, connection: Any) -> None:
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

    def test_several_verbs_on_one_connection(self, connection: Any) -> None:
        """Conversations do not disturb each other; a connection carries eight at a time, any number in turn."""
        sessions = [start(connection, "echo", n=number) for number in range(8)]
        for number, session in reversed(list(enumerate(sessions))):
            assert session.receive(HANG) == (Untrusted({"request": {"n": number}}), b"")
            session.close()
        for number in range(5):
            with start(connection, "echo", n=number) as session:
                assert session.receive(HANG) == (Untrusted({"request": {"n": number}}), b"")

    def test_noise_does_not_break_frames(self, connection: Any) -> None:
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

    def test_errors_of_the_node(self, connection: Any) -> None:
        """What came before the error is not lost; the code decides the kind."""
        for code, kind in (
            ("CC-SYNC-003", SyncError),
            ("CC-DISK-001", NodeError),
            ("CC-PY-002", NoInterpreter),
        ):
            with start(connection, "fail", code=code) as session:
                assert session.receive(HANG) == (Untrusted({"first": 1}), b"")
                with pytest.raises(kind) as caught:
                    session.receive(HANG)
                assert (type(caught.value), caught.value.code, caught.value.node) == (kind, code, "n1")
                assert caught.value.message == "it did not work"
                with pytest.raises(kind):  # and again: it stays failed
                    session.receive(HANG)

    @pytest.mark.parametrize("how", ["exit", "kill"])
    def test_verb_that_dies(self, connection: Any, how: str) -> None:
        """The process ends without a word: an error, with what it had said, and the connection lives on."""
        with start(connection, "die", how=how) as session:
            assert session.receive(HANG) == (Untrusted({"first": 1}), b"")
            with pytest.raises(NodeError) as caught:
                session.receive(HANG)
        assert caught.value.code == "CC-RUN-003"
        assert caught.value.evidence == "last words"
        with start(connection, "echo") as session:
            assert session.receive(HANG) is not None

    def test_activate_that_ends_the_shell_is_named(self, connection: Any) -> None:
        """Even with a status that means something else; what it said is the evidence."""
        activate = "echo no such module >&2; exit 127"
        with (
            start(connection, "echo", activate=activate) as session,
            pytest.raises(NoInterpreter) as caught,
        ):
            session.receive(HANG)
        assert (caught.value.code, caught.value.evidence) == ("CC-PY-003", "no such module")
        assert "`activate` ended the shell with status 127" in caught.value.message

    def test_both_sides_write_at_once(self, connection: Any) -> None:
        """While the node writes more than a window before it reads, sending does not lock up."""
        with start(connection, "talker", frames=20, size=1 << 20) as session:
            session.send({}, b"y" * (8 << 20), timeout=HANG)
            session.send({"stop": True})
            sizes = []
            while (frame := session.receive(HANG)) is not None:
                sizes.append(frame[0].integer("got") or len(frame[1]))
        assert sizes == [1 << 20] * 20 + [8 << 20]

    def test_connection_killed(self, serve: Callable[..., Server], client: Client) -> None:
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

    def test_frozen_server_is_noticed_by_silence(self, serve: Callable[..., Server], client: Client) -> None:
        """The connection stands, nothing comes: the silence limit ends it."""
        server = serve()
        connection = client.connect(server.node())
        session = start(
            connection, "beats", beats=1000, every=0.1, pause=0, limits=SessionLimits(silence=5.0)
        )
        for _ in range(3):
            session.receive(HANG)
        stop_server_side(server)
        with pytest.raises(ConnectionLost) as caught:
            while True:
                session.receive(None)
        assert caught.value.code == "CC-SSH-016"
        session.close()
        connection.close()

    def test_pump_raises_after_what_came_before(self, connection: Any) -> None:
        """A reader of many nodes gets the frames first, then the error."""
        session = start(connection, "fail", code="CC-DISK-001")
        got, deadline = [], time.monotonic() + HANG
        with session, pytest.raises(NodeError):
            while time.monotonic() < deadline:
                for frame in session.pump():
                    got.append(frame)  # kept although the loop raises
                time.sleep(0.01)
        assert got == [(Untrusted({"first": 1}), b"")]

    def test_threads_may_send_together(self, connection: Any) -> None:
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

    def test_closing_ends_the_verb(self, connection: Any) -> None:
        """The verb's process is gone soon after its session is closed."""
        with start(connection, "echo", pid=True) as session:
            frame = session.receive(HANG)
        assert frame is not None
        process = Path(f"/proc/{int(frame[1])}")
        wait_until(lambda: not process.exists(), "its end")
