"""Pure decisions: values in, values out.

No clock, chance, environment, socket or file. `launch/` is what will run, `facts/` what nodes report, `checks/` what
is wrong with it, `runs/` how a run ended, `sync/` which files, `diagnose/` tests between nodes.
Not here: effects (`client/`). Start with `launch/plan`.
"""
