"""Workers forked from a process that has torch imported, and a gate that imports it before its run.

`worker_server` forks the workers of one attempt, `worker` is what they become, `obstacles` why they may not be forked.
`standby` waits for the next run with a gate that has torch imported; `warm_client` reaches it, `imports` and
`inherited` compare what it has with what a run needs.
Not here: the gate (`node/supervise/gate.py`), the agent's side of one that waits (`node/supervise/gate_process.py`).
Start with `worker_server`.
"""
