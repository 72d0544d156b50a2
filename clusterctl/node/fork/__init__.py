"""Workers forked from a process that has torch imported.

Not here: the gate that starts the server (`node/supervise/gate.py`). Start with `server.py`.
"""
