"""A peer's tries to reach the hub: what ends one, what ends them all, and what is left after a stop."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from memory_network import Network, SteppedLoop

from clusterctl.node.gang.channel import JOIN_LIMIT, RETRY_PAUSE, TRY_LIMIT, Connector, SecureChannel
from clusterctl.protocol.ranks import Slot

pytestmark = pytest.mark.unit

HUB, PORT = "10.0.0.1", 40001
SPEC: dict[str, Any] = {
    "run": "j-1",
    "node": "gpu02",
    "nnodes": 2,
    "address": "10.0.0.2",
    "nodes": ["gpu01", "gpu02"],
}
NONCE = "ab" * 16


class Tries:
    """A connector on a network in memory, and what came of it."""

    def __init__(self, network: Network) -> None:
        self.network, self.loop = network, SteppedLoop(network, SPEC["address"])
        self.channels: list[SecureChannel] = []
        self.reasons: list[str] = []
        loop, spec = cast("Any", self.loop), cast("Any", SPEC)
        self.connector = Connector(loop, spec, b"secret", Slot(1), self.channels.append, self.reasons.append)

    def listen(self) -> Any:
        """Let something else listen where the hub should."""
        self.network.current_host = HUB
        sock = socket.socket()
        sock.bind((HUB, PORT))
        sock.listen(1)
        return sock

    def connect(self) -> None:
        """Begin."""
        self.loop.call(lambda: self.connector.connect(HUB, PORT))
        self.settle()

    def settle(self) -> None:
        """Read what has come."""
        while self.loop.serve():
            pass

    def run_next(self) -> None:
        """Go on to the next moment."""
        following = self.loop.next_moment()
        assert following is not None
        self.network.now = max(self.network.now, following[0])
        self.loop.run_moment(following[1])
        self.settle()


@pytest.fixture
def tries() -> Iterator[Tries]:
    """Give a connector that has not begun."""
    network = Network()
    with network.replace_sockets():
        yield Tries(network)


def test_a_refused_connection_is_tried_again_until_the_deadline(tries: Tries) -> None:
    """It is refused at once, again after each pause, and reported once with its reason."""
    tries.connect()
    while not tries.reasons:
        assert tries.loop.next_moment() is not None
        tries.run_next()
    assert tries.reasons == ["Connection refused"]
    assert JOIN_LIMIT - 2 * RETRY_PAUSE <= tries.network.now < JOIN_LIMIT
    assert (tries.loop.moments, tries.network.sockets) == ({}, {})


@pytest.mark.parametrize("sent", [b"", b'{"nonce": "%s"}\n' % NONCE.encode()], ids=["silent", "no proof"])
def test_one_limit_holds_for_a_whole_try(tries: Tries, sent: bytes) -> None:
    """Whatever has come by then: nothing, or only the question."""
    server = tries.listen()
    tries.connect()
    conn = server.accept()[0]
    tries.network.now = TRY_LIMIT - 1.0
    conn.send(sent)
    tries.settle()
    assert tries.loop.next_moment() == (TRY_LIMIT, "join")
    tries.run_next()
    assert conn.at_end
    assert tries.loop.moments["join"][0] == TRY_LIMIT + RETRY_PAUSE
    while not tries.reasons:
        tries.run_next()
    assert tries.reasons == ["no answer"]


def test_a_hub_without_the_token_is_named_as_such(tries: Tries) -> None:
    """What the peer sends proves the token; what comes back does not."""
    server = tries.listen()
    tries.connect()
    while not tries.reasons:
        while server.queue:
            conn = server.accept()[0]
            conn.send(b'{"nonce": "%s"}\n' % NONCE.encode())
            tries.settle()
            fields = json.loads(conn.inbox)
            assert list(fields) == ["slot", "node", "nonce", "proof"]
            conn.send(b'{"proof": "%s"}\n' % fields["proof"].encode())
            tries.settle()
        if not tries.reasons:
            tries.run_next()
    assert tries.reasons == ["it does not have the token of this run"]
    assert tries.channels == []


@pytest.mark.parametrize("sent", [b"", b'{"nonce": "%s"}\n' % NONCE.encode()], ids=["silent", "no proof"])
def test_a_stop_during_a_try_ends_it(tries: Tries, sent: bytes) -> None:
    """The connection is closed and nothing is tried again, also when the other side closes it later."""
    server = tries.listen()
    tries.connect()
    conn = server.accept()[0]
    conn.send(sent)
    tries.settle()
    tries.loop.call(tries.connector.stop)
    assert conn.at_end
    conn.close()
    tries.settle()
    assert (tries.loop.moments, tries.reasons) == ({}, [])
