"""Network tests between nodes, and how the ranks of a run are asked where they are.

`mesh` tests connections, `collective` is the deep check; `rank` is installed in the ranks, `query` asks them and reads
their stacks, `breakpoint` holds them for `debug`. Not here: who calls whom, and results
(`plans/diagnose`). Start with `query`.
"""
