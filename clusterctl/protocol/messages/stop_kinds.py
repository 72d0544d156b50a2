"""On what occasion a run is ended: the kinds of a stop, as orders and records have them."""

from __future__ import annotations

FAILURE = "failure"  # a part of it failed
STOP = "stop"  # a person, or a signal to an agent
TIME = "time"  # the job's time limit
DONE = "done"  # node 0's program has ended in order, and the others served it only
STOP_KINDS = (FAILURE, STOP, TIME, DONE)
STOPPED_BY = "stopped by "  # how the reason begins when a person asked for the end
