"""Plans and results of the tests between nodes, and the judgement of a run that hangs.

`mesh` is the connection test, `collective` the deep check; `evidence` is what nodes report of their ranks, `hang`
what it means, now or as it was kept, `slow` which rank the others wait for, `rank_rows` how it is shown. Not here:
the tests themselves and what is asked of the ranks (`node/diagnose`). Start with `hang`.
"""
