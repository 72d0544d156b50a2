"""Nodes in the network of a practice cluster, whose sockets come from the process that holds it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from servers import Client, Server, make_key, node_named
from waiting import HANG

from clusterctl.errors import ConnectTimeout, Unreachable

RELAY = "nsenter -t 7 -n python /x/clusterctl/lab/netns/relay.py %h %p"


@contextmanager
def holder(folder: Path, *, gives: bool = True) -> Iterator[None]:
    """Stand for a lab's holder; what it gives is a socket of this machine's own network."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as control:
        control.bind(str(folder / "control"))
        control.listen()

        def serve() -> None:
            connection, _ = control.accept()
            with connection, socket.socket() as inside:
                assert connection.recv(100) == b'{"do": "socket"}'
                socket.send_fds(connection, [b"{}"], [inside.fileno()] if gives else [])

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(HANG)


def test_a_node_is_entered_from_inside(server: Server, client: Client, tmp_path: Path) -> None:
    """The files of the lab are where its key is."""
    key = tmp_path / "id_ed25519"
    key.write_bytes(server.client_key.read_bytes())
    key.chmod(0o600)
    with holder(tmp_path):
        connection = client.connect(server.node(proxy_command=RELAY, key=str(key)))
    assert connection.is_connected
    assert connection.transport.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize("running", [True, False])
def test_a_lab_that_gives_no_socket(client: Client, tmp_path: Path, running: bool) -> None:
    """Nothing of how a lab reaches its nodes is of use to anybody."""
    (tmp_path / "mine").mkdir()
    node = node_named("n1", proxy_command=RELAY, key=str(make_key(tmp_path / "mine" / "key")))
    with pytest.raises((Unreachable, ConnectTimeout)) as caught:
        if running:
            with holder(tmp_path / "mine", gives=False):
                client.connect(node)
        else:
            client.connect(node)
    assert caught.value.code == "CC-SSH-013"
    assert caught.value.fix.startswith("clusterctl lab heal --name mine n1")
    assert "relay" not in caught.value.fix + caught.value.message
