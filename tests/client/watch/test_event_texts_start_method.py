"""What a node's event about the start of its workers reports to who watches."""

from __future__ import annotations

from clusterctl.client.watch.event_texts import describe_start_event
from clusterctl.protocol.untrusted import Untrusted


def test_only_workers_that_could_not_be_forked_are_news() -> None:
    """The reason is shown; forked workers are what the job asked for."""
    execed = {"event": "start_method", "method": "exec", "text": "4 threads run after the import"}

    assert describe_start_event(Untrusted(execed)) == "workers are not forked: 4 threads run after the import"
    assert describe_start_event(Untrusted({**execed, "method": "fork"})) == ""
    kept = describe_start_event(Untrusted({**execed, "keep_warm": True}))
    assert kept == "workers are not forked, so keep_warm saves nothing: 4 threads run after the import"
    assert describe_start_event(Untrusted({"event": "workers"})) == ""
