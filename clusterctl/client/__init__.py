"""The launching machine: everything with an effect there or over SSH.

`ssh/` connects, `rpc/` talks to nodes, `launch/` starts a run, `sync/` sends code, `watch/` follows, `files/` copies
files either way, `local/` is about this machine. `openssh` connects with the user's own ssh. `preflight` and
`run_evidence` ask all nodes at once. Not here: decisions (`plans/`) and output (`console/`). Start with `rpc/tasks`.
"""
