"""Pure decisions: values in, values out; no clock, chance, environment, socket or file.

`launch/` is what will run, `facts/` what nodes report, `checks/` what is wrong with it, `runs/` what became
of a run, `sync/` which files, `diagnose/` tests between nodes. One topic has one module: `known_errors`,
`notify`, `cleanup`, `explain`, `discover`, `ssh`. Effects are in `client`. Start with `launch/plan`.
"""
