"""A process with torch imported that outlives a run: later attempts and runs are forked from it.

Not here: the workers, which a gate forks (`node/fork`), and the agent's side (`node/supervise/warm_server.py`).
Start with `server.py`.
"""
