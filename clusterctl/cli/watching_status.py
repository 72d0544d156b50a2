"""Show a run's state as it changes, until the run has ended."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.cli.reaching import interpreter, notice, reading_exit_code, tell_failures
from clusterctl.cli.remembering import Remembered
from clusterctl.console.watched import make_board
from clusterctl.protocol.run_id import RunId
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.follow import StateChange, StreamEnd
from clusterctl.runs.onlooking import Onlooker
from clusterctl.specs.inventory import Node

PULSE = 5.0  # seconds between two looks at what each rank said last


def watch_status(
    cluster: Cluster, nodes: Sequence[Node], remembered: Remembered, run: RunId, *, as_json: bool
) -> int:
    """Follow the states; 0 when all nodes answered in the end, 5 some, 4 none."""
    parts = dict(remembered.runs[run])
    taking_part = [node for node in nodes if node.name in parts]
    pythons = {node.name: remembered.pythons.get(node.name) or interpreter(node) for node in taking_part}
    silent = {error.node for error in remembered.errors}
    wish = {"events": None, "logs": None, "pulse": PULSE}
    onlooker = Onlooker(cluster, run, taking_part, pythons, wish, notice=notice)
    with make_board(run, remembered.offsets, as_json=as_json) as board:
        board.show(parts)
        for update in onlooker.updates():
            if isinstance(update, StateChange) and update.state != parts[update.node]:
                parts[update.node] = update.state
                silent.discard(update.node)
                board.show(parts)
            elif isinstance(update, StreamEnd) and update.error is not None:
                silent.add(update.node)
                tell_failures([update.error])
    return reading_exit_code(remembered.asked - len(silent), remembered.asked)
