"""The rules of a run on a node: which events change its state, and which effects they call.

`transitions` has the table; `starting` and `ending` the rules, `run` their state and the interface of
what they call. Not here: anything with an effect (`node/supervise`). Start with `transitions`.
"""
