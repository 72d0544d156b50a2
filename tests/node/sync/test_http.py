"""Servers whose answers do not begin as they should: a request to them ends, with the reason."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.sync.remote import http

Deed = Callable[[socket.socket, threading.Event], None]


def drip(connection: socket.socket, ended: threading.Event) -> None:
    """Send a byte of a header at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Header: ")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def continue_without_end(connection: socket.socket, ended: threading.Event) -> None:
    """Send one preliminary answer after the other."""
    while not ended.wait(0.05):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def compress(connection: socket.socket, ended: threading.Event) -> None:
    """Send what was not requested: a packed file."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx")
    ended.wait()


@contextmanager
def serving(deed: Deed) -> Iterator[str]:
    """Answer each connection by a deed; yields the URL."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            deed(connection, ended)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/file"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("deed", "code", "reason"),
    [
        (drip, "CC-STAGE-014", "its headers do not end"),
        (continue_without_end, "CC-STAGE-014", "its headers do not end"),
        (compress, "CC-STAGE-015", "only with Content-Encoding: gzip"),
    ],
)
def test_a_server_that_does_not_answer_as_it_should_is_left(
    monkeypatch: pytest.MonkeyPatch, deed: Deed, code: str, reason: str
) -> None:
    """A byte that comes does not extend the time."""
    monkeypatch.setattr(http, "HEADERS_LIMIT", 1.0)
    monkeypatch.setattr(http, "ATTEMPTS", 1)
    monkeypatch.setenv("no_proxy", "*")
    with serving(deed) as url:
        requests = http.Http({})
        with pytest.raises(VerbError, match=reason) as caught:
            requests.repeat(lambda: requests.get(url, 0, 1))
    assert caught.value.code == code
