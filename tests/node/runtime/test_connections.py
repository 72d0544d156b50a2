"""Connections whose two ends prove a secret to each other: the bytes of it, and who is sent away."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from waiting import HANG, wait_until

from clusterctl.node.diagnose.mesh import Credentials, MeshListener
from clusterctl.node.gang.channel import Listener
from clusterctl.node.runtime.connections import (
    ACCEPTS_PER_TURN,
    MAX_UNSENT,
    MAX_WHY,
    AuthenticatingCaller,
    AuthenticatingListener,
    ChannelError,
    LineSocket,
    is_same_proof,
    listen,
    port_range,
    prove,
    read_nonce,
)
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.protocol.untrusted import Untrusted

TOKEN, NONCE = b"secret", "ab" * 16
LIMIT, MAX_PENDING = 0.5, 3


def written_out(*context: object) -> str:
    """Make a proof as it has always been made."""
    return hmac.new(TOKEN, json.dumps(list(context)).encode(), hashlib.sha256).hexdigest()


class Looping:
    """A loop in a thread, until `close`."""

    def __init__(self) -> None:
        self.loop = Loop()
        self._thread = threading.Thread(target=self.loop.run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self.loop.after(0.01, "tick", self._tick)
        self._thread.start()

    def _tick(self) -> None:
        self.loop.after(0.01, "tick", self._tick)

    def close(self) -> None:
        """End."""
        self.loop.stop()
        self._thread.join(HANG)


@pytest.fixture
def looping() -> Iterator[Looping]:
    """Give a loop that is still to be started."""
    looping = Looping()
    yield looping
    looping.close()


class Door:
    """A listener that lets in who knows the token, and reports hello to those."""

    def __init__(self, looping: Looping, limit: float = HANG) -> None:
        self.proven: list[LineSocket] = []
        self.listener = AuthenticatingListener(
            looping.loop, listen("127.0.0.1", port_range(None)), MAX_PENDING, limit, self._on_answer
        )
        self.listener.open()

    def _on_answer(self, line_socket: LineSocket, nonce: str, answer: Untrusted) -> None:
        if not is_same_proof(answer.text("proof"), prove(TOKEN, "call", nonce, read_nonce(answer))):
            raise ChannelError("a stranger")
        self.proven.append(line_socket)
        line_socket.send_line({"proof": prove(TOKEN, "listen", nonce, answer.text("nonce"))})


def knock(port: int) -> socket.socket:
    """Connect."""
    return socket.create_connection(("127.0.0.1", port), HANG)


def read_line(conn: socket.socket) -> Any:
    """Read a line."""
    return json.loads(conn.makefile("rb").readline())


def is_over(conn: socket.socket) -> bool:
    """Wait for the end, and tell that nothing came before it."""
    with suppress(ConnectionResetError):
        return conn.recv(1) == b""
    return True


def test_the_bytes_of_a_gangs_meeting(looping: Looping) -> None:
    """Agents of this version and recorded ones send the same."""
    spec = {"run": "j-1", "nnodes": 2, "master_addr": "127.0.0.1", "nodes": ["gpu01", "gpu02"]}
    listener = Listener(looping.loop, spec, TOKEN)
    listener.open(lambda _: True)
    looping.start()
    with closing(knock(listener.port)) as conn:
        asked = read_line(conn)
        assert list(asked) == ["nonce"]
        context = ("j-1", 1, "gpu02", asked["nonce"], NONCE)
        proof = written_out("the peer is who it says", *context)
        conn.sendall(
            json.dumps({"slot": 1, "node": "gpu02", "nonce": NONCE, "proof": proof}).encode() + b"\n"
        )
        assert read_line(conn) == {"proof": written_out("the hub is who it says", *context)}


def test_the_bytes_of_a_call_of_the_mesh(looping: Looping) -> None:
    """The listener reports besides from where it was called."""
    sock = listen("127.0.0.1", port_range(None))
    MeshListener(looping.loop, sock, Credentials("n2", TOKEN))
    looping.start()
    with closing(knock(sock.getsockname()[1])) as conn:
        context = ("n1", "n2", read_line(conn)["nonce"], NONCE)
        fields = {"name": "n1", "nonce": NONCE, "proof": written_out("I call", *context), "bulk": False}
        conn.sendall(json.dumps(fields).encode() + b"\n")
        assert read_line(conn) == {"proof": written_out("I listen", *context), "seen": "127.0.0.1"}


def test_a_caller_and_a_listener_meet(looping: Looping) -> None:
    """Each has proved the token to the other before either hands the connection over."""
    door, met, gone = Door(looping), list[LineSocket](), list[str]()

    def answer(nonce: str, own: str) -> tuple[dict[str, object], str]:
        return {"nonce": own, "proof": prove(TOKEN, "call", nonce, own)}, prove(TOKEN, "listen", nonce, own)

    caller = AuthenticatingCaller(
        looping.loop, answer, lambda line_socket, _: met.append(line_socket), gone.append
    )
    caller.connect(("127.0.0.1", door.listener.port), "127.0.0.1", (HANG, HANG))
    looping.start()
    wait_until(lambda: bool(met), "the meeting")
    assert met == [caller.line_socket]
    assert caller.connected_at is not None
    assert len(door.proven) == 1
    assert gone == []


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not JSON"),
        (b'{"nonce": "1"}\n', "no nonce"),
        (b'{"nonce": "%s"}\n{"proof": "%s"}\n' % (NONCE.encode(), b"0" * 64), "does not have the token"),
        (b"x" * 2000, "an endless line"),
        (b"", "does not answer within 0.5 s"),
        (None, "the connection ended"),
    ],
)
def test_a_caller_reports_who_answered(looping: Looping, sent: bytes | None, why: str) -> None:
    """Something else, someone without the token, no one, or one that leaves; a wrong answer is not silence."""
    ends: list[str] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        caller = AuthenticatingCaller(looping.loop, lambda *_: ({}, "a proof"), lambda *_: None, ends.append)
        caller.connect(server.getsockname(), "", (HANG, LIMIT if sent == b"" else HANG))
        looping.start()
        conn = server.accept()[0]
        with closing(conn):
            conn.sendall(sent or b"")
            if sent is None:
                conn.shutdown(socket.SHUT_WR)
            wait_until(lambda: bool(ends), "the end")
    assert len(ends) == 1
    assert why in ends[0]
    assert caller.line_socket.malformed == bool(sent)


def test_a_caller_reports_that_it_was_refused(looping: Looping) -> None:
    """At once, and not after the limit."""
    ends: list[str] = []
    caller = AuthenticatingCaller(looping.loop, lambda *_: ({}, ""), lambda *_: None, ends.append)
    caller.connect(("127.0.0.1", 1), "", (10 * HANG, HANG))
    looping.start()
    wait_until(lambda: bool(ends), "the end")
    assert (ends, caller.connected_at) == (["Connection refused"], None)


@pytest.mark.parametrize("sent", [b"x" * 5000, b"[]\n", b"{}\n", b'{"nonce": "00", "proof": "00"}\n'])
def test_a_stranger_learns_nothing_but_a_nonce(looping: Looping, sent: bytes) -> None:
    """Endless lines and wrong proofs end the connection, and the next one is asked all the same."""
    door = Door(looping)
    looping.start()
    for _ in range(2 * MAX_PENDING):
        with closing(knock(door.listener.port)) as conn:
            assert len(read_line(conn)["nonce"]) == 32
            conn.sendall(sent)
            assert is_over(conn)
    assert door.proven == []


def test_who_proves_the_token_drop_by_drop_is_left(looping: Looping) -> None:
    """There are few places: no one keeps one by sending a byte now and then, or nothing."""
    door = Door(looping, LIMIT)
    looping.start()
    with closing(knock(door.listener.port)) as dripping, closing(knock(door.listener.port)) as silent:
        read_line(dripping), read_line(silent)
        dripping.settimeout(0.05)
        until = time.monotonic() + HANG
        with suppress(ConnectionError):
            while time.monotonic() < until:
                dripping.sendall(b" ")
                with suppress(TimeoutError):
                    assert dripping.recv(1) == b""
                    break
        assert time.monotonic() < until
        assert is_over(silent)


def test_the_oldest_stranger_makes_room(looping: Looping) -> None:
    """No more of them are pending than there is room for, long before their time is up."""
    door = Door(looping, 10 * HANG)
    looping.start()
    with ExitStack() as stack:
        crowd = [stack.enter_context(closing(knock(door.listener.port))) for _ in range(MAX_PENDING + 2)]
        for conn in crowd[:2]:
            read_line(conn)
            assert is_over(conn)
        assert len(read_line(crowd[-1])["nonce"]) == 32
        assert len(door.listener._pending) <= MAX_PENDING


def test_what_comes_too_early_is_not_lost_but_refused() -> None:
    """A connection that is given to a thread has received nothing that the thread would miss."""
    loop, ends = Loop(), list[str]()
    ours, other = socket.socketpair()
    line_socket = LineSocket(loop, ours, lambda _: line_socket.detach() and None, ends.append)
    with closing(other):
        other.sendall(b"{}\nmore")
        loop.after(HANG, "late", loop.stop)
        line_socket._on_close = lambda why: (ends.append(why), loop.stop())
        loop.run()
    assert ends == ["it sent more than requested"]


@pytest.mark.parametrize("idle", [False, True])
def test_an_idle_limit_begins_again_with_each_byte(idle: bool) -> None:
    """Whoever goes on sending is not timed out; any other limit is not moved by a byte now and then."""
    loop = Loop()
    ours, other = socket.socketpair()
    line_socket = LineSocket(loop, ours, lambda _: None, lambda _: None)
    line_socket.set_timeout("no byte", HANG, idle=idle)
    before = {name: moment for name, (moment, _) in loop._timers.items()}
    with closing(other):
        other.sendall(b"x")
        loop._run_once()
    after = {name: moment for name, (moment, _) in loop._timers.items()}
    line_socket.close()
    assert (before != after) == idle
    assert loop._timers == {}


@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
def test_a_process_that_is_gone_was_there_until_its_connection_broke(writes: bool) -> None:
    """With something unread at its end the kernel resets the connection: that shows when it ended, as a close does."""
    with closing(listen("127.0.0.1", port_range(None))) as server:
        conn = socket.create_connection(server.getsockname())
        wait_until(lambda: select.select([server], [], [], 0)[0], "the connection")
        other, _ = server.accept()
        reasons: list[str] = []
        loop = Loop()

        def on_close(why: str) -> None:
            reasons.append(why)
            loop.stop()

        line_socket = LineSocket(loop, conn, lambda _: None, on_close)
        line_socket.last_seen = 0.0
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        wait_until(lambda: select.select([conn], [], [], 0)[0], "the reset")
        if writes:
            loop.unwatch(conn.fileno())
            line_socket.send(b"ended\n")
        else:
            loop.run()

        assert reasons in (["Connection reset by peer"], ["Broken pipe"])
        assert line_socket.last_seen > 0.0


def test_a_listener_that_closes_leaves_no_caller_waiting() -> None:
    """Who has not proved anything by then is sent away, and no timer is left."""
    loop = Loop()
    sock = listen("127.0.0.1", port_range(None))
    listener = AuthenticatingListener(loop, sock, MAX_PENDING, HANG, lambda *_: None)
    listener.open()
    with closing(knock(listener.port)) as conn:
        loop._run_once()
        assert len(read_line(conn)["nonce"]) == 32
        listener.close()
        assert is_over(conn)
    assert loop._timers == {}


def test_a_flood_of_connections_leaves_time_for_the_rest() -> None:
    """One turn of the loop takes a few of them, the next turn more."""
    loop = Loop()
    listener = AuthenticatingListener(loop, listen("127.0.0.1", port_range(None)), 100, HANG, lambda *_: None)
    listener.open()
    with ExitStack() as stack:
        for _ in range(ACCEPTS_PER_TURN + 4):
            stack.enter_context(closing(knock(listener.port)))
        loop._run_once()
        assert len(listener._pending) == ACCEPTS_PER_TURN
        loop._run_once()
        assert len(listener._pending) == ACCEPTS_PER_TURN + 4
        listener.close()


def test_a_listener_without_a_free_file_listens_again() -> None:
    """Who waits would keep the listener readable: it looks away for a moment."""
    loop, sock = Loop(), listen("127.0.0.1", port_range(None))

    class Full:
        """A socket of a process that has all its files open."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sock, name)

        def accept(self) -> Any:
            """Fail as the kernel does."""
            raise OSError(errno.EMFILE, "too many open files")

    listener = AuthenticatingListener(loop, Full(), MAX_PENDING, HANG, lambda *_: None)  # type: ignore[arg-type]  # as much of one as it needs
    listener.open()
    with closing(knock(listener.port)) as conn:
        loop._run_once()
        assert loop._readers == {}
        listener._socket = sock
        ((_, again),) = loop._timers.values()
        again()
        loop._run_once()
        assert len(read_line(conn)["nonce"]) == 32
        listener.close()


