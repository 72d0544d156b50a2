"""Silent nodes while a run is followed: one line that counts down on a terminal, notices elsewhere."""

from __future__ import annotations

import pytest
from node_parts import NODES, RUN, part

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.monitor import MonitorOptions, RunMonitor


def watch(notices: list[str], lines: list[str] | None) -> RunMonitor:
    """Begin to follow a run on two nodes; `lines` are for a terminal."""
    known = {node.name: part(node.name, "RUNNING", "") for node in NODES}
    options = MonitorOptions(RUN, NODES, {}, {}, known_states=known)
    show = None if lines is None else lines.append
    return RunMonitor(
        Cluster(notices.append), options, show=lambda _: None, notice=notices.append, show_silence=show
    )


@pytest.mark.parametrize(
    ("ages", "line"),
    [
        ({"gpu01": 1.0, "gpu02": 4.0}, ""),
        ({"gpu01": 1.0, "gpu02": 8.0}, "gpu02: silent for 8 s; lost in at most 12 s"),
        ({"gpu01": 9.0, "gpu02": 8.0}, "gpu[01-02]: silent for 9 s; lost in at most 11 s"),
        ({"gpu01": 1.0, "gpu02": 23.0}, "gpu02: silent for 23 s; reconnecting"),
    ],
)
def test_the_line_counts_down(ages: dict[str, float], line: str) -> None:
    """From the second missing beat on; nodes that are through do not count."""
    followed = watch([], [])
    followed._streams.last_received.update({name: 100.0 - age for name, age in ages.items()})

    assert followed._describe_silence(100.0) == line
    for report in followed._reports.values():
        report.done = True
    assert followed._describe_silence(100.0) == ""


@pytest.mark.parametrize(("lines", "count"), [(None, 1), ([], 0)])
def test_a_broken_connection_is_noted_where_no_line_shows_it(lines: list[str] | None, count: int) -> None:
    """The line shows how long it lasts, and goes when the node is back."""
    notices: list[str] = []
    watch(notices, lines)._streams._notice("gpu02: connection lost; reconnecting")

    assert len(notices) == count
