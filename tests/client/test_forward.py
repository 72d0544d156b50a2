"""Connections to a port of a node by SSH's port forwarding, behind a real sshd."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest
from servers import Client, Server, closed_port

from clusterctl.client.forward import PortForward, PortRefusedError
from clusterctl.errors import ConnectionLost, Unreachable


def forward_to(client: Client, server: Server, port: int, address: str | None = None) -> PortForward:
    """Make a forward; without an address the node reports that none takes a connection."""

    def find_address() -> str:
        if address is None:
            raise PortRefusedError("nothing listens")
        return address

    return PortForward(client.connect(server.node()).transport, "n1", port, find_address)


def exchange(forward: PortForward, data: bytes) -> bytes:
    """Send some bytes through a forward, end, and return all that comes back."""
    ours, theirs = socket.socketpair()
    with ours:
        carrying = threading.Thread(target=forward.carry, args=(theirs,))
        carrying.start()
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        received = ours.makefile("rb").read()
        carrying.join(60)
        theirs.close()
    return received


def test_each_direction_has_its_own_end(server: Server, client: Client) -> None:
    """A program that answers at the end of the question is heard to the end of the answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                with listener.accept()[0] as call:
                    call.sendall(call.makefile("rb").read()[::-1] + bytes(300_000))

        answering = threading.Thread(target=answer)
        answering.start()
        forward = forward_to(client, server, listener.getsockname()[1])
        assert exchange(forward, b"abc") == b"cba" + bytes(300_000)
        assert exchange(forward, b"de") == b"ed" + bytes(300_000)
        answering.join(60)


def test_a_program_that_listens_on_another_address_is_reached(server: Server, client: Client) -> None:
    """The node is asked for the address once."""
    with socket.create_server(("127.0.0.7", 0)) as listener:
        forward = forward_to(client, server, listener.getsockname()[1], "127.0.0.7")

        def answer() -> None:
            listener.accept()[0].close()

        answering = threading.Thread(target=answer)
        answering.start()
        assert exchange(forward, b"") == b""
        assert forward.address == "127.0.0.7"
        answering.join(60)


def test_a_port_that_nothing_listens_on_is_refused(server: Server, client: Client) -> None:
    """One connection is refused, and the next can be carried."""
    with pytest.raises(PortRefusedError, match="nothing listens"):
        forward_to(client, server, closed_port()).carry(socket.socket())


def test_an_sshd_that_forbids_forwarding_is_named(serve: Callable[..., Server], client: Client) -> None:
    """Whether something listens or not."""
    server = serve("AllowTcpForwarding no")
    with pytest.raises(Unreachable) as caught:
        forward_to(client, server, closed_port()).carry(socket.socket())
    assert caught.value.code == "CC-SSH-032"
    assert "AllowTcpForwarding" in caught.value.fix


def test_a_connection_that_died_ends_the_forward(server: Server, client: Client) -> None:
    """At the next connection."""
    forward = forward_to(client, server, closed_port())
    forward.transport.close()
    with pytest.raises(ConnectionLost):
        forward.carry(socket.socket())
