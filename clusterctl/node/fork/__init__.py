"""Workers forked from a process that has torch imported, and such a process that outlives its run.

`worker_server` forks the workers of one attempt. `warm_server` forks the gates of later attempts and runs, with
`standby` the guardian and agent of the next run; `warm_client` reaches it, `imports` and `inherited` compare what it
has with what a run needs.
Not here: the gate that starts both (`node/supervise/gate.py`), the agent's side (`node/supervise/warm_server.py`).
Start with `worker_server`.
"""
