"""Why an attempt ended: the words of a job's `restart.on`, and `code` for an error of the script, never tried again.

Then on what occasion a run is ended: the kinds of a stop, as orders and records have them.
"""

from __future__ import annotations

NODE_LOST, AGENT_KILLED = "node_lost", "agent_killed"
WORKER_KILLED, WORKER_CRASHED = "worker_killed", "worker_crashed"
OUT_OF_MEMORY, NETWORK, GPU, PORT_TAKEN = "out_of_memory", "network", "gpu", "port_taken"
STALLED = "stalled"  # no rank made progress; only by `stall: {then: restart}`
CODE = "code"
NODE_0_ENDED = "node 0 has ended"  # why programs on the other nodes are stopped with `ends_with: node 0`
REQUEUED = "requeued"  # Slurm has stopped the job and put it back into the queue
STOPPED_BY_SLURM = "stopped by Slurm"  # how the reason of a part begins that Slurm has ended

FAILURE = "failure"  # a part of it failed
STOP = "stop"  # a person, or a signal to an agent
TIME = "time"  # the job's time limit
DONE = "done"  # node 0's program has ended in order, and the others served it only
STOP_KINDS = (FAILURE, STOP, TIME, DONE)
STOPPED_BY = "stopped by "  # how the reason begins when a person asked for the end
