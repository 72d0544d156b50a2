"""What is printed of runs: the list, nodes and ranks of one, its log lines, its end.

`verdict` shows the end and its cause, `hang` where the ranks wait, `held_tracebacks` keeps those of other ranks back.
"""
