"""What the nodes of a run have on record of it, from all of them at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric import Connection, task

from clusterctl.client.rpc.cluster import Answers
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.plans.runs.history import NodeRecord, RecordParser
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import HistoryRequest

HISTORY_LIMIT = 30.0  # seconds


@dataclass(frozen=True)
class HistoryChoice:
    """What is wanted of a run's history: the last `since` seconds (None: all) at so many moments, and the rest."""

    since: float | None
    points: int
    details: bool = False
    lines: int = 0


Records = Answers[NodeRecord]


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def history(
    c: Connection, node: Node, interpreter: Interpreter, run_id: str, choice: HistoryChoice
) -> NodeRecord:
    """Ask a node for what it has on record of a run: its samples, and with details what else a report shows."""
    request: HistoryRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "since": choice.since,
        "points": choice.points,
        "details": choice.details,
        "lines": choice.lines,
    }
    parser, deadline = RecordParser(node.name, choice.points), time.monotonic() + HISTORY_LIMIT
    asked_at = time.time()
    with Session(c, "history", request, interpreter) as session:
        while (frame := session.receive(max(0.1, deadline - time.monotonic()))) is not None:
            parser.add(*frame)
            if parser.is_complete(details=choice.details):
                break
    return parser.finish((asked_at + time.time()) / 2)


def fetch_records(run: RunHandle, choice: HistoryChoice) -> Records:
    """Ask all nodes of a run; one that hangs costs its limit and is an error among the others' answers."""
    return run.collect(lambda c, node, python: history(c, node, python, run.run_id, choice))
