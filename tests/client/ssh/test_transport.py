"""Logins that do not wait for what they need not, against paramiko's own server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import paramiko
import pytest
from paramiko.common import MSG_SERVICE_ACCEPT
from waiting import HANG

from clusterctl.client.ssh.transport import Transport, can_pipeline

KEY, OTHER = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


class Door(paramiko.ServerInterface):
    """Lets in who has the key."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - paramiko's signature
        """Compare the key."""
        return paramiko.AUTH_SUCCESSFUL if key == KEY else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - the same
        """Name the methods."""
        return "publickey"


class Holding(paramiko.Transport):
    """A server whose answer to the request for a service comes only after it has something else to send."""

    held: Any = None

    def _send_message(self, data: Any) -> None:
        if data.asbytes()[0] == MSG_SERVICE_ACCEPT:
            self.held = data
            return
        if self.held is not None:
            held, self.held = self.held, None
            super()._send_message(held)  # type: ignore[misc]  # paramiko's own, not in its type information
        super()._send_message(data)  # type: ignore[misc]  # the same


@pytest.fixture
def client() -> Iterator[Transport]:
    """Connect to such a server."""
    with ExitStack() as stack:
        near, far = socket.socketpair()
        server, transport = Holding(far), Transport(near)
        for one in (server, transport):
            stack.callback(one.close)
        server.add_server_key(OTHER)
        server.start_server(threading.Event(), Door())  # without an event it would wait for the client
        transport.auth_timeout = HANG
        transport.start_client(timeout=HANG)
        yield transport


def test_the_key_is_sent_before_the_service_is_accepted(client: Transport) -> None:
    """It would wait for ever if it waited for that; a refused key is followed by the next one."""
    with pytest.raises(paramiko.AuthenticationException):
        client.auth_publickey("ann", OTHER)
    assert client.auth_publickey("ann", KEY) == []
    assert client.is_authenticated()


def test_who_waits_for_the_server() -> None:
    """A signature algorithm for RSA is of the server's choice."""
    assert can_pipeline(KEY)
    assert not can_pipeline(paramiko.RSAKey.generate(2048))
