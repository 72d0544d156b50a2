"""What a node keeps: work directory, records of runs, locks, environments.

`workdir` has the paths, `run_record` the state file and the states, `locks` the GPU locks. Not here: code
(`node/sync`) and logs (`node/logs`). Start with `run_record`.
"""
