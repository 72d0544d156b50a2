"""Plans and results of the tests between nodes, and the judgement of a run that hangs.

`network_tests` plans and reads both tests; `evidence` is what nodes report of their ranks, `hang` what it means, now or
as it was kept, `slow` which rank the others wait for. Not here: rows for tables (`plans/runs/rows`), the tests
themselves and what is asked of the ranks (`node/diagnose`). Start with `hang`.
"""
