"""Network tests between nodes.

`mesh` tests connections, `collective` is the deep check. Not here: who calls whom, and results (`plans/diagnose`).
"""
