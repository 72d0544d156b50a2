"""How far a node's clock is from ours."""

from __future__ import annotations

import time

from clusterctl.errors import ClusterctlError
from clusterctl.runs.session import Session

ASKS = 3
ANSWER_LIMIT = 30.0


def measure_clock(session: Session) -> float:
    """Ask a node that waits for it what time it is there; gives its clock minus ours, in seconds.

    Of several answers the quickest counts, which is wrong by no more than half of what it took. Then the node goes on.
    """
    answers: list[tuple[float, float]] = []
    try:
        for _ in range(ASKS):
            asked, began = time.time(), time.monotonic()
            session.send({"ask": True})
            frame = session.receive(ANSWER_LIMIT)
            took = time.monotonic() - began
            told = frame[0].moment("clock") if frame is not None else None
            if told is not None:
                answers.append((took, told - asked - took / 2))
        took, ahead = min(answers, default=(0.0, 0.0))
        session.send({"begin": True, "ahead": ahead - took})
    except ClusterctlError:
        session.close()
        raise
    return ahead
