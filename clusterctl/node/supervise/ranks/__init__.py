"""The ranks of one attempt on this node: which process each is, whether it gets on, and how it ends.

`workers` has them, `nested` finds those that a program has started itself; `zombies` and `stall` look whether they get
on, `progress` whether the attempt wrote output files. Not here: the process that starts them
(`node/supervise/gate_process.py`). Start with `workers`.
"""
