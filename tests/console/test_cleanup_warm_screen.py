"""How `ps` shows processes that wait for the next launch."""

from __future__ import annotations

from clusterctl.console.cleanup import render_warm, warm_to_json
from clusterctl.plans.cleanup import WarmServer


def test_equal_nodes_share_a_line() -> None:
    """It has the oldest and the shortest time."""
    servers = {
        "gpu01": (WarmServer(7, "/opt/python", "2.13.0", ("transformers",), 60.0, 840.0, 150_000_000),),
        "gpu02": (WarmServer(8, "/opt/python", "2.13.0", ("transformers",), 30.0, 870.0, 140_000_000),),
        "gpu03": (WarmServer(9, "/opt/python", "2.14.0", (), 30.0, 870.0, 140_000_000),),
    }
    assert list(render_warm(servers)) == [
        "gpu[01-02]: warm for 1m, ends in 14m: torch 2.13.0, transformers in /opt/python, 150.0 MB",
        "gpu03: warm for 30 s, ends in 14m30s: torch 2.14.0 in /opt/python, 140.0 MB",
    ]
    assert [entry["node"] for entry in warm_to_json(servers)] == ["gpu01", "gpu02", "gpu03"]
