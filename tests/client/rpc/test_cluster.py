"""The open connections of one command, used from many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from servers import Server, free_port

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.errors import Unreachable

AT_ONCE = 6


def ask_at_once(cluster: Cluster, node: Any) -> list[Any]:
    """Ask for a node's connection from many threads; gives the connections, or the errors."""
    barrier = threading.Barrier(AT_ONCE)

    def ask(_: int) -> Any:
        barrier.wait()
        try:
            return cluster.connection(node)
        except Unreachable as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, range(AT_ONCE)))


@pytest.mark.parametrize("early", [False, True])
def test_a_node_is_logged_in_to_once(serve: Callable[..., Server], early: bool) -> None:
    """Steps that need the same node at the same time share its connection, and so they do after it has died."""
    server = serve()
    node = server.node(config="none")
    with Cluster(lambda _: None) as cluster:
        if early:
            cluster.open_early([node])
        first = ask_at_once(cluster, node)
        first[0].close()
        second = ask_at_once(cluster, node)

        assert [len({id(one) for one in given}) for given in (first, second)] == [1, 1]
        assert first[0] is not second[0]
        assert second[0].is_connected
        assert server.log.count("Accepted publickey") == 2


def test_a_failure_is_told_and_then_tried_again(serve: Callable[..., Server]) -> None:
    """What came of an early try is told at the first use; the next use tries anew."""
    port = free_port()
    server = serve()
    node = server.node(config="none", port=port)
    server.known_hosts.write_text(f"[127.0.0.1]:{port} {server.host_key}\n")  # it is read once
    with Cluster(lambda _: None) as cluster:
        cluster.open_early([node])
        assert {type(one) for one in ask_at_once(cluster, node)} == {Unreachable}
        serve(port=port)
        assert cluster.connection(node).is_connected, "somebody answers there now"


def test_a_node_that_has_logged_in_is_shown_at_what_follows(serve: Callable[..., Server]) -> None:
    """One whose turn has not come waits for it; one that logs in again in the middle goes on with its work."""
    node = serve().node(config="none")
    with Cluster(lambda _: None) as cluster:
        cluster.connection(node)
        first = cluster.steps.find(node.name)
        cluster.steps.set(node.name, "copying")
        cluster.forget(node)
        cluster.connection(node)
        second = cluster.steps.find(node.name)

    assert first is not None and second is not None
    assert (first.description, second.description) == ("waiting for its turn", "copying")
