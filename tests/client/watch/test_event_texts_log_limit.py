"""What a node's events about its logs say to who watches."""

from __future__ import annotations

from clusterctl.client.watch.event_texts import describe_log_event
from clusterctl.protocol.untrusted import Untrusted


def test_the_limit_and_what_happens_are_named() -> None:
    """Other events say nothing here."""
    cut = describe_log_event(Untrusted({"event": "logs_cut", "limit": 20 * 10**9}))
    assert cut == "its logs have reached log_limit (20GB): the middle of the longest is dropped from now on"
    stuck = describe_log_event(
        Untrusted({"event": "logs_unbounded", "limit": 10**9, "why": "Operation not supported"})
    )
    assert "log_limit (1GB) and continue to grow" in stuck and "Operation not supported" in stuck
    assert (
        describe_log_event(Untrusted({"event": "stopping"}))
        == describe_log_event(Untrusted({"event": "logs_cut"}))
        == ""
    )
