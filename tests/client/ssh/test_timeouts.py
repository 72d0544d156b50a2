"""Logins that a server has no room for are tried again, refusals are not, and it is reported when that did not help."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from listening import listener
from servers import Client, Server, node_named

from clusterctl.client.rpc.cluster import fan_out
from clusterctl.client.ssh.timeouts import retry_while_busy
from clusterctl.errors import AuthenticationFailed, ServerBusy, Unreachable
from clusterctl.specs.inventory.model import Node


def test_logins_that_max_startups_drops_get_in_later(serve: Callable[..., Server], client: Client) -> None:
    """Two strangers hold the only two places for a login; nodes are dropped until they leave."""
    server = serve("MaxStartups 2:100:2")
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for stranger in strangers:
        assert stranger.recv(4) == b"SSH-"
    dropped = []

    def enter(node: Node) -> object:
        try:
            return client.connect(node)
        except ServerBusy:
            dropped.append(node.name)
            if len(dropped) == 10:
                for stranger in strangers:
                    stranger.close()
            raise

    nodes = [server.node(f"n{place}") for place in range(8)]
    outcomes = list(fan_out(nodes, lambda node: retry_while_busy(lambda: enter(node))))
    assert [outcome.error for outcome in outcomes if not outcome.ok] == []
    assert len(dropped) >= 10


@pytest.mark.parametrize("said", [b"", b"Exceeded MaxStartups\r\n", b"Not allowed at this time\r\n"])
def test_a_timeout_ends_the_wait_and_is_reported(client: Client, said: bytes) -> None:
    """A server that never has room: bounded, counted, and with a way out."""
    met = []

    def answer(connection: socket.socket) -> None:
        met.append(connection)
        connection.sendall(said)
        connection.close()

    with listener(answer) as port, pytest.raises(ServerBusy) as caught:
        retry_while_busy(lambda: client.connect(node_named("n1", port=port)), limit=1.0)
    assert caught.value.code == "CC-SSH-006"
    assert f"tried {len(met)} times in" in caught.value.evidence
    assert said.decode().strip() in caught.value.evidence
    assert 2 <= len(met) <= 8
    assert "MaxStartups" in caught.value.fix


def test_refusals_and_closed_ports_are_not_tried_again(server: Server, client: Client) -> None:
    """What another try cannot fix fails at once."""
    tries = []

    def enter(node: Node) -> object:
        tries.append(node)
        return client.connect(node)

    with pytest.raises(AuthenticationFailed):
        retry_while_busy(lambda: enter(server.node(key=None)))
    with pytest.raises(Unreachable):
        retry_while_busy(lambda: enter(node_named("n1", port=1)))
    assert len(tries) == 2
