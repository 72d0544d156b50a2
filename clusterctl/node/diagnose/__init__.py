"""Network tests between nodes, and the part of `diagnose` that lives in the ranks.

`mesh` tests connections, `collective` is the deep check, `rank` is installed in the ranks. Not here: who calls
whom, and results (`plans/diagnose`).
"""
