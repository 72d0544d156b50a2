"""Practice clusters on this machine, for demos and tests.

`build` starts one, `labs` finds, changes and removes them, `holder` is the process that owns one. Nodes are network
namespaces (`netns/`) or plain processes (`inproc`). Uses `errors` and, for /proc and signals,
`node/runtime/processes`; not here: anything that a real cluster needs. Start with `build`.
"""
