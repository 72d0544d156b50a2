"""What nodes report of processes that wait for the next launch."""

from __future__ import annotations

from clusterctl.plans.cleanup import WarmServer, may_be_warm, parse_warm_servers
from clusterctl.protocol.untrusted import Untrusted

ENTRY = {"pid": 7, "python": "/opt/python", "torch": "2.13.0", "preload": ["transformers"]}
TIMES = {"since": 1000.0, "until": 1900.0, "bytes": 150_000_000}


def test_times_are_the_nodes_own() -> None:
    """Age and what remains come from the node's clock; nonsense becomes an empty value."""
    (server,) = parse_warm_servers(Untrusted({"time": 1060.0, "servers": [{**ENTRY, **TIMES}]}))
    assert (server.age, server.ends_in, server.bytes) == (60.0, 840.0, 150_000_000)
    (empty,) = parse_warm_servers(Untrusted({"servers": [{"pid": -1, "torch": [], "until": "x"}, {}]}))
    assert empty == WarmServer(0, "", "", (), 0.0, 0.0, 0)
    assert parse_warm_servers(Untrusted({"servers": "x"})) == ()


def test_without_runs_no_node_is_asked() -> None:
    """What is warm was left by a run."""
    assert may_be_warm((), {}, 0.0) == set()