def test_one_that_is_taken_over_and_then_breaks_is_not_pending() -> None:
    """It needs no place among those who have proved nothing."""
    loop = Loop()

    def take_over(line_socket: LineSocket, _: str, __: Untrusted) -> None:
        line_socket.trust(lambda _: None, lambda _: None, 100)
        raise ChannelError("it has left meanwhile")

    listener = AuthenticatingListener(
        loop, listen("127.0.0.1", port_range(None)), MAX_PENDING, HANG, take_over
    )
    listener.open()
    with closing(knock(listener.port)) as conn:
        loop._run_once()
        conn.sendall(b"{}\n")
        loop._run_once()
        assert listener._pending == {}
        listener.close()


def test_a_nonce_that_is_there_at_once_is_answered_before_the_rest(looping: Looping) -> None:
    """What is missing then is the proof, not an answer."""
    ends: list[str] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        caller = AuthenticatingCaller(looping.loop, lambda *_: ({}, "a proof"), lambda *_: None, ends.append)
        caller.connect(server.getsockname(), "", (HANG, LIMIT))
        with closing(server.accept()[0]) as conn:
            conn.sendall(b'{"nonce": "%s"}\n' % NONCE.encode())
            wait_until(lambda: select.select([caller.line_socket.conn], [], [], 0)[0], "the nonce")
            looping.start()
            wait_until(lambda: bool(ends), "the end")
    assert ends == [f"it accepts connections but fails authentication within {LIMIT:g} s"]
    assert caller.connected_at is not None


def test_the_other_side_must_read() -> None:
    """What it leaves unread is bounded, and so is what it can make us report."""
    loop, ends = Loop(), list[str]()
    ours, other = socket.socketpair()
    line_socket = LineSocket(loop, ours, lambda _: None, ends.append)
    with closing(other):
        line_socket.send(bytes(MAX_UNSENT))
        assert (ends, line_socket.closed) == ([], False)
        with pytest.raises(ChannelError):
            line_socket.detach()  # what is unsent would be lost
        line_socket.send(bytes(MAX_UNSENT))
    assert (ends, line_socket.closed) == (["it does not read"], True)


def test_a_reason_is_short_and_comes_while_the_connection_is_open() -> None:
    """The kernel still shows what it knows of it."""
    ends: list[tuple[int, bool]] = []
    ours, other = socket.socketpair()

    def refuse(_: bytes) -> None:
        raise ChannelError("x" * 1000)

    loop = Loop()
    line_socket = LineSocket(
        loop, ours, refuse, lambda why: ends.append((len(why), line_socket.conn.fileno() >= 0))
    )
    with closing(other):
        other.sendall(b"{}\n")
        loop._run_once()
    assert ends == [(MAX_WHY, True)]
    assert ours.fileno() < 0
