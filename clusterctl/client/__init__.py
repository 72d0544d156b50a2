"""The launching machine's side, with effects: SSH, conversations with nodes, code, logs, results.

`ssh/` connects (`openssh` by the user's own ssh), `rpc/` talks to nodes, `launch/` starts a run, `sync/`
sends code, `watch/` follows, `results/` downloads, `local/` is about this machine. `preflight`,
`maintenance` and `utilization` serve one verb each. Decisions are in `plans`, what is printed in `console`.
Start with `rpc/tasks`.
"""
